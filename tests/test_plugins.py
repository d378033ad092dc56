"""Objects named as module:name: loaded from the path or the current folder, and named again."""

import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from verax.mechanism import BUILT_IN, SquaredNorm, rule_named
from verax.plugins import is_reference, load, reference

MODULE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Rule:
    name = "own"
    reads = "norms"
    fewest = 2
    factor: float = 2.0

    def measure(self, statistics, present):
        return self.factor * statistics.norms

@dataclass(frozen=True)
class NeedsArgument:
    factor: float

ready = Rule(3.0)
number = 5
class Group:
    inner = Rule(4.0)
def make():
    return Rule(5.0)
"""
METHODS = ("name", "reads", "fewest", "measure")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of a user's own in the current folder; its name."""
    name = f"rules_of_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "factor"), [("Rule", 2.0), ("ready", 3.0), ("Group.inner", 4.0), ("make", 5.0)]
)
def test_an_object_a_class_and_a_function_are_loaded(module, name, factor):
    assert load(f"{module}:{name}", "rule", *METHODS).factor == factor


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "has no nothing"),
        ("Group.nothing", r"has no Group\.nothing"),
        ("number", "has no .name.; see docs"),
        ("NeedsArgument", "needs no arguments .*factor"),
        ("Group", "has no 'name'; see docs/how-to/extend.md"),
    ],
)
def test_what_is_no_such_object_is_refused(module, name, message):
    with pytest.raises(ValueError, match=message):
        load(f"{module}:{name}", "rule", *METHODS)


def test_texts_and_modules_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="rule is 'a b', must be a built-in name or module:name"):
        load("a b", "rule")
    with pytest.raises(ValueError, match="'no_such_module:x': the module cannot be imported"):
        load("no_such_module:x", "rule")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a:b", True), ("a.b:c.d", True), ("a", False), (":b", False), ("a:", False), ("a:1", False)],
)
def test_the_form_of_a_reference(text, expected):
    assert is_reference(text) is expected


def test_an_object_is_named_so_that_it_is_found_again(module):
    load(f"{module}:ready", "rule")  # finds the module in the current folder
    own = sys.modules[module]
    assert reference(own.ready, "rule") == f"{module}:ready"
    assert reference(own.Rule(), "rule") == f"{module}:Rule"
    assert reference(own.make, "rule") == f"{module}:make"
    assert load(reference(own.ready, "rule"), "rule") is own.ready
    with pytest.raises(ValueError, match="cannot be found again by name; assign it to a name"):
        reference(own.Rule(7.0), "rule")

    @dataclass(frozen=True)
    class Local:
        name: ClassVar[str] = "local"

    with pytest.raises(ValueError, match="cannot be found again"):
        reference(Local(), "rule")


def test_rules_by_name(module):
    assert [rule_named(rule.name) for rule in BUILT_IN] == list(BUILT_IN)
    assert rule_named("squared-norm") == SquaredNorm()
    assert rule_named(f"{module}:ready").name == "own"
    with pytest.raises(ValueError, match=r"'vcg', must be one of squared-norm, .* or module:"):
        rule_named("vcg")
