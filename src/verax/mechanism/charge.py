"""One round charged by the terms: the rule for those who took part, the policy for the rest.

An update that is missing, rejected or failed is excused, or pays a flat fee that the participants
share equally, or is levied as the largest measure of the round. Each is balanced:

    Σ_i p_i = 0 for every mixture of statuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from verax.mechanism.rule import Payments, balance, measure, pay
from verax.mechanism.rules import rule_named
from verax.mechanism.statistics import Statistics
from verax.mechanism.terms import Action, Terms

#: What became of a member's update in a round.
Status = Literal["ok", "missing", "rejected", "error"]
_STATUSES: tuple[str, ...] = get_args(Status)


def charge(
    terms: Terms, round_: int, statistics: Statistics[Any], statuses: Sequence[Status]
) -> Payments:
    """The payments of round t = 1, 2, … under the terms.

    Args:
        terms: rule, prices, allowances and policy.
        round_: t.
        statistics: what the rule reads; entries of members that are not ok are ignored.
        statuses: one per member.

    Example:
        >>> from verax.mechanism import Price, Statistics, Terms
        >>> terms = Terms(Price.constant(1.0))
        >>> charge(terms, 1, Statistics([4.0, 1.0, 0.0]), ["ok", "ok", "missing"]).amounts
        array([ 3., -3.,  0.])
    """
    rule = rule_named(terms.rule)
    price, allowances = terms.price.at(round_), terms.allowances_at(round_)
    for name, values in statistics._asdict().items():
        if values is not None and set(np.shape(values)) != {len(statuses)}:
            raise ValueError(
                f"{len(statuses)} members need {name} of that size, got {np.shape(values)}"
            )
    if set(statuses) == {"ok"}:  # all took part: the policy has no say
        return pay(rule, statistics, price, allowances=allowances)
    actions = [_action(terms, status) for status in statuses]
    ok = np.array([action is None for action in actions], dtype=np.bool_)
    measures, _ = measure(rule, statistics, ok)
    as_largest = np.array([action == "largest" for action in actions], dtype=np.bool_)
    measures[as_largest] = np.max(measures, initial=0.0)
    # Whoever is levied as the largest counts as a participant: otherwise the round cannot balance.
    payments = balance(
        measures,
        price,
        ok | (as_largest & bool(np.any(ok))),
        fewest=rule.fewest,
        allowances=allowances,
    )
    fined = np.array([action == "flat-fee" for action in actions], dtype=np.bool_)
    if not np.any(fined) or not np.any(ok):  # without a participant nobody could receive a fee
        return payments
    fees = np.where(fined, terms.policy.fee, 0.0)
    fees = fees - np.where(ok, np.sum(fees) / np.count_nonzero(ok), 0.0)
    return Payments(payments.amounts + fees, payments.charged, payments.fewest)


def _action(terms: Terms, status: Status) -> Action | None:
    if status not in _STATUSES:
        raise ValueError(f"status is {status!r}, must be one of {', '.join(_STATUSES)}")
    return None if status == "ok" else getattr(terms.policy, status)
