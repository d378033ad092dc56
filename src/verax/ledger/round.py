"""The content of a round's record: the reports, and what the terms charge for them.

A record holds everything that anybody needs to compute the charge again: statistics, weights,
statuses, price, rule and the hash of the terms; then the real payments and the amounts in minor
units made of them. Each of these is a column, in the order of the participants' account numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.ledger.engine import BookError
from verax.ledger.money import to_units
from verax.ledger.state import Account, FederationState, TermsVersion
from verax.mechanism import Rule, Statistics, Status, Terms, charge, rule_named, spread

#: What is booked for a rule: a number per member, or the inner products of the updates.
Booked = Literal["norms", "misreport", "gram"]

_STATUSES: tuple[str, ...] = get_args(Status)
_MAX_REASON = 500
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Report:
    """What happened to one member's update in a round.

    Attributes:
        member: the member's public key or id, or its label.
        status: ok, missing, rejected or error.
        statistic: what the rule reads, of the update *as it counted in the aggregate*: its squared
            norm (or its squared distance from the recomputed update) times `weight`². Left out for
            rules on the Gram matrix and for members that are not ok.
        weight: the update's share of the aggregate times the number of ok updates; 1 if all updates
            have the same weight.
        reason: why the status is not ok, in a few words.
    """

    member: str
    status: Status = "ok"
    statistic: float | None = None
    weight: float = 1.0
    reason: str = ""


#: A report with the account of its member.
ReportRow = tuple[Account, Report]


def booked_statistic(rule: Rule) -> Booked:
    """What a book records for a rule; distances follow from the Gram matrix."""
    return "gram" if rule.reads in ("gram", "distances") else rule.reads


def round_content(
    state: FederationState,
    version: TermsVersion,
    round_: int,
    rows: Sequence[ReportRow],
    gram: ArrayLike | None,
) -> dict[str, Any]:
    """The part of a round's record that follows from its reports.

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


def round_inputs(terms: Terms, rows: Sequence[ReportRow], gram: ArrayLike | None) -> dict[str, Any]:
    """The reports as columns of the record, checked."""
    booked = booked_statistic(rule_named(terms.rule))
    for account, report in rows:
        _check_report(terms, booked, account, report)
    ok = [row for row in rows if row[1].status == "ok"]
    # Most members are ok, have the weight 1 and no reason; only the others are recorded as such.
    others = [(a, r) for a, r in rows if r.status != "ok" or r.weight != 1.0 or r.reason]
    if others or terms.weights.kind == "fixed":
        _check_weights(terms, ok)
    matrix = _checked_gram(terms, booked, gram, len(ok))
    return {
        "accounts": [account.number for account, _ in rows],
        "gram": None if matrix is None else matrix.tolist(),
        "reads": booked,
        "reasons": {str(a.number): _shortened(r.reason) for a, r in others if r.reason},
        # Adding 0.0 turns −0.0 into 0.0, which has one canonical form.
        "statistics": None
        if booked == "gram"
        else [None if r.statistic is None else float(r.statistic) + 0.0 for _, r in rows],
        "statuses": {str(a.number): r.status for a, r in others if r.status != "ok"},
        "weights": {str(a.number): float(r.weight) + 0.0 for a, r in others if r.weight != 1.0},
    }


def _shortened(reason: str) -> str:
    """A reason that fits into a record; it may be any error message, so it is cut, not refused."""
    return reason[:_MAX_REASON].encode("utf-8", "replace").decode()


def _payments(
    state: FederationState,
    terms: Terms,
    round_: int,
    rows: Sequence[ReportRow],
    inputs: dict[str, Any],
) -> NDArray[np.float64]:
    """The real payments, in the order of the rows."""
    if not rows:
        return np.zeros(0)
    order = np.arange(len(rows))
    if terms.members:  # prices and allowances are in the order in which the terms list the members
        position = {account.number: i for i, (account, _) in enumerate(rows)}
        order = np.array([position[account.number] for account in state.listed(terms)])
    statuses: list[Status] = [rows[i][1].status for i in order.tolist()]
    if inputs["reads"] == "gram":
        ok = [i for i, (_, report) in enumerate(rows) if report.status == "ok"]
        gram = np.reshape(inputs["gram"], (len(ok), len(ok)))  # also where there is no row
        dense, _ = spread(gram, ok, len(rows))
        statistics = Statistics.of_gram(dense[np.ix_(order, order)])
    else:
        values = np.array(inputs["statistics"], dtype=np.float64)[order]
        statistics = Statistics(**{inputs["reads"]: values})
    charged = charge(terms, round_, statistics, statuses).amounts
    payments = np.empty_like(charged)
    payments[order] = charged + 0.0  # −0.0 becomes 0.0
    return payments


def _checked_gram(
    terms: Terms, booked: Booked, gram: ArrayLike | None, ok: int
) -> NDArray[np.float64] | None:
    if booked != "gram":
        if gram is not None:
            raise BookError(f"rule {terms.rule} reads no Gram matrix; leave it out")
        return None
    if gram is None and ok:
        raise BookError(f"rule {terms.rule} needs the Gram matrix of the {ok} ok updates")
    matrix = np.asarray([] if gram is None else gram, dtype=np.float64)
    if ok == 0 and matrix.size == 0:
        return np.zeros((0, 0))
    if matrix.shape != (ok, ok):
        raise BookError(
            f"the Gram matrix has the shape {matrix.shape}, must be ({ok}, {ok}): the ok updates"
        )
    return matrix + 0.0


def _check_report(terms: Terms, booked: Booked, account: Account, report: Report) -> None:
    """Refuse an unknown status, and a statistic or weight that does not fit the status."""
    status, weight, value = report.status, report.weight, report.statistic
    if status not in _STATUSES:
        raise BookError(
            f"status of {account.member!r} is {status!r}, must be one of {', '.join(_STATUSES)}"
        )
    if not 0 <= weight < math.inf:
        raise BookError(f"weight of {account.member!r} is {weight}, must be a finite number ≥ 0")
    if status != "ok":
        if weight != 1.0 or value is not None:
            raise BookError(f"{account.member!r} is {status} and has no weight and no statistic")
    elif booked == "gram":
        if value is not None:
            raise BookError(f"rule {terms.rule} reads the Gram matrix; leave the statistics out")
    elif value is None or not 0 <= value < math.inf:
        raise BookError(
            f"statistic of {account.member!r} is {value}, must be a finite number ≥ 0; "
            "report a broken update as rejected"
        )


def _check_weights(terms: Terms, ok: Sequence[ReportRow]) -> None:
    """Refuse weights other than those of the terms, or with a mean other than 1."""
    if not ok:
        return
    kind = terms.weights.kind
    if kind == "reported":
        mean = math.fsum(report.weight for _, report in ok) / len(ok)
        if abs(mean - 1) > _TOLERANCE * len(ok):
            raise BookError(
                f"weights have the mean {mean:.6g}, must have the mean 1: "
                "give each update's share times the number of ok updates"
            )
        return
    expected = [1.0] * len(ok)
    if kind == "fixed":
        table = dict(zip(terms.members, terms.weights.values, strict=True))
        own = [table.get(a.member, table.get(a.label, 0.0)) for a, _ in ok]
        expected = [value * len(ok) / math.fsum(own) for value in own]
    for (account, report), right in zip(ok, expected, strict=True):
        if abs(report.weight - right) > _TOLERANCE * max(1.0, right):
            raise BookError(
                f"weight of {account.member!r} is {report.weight:.6g}, must be {right:.6g} "
                f'under weights.kind = "{kind}"'
            )
