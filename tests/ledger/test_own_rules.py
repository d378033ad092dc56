"""Books charged by a rule of the user's own: read, verified and forged, by the real command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from books import norms, rewritten

from verax.ledger import Book, Report
from verax.ledger.export import export_book, import_book
from verax.ledger.own_rules import measures_of
from verax.ledger.statement import make_statement, to_html
from verax.mechanism import FailurePolicy, Price, Terms
from verax.verifier import verify

NAME = "rules_of_the_clinics"
MODULE = """
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Root:
    name = "root"
    reads = "norms"
    fewest = 2

    def measure(self, statistics, present):
        return np.sqrt(statistics.norms)

@dataclass(frozen=True)
class Contrast:
    name = "contrast"
    reads = "gram"
    fewest = 3

    def measure(self, statistics, present):
        return 2 * statistics.norms - np.sum(statistics.gram, axis=-1)

@dataclass(frozen=True)
class Fine:
    name = "fine"
    reads = "misreport"
    fewest = 2

    def measure(self, statistics, present):
        return statistics.misreport
"""
MEMBERS = ("c", "a", "b", "d")  # in another order than that of the accounts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the user's module; it is on the path of this process alone."""
    where = tmp_path_factory.mktemp("own")
    (where / f"{NAME}.py").write_text(MODULE)
    sys.path.insert(0, str(where))
    yield where
    sys.path.remove(str(where))
    sys.modules.pop(NAME, None)


@pytest.fixture(scope="module")
def book(folder):
    """A book by three rules of the user's own: the path of its export."""
    rng = np.random.default_rng(0)
    with Book.create(folder / "book.db") as opened:
        terms = Terms(Price.constant(0.5), rule=f"{NAME}:Root", scale=4)
        opened.create_federation("clinics", terms)
        for t in range(1, 4):
            opened.post("clinics", "first", t, norms(*rng.exponential(size=4)))
        for name, first in (("Contrast", 4), ("Fine", 7)):
            own = Terms(
                Price(((0.1, 0.2, 0.3, 0.4),)),
                rule=f"{NAME}:{name}",
                members=MEMBERS,
                allowances=((0.5, -0.2, -0.2, -0.1),),
                policy=FailurePolicy("excuse", "largest", "flat-fee", 0.7),
                scale=4,
            )
            opened.change_terms("clinics", own, from_round=first)
            for t in range(first, first + 3):
                fates = ["ok", "ok", "ok", ("ok", "rejected", "error")[t % 3]]
                vectors = rng.standard_normal((fates.count("ok"), 3))
                gram = vectors @ vectors.T if name == "Contrast" else None
                reports = [
                    Report(m, fate, 1.5 + t if gram is None and fate == "ok" else None)
                    for m, fate in zip("abcd", fates, strict=True)
                ]
                opened.post("clinics", "first", t, reports, gram)
        export_book(opened, "clinics", folder / "book.jsonl")
    return folder / "book.jsonl"


def rules(*names):
    return measures_of(f"{NAME}:{name}" for name in names)


def test_without_the_rule_everything_else_is_checked(book):
    for source in (book, book.with_suffix(".db")):
        found = verify(source)
        assert found.ok
        assert found.unchecked == [f"{NAME}:{name}" for name in ("Root", "Contrast", "Fine")]
        assert [each.kind for each in found.findings] == ["unchecked"] * 3
        first = found.findings[0].message
        assert first == f"record 1: payments by rule {NAME}:Root were not recomputed"
        assert found.rounds == 9


def test_with_the_rules_payments_are_recomputed(book):
    for source in (book, book.with_suffix(".db")):
        found = verify(source, rules=rules("Root", "Contrast", "Fine"))
        assert found.ok, found.findings
        assert found.unchecked == []
        assert found.findings == []
    some = verify(book, rules=rules("Root", "Fine"))
    assert (some.ok, some.unchecked) == (True, [f"{NAME}:Contrast"])


def moved(t, units, i=0, j=1):
    """Moves a payment and its amount in round t, so that the amounts still follow."""

    def change(content):
        if content["kind"] == "round" and content["round"] == t:
            for k, sign in ((i, 1), (j, -1)):
                content["payments"][k] += sign * units * 1e-4
                content["amounts"][k] += sign * units

    return change


@pytest.mark.parametrize("t", [2, 5, 8])
def test_a_moved_payment_is_found_only_with_the_rule(book, tmp_path, t):
    forged = tmp_path / "forged.jsonl"
    forged.write_bytes(rewritten(book, moved(t, 10)))
    assert verify(forged).ok
    found = verify(forged, rules=rules("Root", "Contrast", "Fine"))
    assert [each.kind for each in found.findings] == ["payment"]


def set_field(t, **values):
    def change(content):
        if content["kind"] == "round" and content["round"] == t:
            content.update(values)

    return change


