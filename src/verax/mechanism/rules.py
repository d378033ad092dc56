"""The rules by their names, as `terms.toml`, plans and command lines give them."""

from __future__ import annotations

from functools import cache

from verax.mechanism.groves_ledyard import GrovesLedyard
from verax.mechanism.no_payment import NoPayment
from verax.mechanism.rule import Rule
from verax.mechanism.smoothed_norm import SmoothedNorm
from verax.mechanism.spot_audit import SpotAudit
from verax.mechanism.squared_distance import SquaredDistance
from verax.mechanism.squared_norm import SquaredNorm
from verax.plugins import is_reference, load, reference

#: The rules that come with Verax.
BUILT_IN: tuple[Rule, ...] = (
    SquaredNorm(),
    SquaredDistance(),
    GrovesLedyard(),
    SpotAudit(),
    SmoothedNorm(),
    NoPayment(),
)


def check_rule_name(name: str) -> None:
    """Refuse a text that names no built-in rule and does not have the form `module:name`."""
    known = [rule.name for rule in BUILT_IN]
    if name not in known and not is_reference(name):
        raise ValueError(f"rule is {name!r}, must be one of {', '.join(known)} or module:name")


@cache
def rule_named(name: str) -> Rule:
    """The rule with a name; a rule named `module:name` is imported."""
    check_rule_name(name)
    for rule in BUILT_IN:
        if rule.name == name:
            return rule
    return load(name, "rule", "name", "reads", "fewest", "measure")


def rule_text(rule: Rule) -> str:
    """The name by which `rule_named` finds a rule again."""
    return rule.name if rule in BUILT_IN else reference(rule, "rule")
