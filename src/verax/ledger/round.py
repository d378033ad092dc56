"""A round's record: the reports as columns, and what the terms charge for them.

A record holds everything that anybody needs to compute the charge again: statistics, weights,
statuses, price, rule and the hash of the terms; then the real payments and the amounts in minor
units made of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from verax.ledger.engine import BookError
from verax.ledger.forms import MAX_REASON, SignedStatement
from verax.ledger.money import to_units
from verax.ledger.records import RoundRecord
from verax.ledger.state import Account, FederationState, TermsVersion
from verax.mechanism import BUILT_IN, Statistics, Status, Terms, charge, rule_named, spread

_STATUSES: tuple[str, ...] = get_args(Status)
_BUILT_IN = {rule.name for rule in BUILT_IN}
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Report:
    """What happened to one member's update in a round.

    Attributes:
        member: the member's public key or id, or its label.
        status: ok, missing, rejected or error.
        statistic: what the rule reads, of the update *as it counted in the aggregate*: its squared
            norm (or its squared distance from the recomputed update) times the square of its
            effective weight (`verax.mechanism.weights`). Left out for rules on the Gram matrix and
            for members that are not ok.
        weight: the update's share of the aggregate times the number of ok updates; 1 if all updates
            have the same weight.
        reason: why the status is not ok, in a few words.
        examples: the example count that decided the weight; None if something else did.
        statement: what the member signed; None if nothing.
    """

    member: str
    status: Status = "ok"
    statistic: float | None = None
    weight: float = 1.0
    reason: str = ""
    examples: int | None = None
    statement: SignedStatement | None = None


class Models(NamedTuple):
    """The digests of the model before and after a round; None if unknown."""

    before: str | None = None
    after: str | None = None


UNKNOWN_MODELS = Models()

#: A report with the account of its member.
ReportRow = tuple[Account, Report]


def booked_statistic(rule: str) -> str:
    """What a book records for a rule; distances follow from the Gram matrix."""
    reads = rule_named(rule).reads
    return "gram" if reads in ("gram", "distances") else reads


def draft_round(
    version: TermsVersion,
    run: str,
    round_: int,
    rows: Sequence[ReportRow],
    gram: Any,
    models: Models,
) -> RoundRecord:
    """The record of a round before it is charged.

    Args:
        version: the terms of the round.
        run: which training run.
        round_: t.
        rows: the reports with their accounts, by account number.
        gram: ⟨m_i, m_j⟩ of the ok reports in the order of the rows, for the rules that read it.
        models: the digests of the model before and after.
    """
    terms = version.terms
    reads = booked_statistic(terms.rule)
    for account, report in rows:
        _check_report(terms, reads, account, report)
    ok = sum(report.status == "ok" for _, report in rows)
    if gram is not None and reads != "gram":
        raise BookError(f"rule {terms.rule} reads no Gram matrix; leave it out")
    if gram is None and reads == "gram" and ok:
        raise BookError(f"rule {terms.rule} needs the Gram matrix of the {ok} ok updates")
    matrix = np.asarray([] if gram is None else gram, dtype=np.float64)
    if reads == "gram" and matrix.shape != (ok, ok) and (ok or matrix.size):
        raise BookError(
            f"the Gram matrix has the shape {matrix.shape}, must be ({ok}, {ok}): the ok updates"
        )
    values = [None if r.statistic is None else float(r.statistic) for _, r in rows]
    # Most members are ok, have the weight 1 and no reason; only the others are recorded as such.
    others = [(a.number, r) for a, r in rows if r.status != "ok" or r.weight != 1.0 or r.reason]
    return RoundRecord(
        run=run,
        round=round_,
        accounts=tuple(account.number for account, _ in rows),
        reads=reads,
        statistics=None if reads == "gram" else tuple(values),
        gram=tuple(map(tuple, matrix.tolist())) if reads == "gram" else None,
        statuses={n: r.status for n, r in others if r.status != "ok"},
        weights={n: float(r.weight) for n, r in others if r.weight != 1.0},
        reasons={n: _shortened(r.reason) for n, r in others if r.reason},
        model_before=models.before,
        model_after=models.after,
        examples={a.number: r.examples for a, r in rows if r.examples is not None},
        statements={a.number: r.statement for a, r in rows if r.statement is not None},
        terms=version.hash,
        rule=terms.rule,
        price=tuple(terms.price.at(round_).tolist()),
        payments=(),
        amounts=(),
    )


def charged(state: FederationState, terms: Terms, draft: RoundRecord) -> RoundRecord:
    """The record with payments and amounts."""
    payments = payments_of(state, terms, draft)
    units, _ = to_units(payments, terms.scale, state.carried_of(draft.accounts))
    return replace(draft, payments=tuple(payments.tolist()), amounts=tuple(units))


def payments_of(state: FederationState, terms: Terms, record: RoundRecord) -> NDArray[np.float64]:
    """The real payments, in the order of the accounts."""
    accounts = record.accounts
    if not accounts:
        return np.zeros(0)
    order = np.arange(len(accounts))
    if terms.members:  # prices and allowances are in the order in which the terms list the members
        position = {number: i for i, number in enumerate(accounts)}
        order = np.array([position[account.number] for account in state.listed(terms)])
    statuses: Any = [record.statuses.get(accounts[i], "ok") for i in order.tolist()]
    if record.gram is not None:
        ok = [i for i, number in enumerate(accounts) if number not in record.statuses]
        gram = np.reshape(record.gram, (len(ok), len(ok)))  # also where there is no row
        dense, _ = spread(gram, ok, len(accounts))
        statistics = Statistics.of_gram(dense[np.ix_(order, order)])
    else:
        values = np.array(record.statistics, dtype=np.float64)[order]
        statistics = Statistics(**{record.reads: values})
    payments = np.empty(len(accounts))
    # Adding 0.0 turns −0.0 into 0.0.
    payments[order] = charge(terms, record.round, statistics, statuses).amounts + 0.0
    return payments


def check_round(state: FederationState, record: RoundRecord) -> TermsVersion:
    """Refuse a round whose key, terms, participants or inputs are wrong; returns its terms."""
    name = f"round {record.round} of run {record.run!r}"
    if (record.run, record.round) in state.rounds:
        raise BookError(f"{name} is in the book already")
    version = state.version(record.round, record.run)
    terms = version.terms
    if record.terms != version.hash or record.rule != terms.rule:
        raise BookError(f"{name} is charged by other terms than those that apply to it")
    price = terms.price.at(record.round).tolist()
    if len(price) != len(record.price) or not all(
        math.isclose(a, b, rel_tol=1e-12) for a, b in zip(price, record.price, strict=True)
    ):
        raise BookError(f"{name} has the price {record.price}, the terms say {price}")
    if len(record.payments) != len(record.accounts):
        raise BookError(f"{name} must have as many payments as accounts")
    _check_participants(state, terms, record)
    _check_inputs(terms, record)
    _check_weights(state, terms, record)
    return version


def check_charge(
    state: FederationState, terms: Terms, record: RoundRecord, rules: Collection[str] = ()
) -> None:
    """Refuse a round whose payments or amounts do not follow from its inputs.

    Payments by a rule that is neither built in nor among `rules` are not recomputed.
    """
    name = f"round {record.round} of run {record.run!r}"
    booked = np.array(record.payments)
    if record.rule in _BUILT_IN or record.rule in rules:
        right = payments_of(state, terms, record)
        inputs = [x for x in record.statistics or () if x is not None]
        inputs += [40 * row[i] for i, row in enumerate(record.gram or ())]
        rounding = 1e-12 * max(record.price, default=0.0) * max(inputs, default=0.0)
        most = _TOLERANCE * float(np.max(np.abs(right), initial=0.0)) + rounding
        if not np.max(np.abs(booked - right), initial=0.0) <= most:
            raise BookError(f"{name}: the payments do not follow from inputs and terms")
    for number, payment in zip(record.accounts, record.payments, strict=True):
        status = record.statuses.get(number, "ok")
        if payment and status != "ok" and getattr(terms.policy, status) == "excuse":
            raise BookError(f"{name}: a member that is excused pays {payment}")
    units, _ = to_units(booked, terms.scale, state.carried_of(record.accounts))
    if tuple(units) != record.amounts:
        raise BookError(f"{name}: the amounts do not follow from the payments")


def _check_participants(state: FederationState, terms: Terms, record: RoundRecord) -> None:
    """Participants must be known, ascending, members at the time, and those the terms list."""
    accounts = record.accounts
    if any(a >= b for a, b in pairwise(accounts)):
        raise BookError("the accounts of a round must be in ascending order")
    for number in accounts:
        account = state.accounts.get(number)
        if account is None:
            raise BookError(f"account {number} does not exist")
        if not account.may_take_part(record.run, record.round):
            raise BookError(
                f"{account.member!r} is not a member in round {record.round} of run "
                f"{record.run!r}: it joined from round {account.from_round} on"
                + (f" and left from round {account.left_round} on" if account.left_round else "")
            )
    if terms.members:
        listed = [account.number for account in state.listed(terms)]
        if sorted(listed) != list(accounts):
            raise BookError("the participants are not exactly the members that the terms list")


def _check_inputs(terms: Terms, record: RoundRecord) -> None:
    """Exactly what the rule reads must be recorded: a statistic each, or the Gram matrix."""
    known = set(record.accounts)
    for table in (record.statuses, record.weights, record.reasons, record.examples):
        if table.keys() - known:
            raise BookError("a status, weight, reason or count belongs to nobody in the round")
    if (record.weights.keys() | record.examples.keys()) & record.statuses.keys():
        raise BookError("a member that is not ok has a weight or an example count")
    if terms.rule in _BUILT_IN and record.reads != booked_statistic(terms.rule):
        raise BookError(f"rule {terms.rule} cannot read {record.reads}")
    if (record.reads == "gram") != (record.gram is not None) or (record.reads == "gram") != (
        record.statistics is None
    ):
        raise BookError(f"rule {terms.rule} needs other inputs")
    if record.statistics is not None:
        given = record.statistics
        if len(given) != len(record.accounts) or any(
            (value is None) != (number in record.statuses)
            for number, value in zip(record.accounts, given, strict=True)
        ):
            raise BookError("every member that is ok must have a statistic, and nobody else")
    if record.gram is not None:
        ok = len(record.accounts) - len(record.statuses)
        if len(record.gram) != ok or any(len(row) != ok for row in record.gram):
            raise BookError(f"the Gram matrix must have {ok} rows and columns")
        gram = np.reshape(record.gram, (ok, ok))
        largest = float(np.max(np.diagonal(gram), initial=0.0))
        if np.any(np.diagonal(gram) < 0) or np.any(np.abs(gram - gram.T) > 1e-6 * largest):
            raise BookError("the Gram matrix is not symmetric with a diagonal ≥ 0")


def _check_weights(state: FederationState, terms: Terms, record: RoundRecord) -> None:
    """Weights must be those that the terms fix; reported weights must have the mean 1."""
    kind = terms.weights.kind
    ok = [number for number in record.accounts if number not in record.statuses]
    if record.examples:
        _check_examples(terms, record, ok)
    if not ok or (kind != "fixed" and not record.weights):
        return
    weights = [record.weights.get(number, 1.0) for number in ok]
    if kind == "reported":
        mean = math.fsum(weights) / len(ok)
        if abs(mean - 1) > _TOLERANCE * len(ok):
            raise BookError(
                f"weights have the mean {mean:.6g}, must have the mean 1: "
                "give each update's share times the number of ok updates"
            )
        return
    expected = [1.0] * len(ok)
    if kind == "fixed" and len(terms.weights.values) > 1:
        listed = zip(state.listed(terms), terms.weights.values, strict=True)
        table = {account.number: value for account, value in listed}
        own = [table[number] for number in ok]
        expected = [value * len(ok) / math.fsum(own) for value in own]
    for number, weight, right in zip(ok, weights, expected, strict=True):
        if abs(weight - right) > _TOLERANCE * max(1.0, right):
            raise BookError(
                f"weight of {state.accounts[number].member!r} is {weight:.6g}, must be "
                f'{right:.6g} under weights.kind = "{kind}"'
            )


def _check_examples(terms: Terms, record: RoundRecord, ok: list[int]) -> None:
    """Where example counts are booked, the weights follow from them: N c_i / Σ c_j."""
    limits, counts = terms.weights, record.examples
    if limits.kind != "reported" or counts.keys() != set(ok):
        raise BookError("all ok members must have an example count, or nobody")
    if min(counts.values()) < limits.fewest or max(counts.values()) > limits.most:
        raise BookError(f"an example count is outside {limits.fewest} … {limits.most} of the terms")
    total = sum(counts.values())
    for number in ok:
        right = counts[number] * len(ok) / total
        if not math.isclose(record.weights.get(number, 1.0), right, rel_tol=_TOLERANCE):
            raise BookError(f"the weight of account {number} must be {right:.6g} by its examples")


def _check_report(terms: Terms, reads: str, account: Account, report: Report) -> None:
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
    elif reads == "gram":
        if value is not None:
            raise BookError(f"rule {terms.rule} reads the Gram matrix; leave the statistics out")
    elif value is None or not 0 <= value < math.inf:
        raise BookError(
            f"statistic of {account.member!r} is {value}, must be a finite number ≥ 0; "
            "report a broken update as rejected"
        )


def _shortened(reason: str) -> str:
    """A reason that fits into a record; it may be any error message, so it is cut, not refused."""
    return reason[:MAX_REASON].encode("utf-8", "replace").decode()
