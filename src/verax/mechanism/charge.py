"""One round charged by the terms: the rule for those who took part, the policy for the rest.

An update that is missing, rejected or failed is excused, or pays a flat fee that the participants
share equally, or is levied as the largest measure of the round. Each is balanced:

    Σ_i p_i = 0 for every mixture of statuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from verax.mechanism.rule import Payments, balance, check_statistics, pay
from verax.mechanism.terms import RULES, Action, Terms

__all__ = ["Status", "charge"]

#: What became of a member's update in a round.
Status = Literal["ok", "missing", "rejected", "error"]
_STATUSES: tuple[str, ...] = get_args(Status)


def charge(
    terms: Terms, round_: int, statistics: ArrayLike, statuses: Sequence[Status]
) -> Payments:
    """The payments of round t = 1, 2, … under the terms.

    Args:
        terms: rule, prices, allowances and policy.
        round_: t.
        statistics: what the rule reads, (N,) or (N, N); entries of members that are not ok are
            ignored.
        statuses: one per member.

    Example:
        >>> from verax.mechanism import Price, Terms
        >>> terms = Terms(Price.constant(1.0))
        >>> charge(terms, 1, [4.0, 1.0, 0.0], ["ok", "ok", "missing"]).amounts
        array([ 3., -3.,  0.])
    """
    rule = RULES[terms.rule]
    price, allowances = terms.price.at(round_), terms.allowances_at(round_)
    shape = (len(statuses),) * (2 if rule.statistic == "gram" else 1)
    given = np.asarray(statistics, dtype=np.float64)
    if given.shape != shape:
        raise ValueError(f"{len(statuses)} members need statistics of that size, got {given.shape}")
    if set(statuses) == {"ok"}:  # all took part: the policy has no say
        return pay(rule, given, price, allowances=allowances)
    actions = [_action(terms, status) for status in statuses]
    ok = np.array([action is None for action in actions], dtype=np.bool_)
    values, _ = check_statistics(rule, given, ok)
    measures = np.where(ok, rule.measure(values, ok), 0.0)
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