def add_to_payment(t, i, amount):
    def change(content):
        if content["kind"] == "round" and content["round"] == t:
            content["payments"][i] += amount

    return change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (set_field(2, amounts=[1, -1, 0, 0]), "amount"),
        (set_field(2, price=[0.4]), "terms"),
        (set_field(2, rule="none"), "terms"),
        (set_field(2, reads="gram"), "form"),
        (set_field(2, reads="distances"), "form"),
        (set_field(2, weights={"1": 2.0}), "weight"),
        (set_field(5, gram=[[1.0]]), "form"),
        (add_to_payment(2, 0, 0.5), "payment"),
        (set_field(6, accounts=[1, 2, 3, 9]), "account"),
    ],
)
def test_every_other_forgery_is_found_without_the_rule(book, tmp_path, change, kind):
    forged = tmp_path / "forged.jsonl"
    forged.write_bytes(rewritten(book, change))
    found = verify(forged)
    assert not found.ok
    assert kind in {each.kind for each in found.findings}, found.findings


def test_an_excused_member_that_pays_is_found_without_the_rule(folder, tmp_path):
    path = tmp_path / "book.db"
    with Book.create(path) as book:
        book.create_federation("clinics", Terms(Price.constant(0.5), rule=f"{NAME}:Root", scale=4))
        book.post("clinics", "first", 1, [*norms(4, 1), Report("c", "missing")])
        export_book(book, "clinics", tmp_path / "book.jsonl")
    forged = tmp_path / "forged.jsonl"
    forged.write_bytes(rewritten(tmp_path / "book.jsonl", moved(1, 10, 2, 0)))
    assert [each.kind for each in verify(forged).findings] == ["unchecked", "payment"]


def test_statements_import_a_rule_only_if_the_reader_allows_it(book):
    with Book.open(book.with_suffix(".db"), read_only=True) as opened:
        plain = make_statement(opened, "clinics", "a")
        assert {line.recomputed for line in plain.lines} == {None}
        assert plain.unchecked == tuple(f"{NAME}:{name}" for name in ("Root", "Contrast", "Fine"))
        assert "were not recomputed" in to_html(plain)
        checked = make_statement(opened, "clinics", "a", rules=plain.unchecked)
    assert all(line.recomputed == line.amount for line in checked.lines)
    assert checked.unchecked == ()
    assert "were not recomputed" not in to_html(checked)


def test_an_export_is_imported_without_the_rule(book, tmp_path):
    with Book.create(tmp_path / "copy.db") as copy:
        federation, new = import_book(copy, book)
        assert (federation, new) == ("clinics", verify(book).sequence)
    assert verify(tmp_path / "copy.db").ok


def command(*words, cwd, path=None, code=0):
    """The real command in a process of its own."""
    paths = [str(Path(verify.__code__.co_filename).parents[2]), *([str(path)] if path else [])]
    done = subprocess.run(
        [Path(sys.executable).parent / "verax", "ledger", *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code != 2 else done.stderr


def test_the_command_reads_and_verifies_with_and_without_the_rule(folder, tmp_path):
    """The module is in the current folder, on PYTHONPATH, or nowhere."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for each in (home, elsewhere):
        each.mkdir()
    (home / f"{NAME}.py").write_text(MODULE)
    path = home / "book.db"
    with Book.create(path) as book:
        book.create_federation("f", Terms(Price.constant(0.5), rule=f"{NAME}:Root", scale=4))
        assert book.post("f", "r", 1, norms(4, 1)).amounts == {"a": 5000, "b": -5000}  # 2 − 1
        export_book(book, "f", home / "f.jsonl")
    reports = [{"member": m, "statistic": v} for m, v in (("a", 4.0), ("b", 1.0))]
    (home / "next.jsonl").write_text(json.dumps({"run": "r", "round": 2, "reports": reports}))

    # Everything but charging works where the module cannot be imported.
    assert "were not recomputed" in command("statement", path, "a", cwd=elsewhere)
    said = command("post", path, "--file", home / "next.jsonl", cwd=elsewhere, code=2)
    assert "the module cannot be imported" in said
    lines = command("verify", path, cwd=elsewhere).splitlines()
    warning = f"payments by rule {NAME}:Root were not recomputed"
    assert lines[0] == f"WARNING (unchecked): record 1: {warning}"
    assert "nothing wrong found" in lines[-1]
    assert warning in lines[-1]
    said = json.loads(command("verify", path, "--json", cwd=elsewhere))
    assert (said["ok"], said["unchecked"]) == (True, [f"{NAME}:Root"])

    # With the rule, payments are recomputed, and a forged one is found.
    rule = ("--rule", f"{NAME}:Root")
    assert "not recomputed" not in command("verify", path, *rule, cwd=home)
    (home / "f.jsonl").write_bytes(rewritten(home / "f.jsonl", moved(1, 10)))
    said = command("verify", home / "f.jsonl", *rule, cwd=elsewhere, path=home, code=1)
    assert "WRONG (payment)" in said
