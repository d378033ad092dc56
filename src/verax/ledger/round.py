"""A round's content: what was reported, what the terms make of it, in whole units.

Everything that anybody needs to compute the charge again: statistics, weights, statuses, price,
rule, the hash of the terms; then the real payments and the integers made of them. Participants
stand in columns, in the order of their account numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.ledger.engine import BookError
from verax.ledger.money import to_units
from verax.ledger.state import Account, State, Version
from verax.mechanism import RULES, Status, Terms, charge

__all__ = ["Report", "Row", "round_content", "round_inputs"]

_REASON = 500
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Report:
    """What became of one member's update in a round.

    Attributes:
        member: the member's public key or id (or label).
        status: ok, missing, rejected or error.
        statistic: what the rule reads, of the update *as it counted in the aggregate*: its squared
            norm (or its distance from the recomputed one) times `weight`². Left out for rules on
            the Gram matrix and for members that are not ok.
        weight: by how much the update counted: its share of the aggregate times the number of ok
            updates. 1 where all weigh the same.
        reason: why it is not ok, in a few words.
    """

    member: str
    status: Status = "ok"
    statistic: float | None = None
    weight: float = 1.0
    reason: str = ""


Row = tuple[Account, Report]


def round_content(
    state: State,
    version: Version,
    round_: int,
    rows: Sequence[Row],
    gram: ArrayLike | None,
) -> dict[str, Any]:
    """The part of a round's record that its reports decide.

    Args:
        state: the federation.
        version: the terms in force.
        round_: t.
        rows: the reports with their accounts, by account number.
        gram: ⟨m_i, m_j⟩ of the ok reports in the order of the rows, for the rules that read it.
    """
    terms = version.terms
    inputs = round_inputs(terms, rows, gram)
    payments = _payments(state, terms, round_, rows, inputs)
    return inputs | {
        "amounts": to_units(payments, terms.scale, [account.member for account, _ in rows]),
        "payments": payments.tolist(),
        "price": terms.price.at(round_).tolist(),
        "rule": terms.rule,
        "terms": version.hash,
    }


def round_inputs(terms: Terms, rows: Sequence[Row], gram: ArrayLike | None) -> dict[str, Any]:
    """What was reported, checked, as it stands in the content."""
    gram_read = RULES[terms.rule].statistic == "gram"
    statistics: list[float | None] = []
    odd: list[Row] = []  # most rounds have nothing of the kind
    for account, report in rows:
        if report.status != "ok" or report.weight != 1.0 or report.reason:
            _check(account, report)
            odd.append((account, report))
        value = report.statistic
        if report.status != "ok":
            statistics.append(None)
        elif gram_read:
            if value is not None:
                raise BookError(f"rule {terms.rule} reads the Gram matrix, not a statistic each")
        elif value is None or not 0 <= value < math.inf:
            raise BookError(
                f"statistic of {account.member!r} is {value}, must be a finite number ≥ 0; "
                "report a broken update as rejected"
            )
        else:
            statistics.append(float(value) + 0.0)  # NumPy's become Python's, −0.0 becomes 0.0
    statuses = {str(a.number): r.status for a, r in odd if r.status != "ok"}
    weights = {str(a.number): float(r.weight) + 0.0 for a, r in odd if r.weight != 1.0}
    if weights or terms.weights.kind == "fixed":
        _check_weights(terms, [row for row in rows if row[1].status == "ok"])
    matrix = _gram(terms, gram, len(rows) - len(statuses))
    return {
        "accounts": [account.number for account, _ in rows],
        "gram": None if matrix is None else matrix.tolist(),
        "reasons": {str(a.number): _cut(r.reason) for a, r in odd if r.reason},
        "statistics": None if gram_read else statistics,
        "statuses": statuses,
        "weights": weights,
    }


def _cut(reason: str) -> str:
    """A reason as it is kept: error messages of others, so cut rather than refused."""
    return reason[:_REASON].encode("utf-8", "replace").decode()


def _payments(
    state: State,
    terms: Terms,
    round_: int,
    rows: Sequence[Row],
    inputs: dict[str, Any],
) -> NDArray[np.float64]:
    if not rows:
        return np.zeros(0)
    statuses: list[Status] = ["ok"] * len(rows)
    if inputs["statuses"]:
        statuses = [report.status for _, report in rows]
    order: list[int] | None = None
    if terms.members:  # prices and allowances stand in the order of the terms' members
        position = {account.number: i for i, (account, _) in enumerate(rows)}
        order = [position[account.number] for account in state.listed(terms)]
        statuses = [statuses[i] for i in order]
    if inputs["gram"] is None:
        values = np.array(inputs["statistics"], dtype=np.float64)
        values = values if order is None else values[order]
    else:
        ok = [i for i, (_, report) in enumerate(rows) if report.status == "ok"]
        values = np.zeros((len(rows), len(rows)))
        if ok:
            values[np.ix_(ok, ok)] = inputs["gram"]
        values = values if order is None else values[np.ix_(order, order)]
    amounts = charge(terms, round_, values, statuses).amounts + 0.0  # −0.0 becomes 0.0
    if order is not None:
        amounts[order] = amounts.copy()
    return amounts


def _gram(terms: Terms, gram: ArrayLike | None, ok: int) -> NDArray[np.float64] | None:
    if RULES[terms.rule].statistic != "gram":
        if gram is not None:
            raise BookError(f"rule {terms.rule} reads no Gram matrix; leave it out")
        return None
    if gram is None:
        if ok:
            raise BookError(f"rule {terms.rule} needs the Gram matrix of the {ok} ok updates")
        return np.zeros((0, 0))
    matrix = np.asarray(gram, dtype=np.float64)
    if ok == 0 and matrix.size == 0:
        return np.zeros((0, 0))
    if matrix.shape != (ok, ok):
        raise BookError(f"the Gram matrix is {matrix.shape}, must be ({ok}, {ok}): the ok updates")
    return matrix + 0.0


def _check(account: Account, report: Report) -> None:
    status, weight = report.status, report.weight
    if status != "ok":
        if status not in ("missing", "rejected", "error"):
            raise BookError(
                f"status of {account.member!r} is {status!r}, "
                "must be ok, missing, rejected or error"
            )
        if weight != 1.0:
            raise BookError(f"{account.member!r} is {status} and cannot have a weight")
    if not 0 <= weight < math.inf:
        raise BookError(f"weight of {account.member!r} is {weight}, must be ≥ 0")


def _check_weights(terms: Terms, ok: Sequence[Row]) -> None:
    if not ok:
        return
    kind = terms.weights.kind
    if kind == "reported":
        mean = sum(report.weight for _, report in ok) / len(ok)
        if abs(mean - 1) > _TOLERANCE * len(ok):
            raise BookError(
                f"weights have the mean {mean:.6g}, must have 1: "
                "give each update's share times the number of ok updates"
            )
        return
    wanted = [1.0] * len(ok)
    if kind == "fixed":
        table = dict(zip(terms.members, terms.weights.values, strict=True))
        own = [table.get(a.member, table.get(a.label, 0.0)) for a, _ in ok]
        wanted = [value * len(ok) / sum(own) for value in own]
    for (account, report), right in zip(ok, wanted, strict=True):
        if abs(report.weight - right) > _TOLERANCE * max(1.0, right):
            raise BookError(
                f"weight of {account.member!r} is {report.weight:.6g}, must be {right:.6g} "
                f'under weights.kind = "{kind}"'
            )
