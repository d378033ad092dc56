"""Reports matched with accounts: whose they are, who is missing, what was posted before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from verax.ledger.engine import BookError
from verax.ledger.records import JoinRecord, RoundRecord
from verax.ledger.round import Models, Report, ReportRow, draft_round
from verax.ledger.state import FederationState, TermsVersion
from verax.mechanism import Terms


def new_members(
    state: FederationState,
    version: TermsVersion,
    run: str,
    round_: int,
    reports: Sequence[Report],
) -> list[JoinRecord]:
    """Join records for unknown members that report; a closed federation refuses them."""
    names = _unknown(state, reports)
    if names and version.terms.members:
        raise BookError(
            f"{names[0]!r} has not joined {state.name!r}, and its terms list their members; "
            "join it first"
        )
    first = len(state.accounts)
    return [
        JoinRecord(first + i, name, name, round_, run, None, None, None)
        for i, name in enumerate(sorted(set(names)))
    ]


def _unknown(state: FederationState, reports: Sequence[Report]) -> list[str]:
    """Names of reporting members that are neither an id nor a label."""
    names = [report.member for report in reports if report.member not in state.by_member]
    if not names:
        return []
    labels = {account.label for account in state.accounts.values()}
    return [name for name in names if name not in labels]


def match_reports(
    state: FederationState, version: TermsVersion, round_: int, reports: Sequence[Report]
) -> list[ReportRow]:
    """Reports with their accounts, by account number."""
    rows: dict[int, ReportRow] = {}
    for report in reports:
        number = state.by_member.get(report.member) or state.member_account(report.member).number
        if number in rows:
            raise BookError(f"{report.member!r} reports twice in round {round_}")
        rows[number] = (state.accounts[number], report)
    if version.terms.members:
        _add_missing(state, version.terms, round_, rows)
    return [rows[number] for number in sorted(rows)]


def _add_missing(
    state: FederationState, terms: Terms, round_: int, rows: dict[int, ReportRow]
) -> None:
    """In a closed federation exactly the listed members count; one without a report is missing."""
    listed: set[int] = set()
    for name in terms.members:
        try:
            account = state.account(name)
        except BookError:
            raise BookError(
                f"the terms list {name!r}, who is not a member in round {round_}; "
                "join it, or change the terms"
            ) from None
        listed.add(account.number)
        rows.setdefault(account.number, (account, Report(account.member, "missing")))
    if len(listed) != len(terms.members):
        raise BookError("the terms list one member twice, by its id and by its label")
    for number, (account, _) in rows.items():
        if number not in listed:
            raise BookError(f"{account.member!r} is not among the members that the terms list")


def ordered_gram(
    gram: ArrayLike | None, rows: Sequence[ReportRow], reports: Sequence[Report]
) -> Any:
    """The Gram matrix of the reports, put into the order of the rows."""
    if gram is None:
        return None
    matrix = np.asarray(gram, dtype=np.float64)
    position = {r.member: k for k, r in enumerate(r for r in reports if r.status == "ok")}
    if matrix.shape != (len(position), len(position)):
        return matrix  # `draft_round` refuses it and names the shape
    ok = [position[report.member] for _, report in rows if report.status == "ok"]
    return matrix[np.ix_(ok, ok)]


def refuse_difference(
    state: FederationState,
    stored: RoundRecord,
    reports: Sequence[Report],
    gram: ArrayLike | None,
    models: Models,
) -> None:
    """Raise an error that names the difference if a stored round has other reports."""
    differences = [f"{name!r} is new" for name in _unknown(state, reports)]
    if not differences:
        version = state.version_of(stored.terms)
        accounts = [state.account(report.member) for report in reports]
        rows = {a.number: (a, r) for a, r in zip(accounts, reports, strict=True)}
        if len(rows) != len(reports):
            raise BookError(f"a member reports twice in round {stored.round}")
        if version.terms.members:
            for number in stored.accounts:
                account = state.accounts[number]
                rows.setdefault(number, (account, Report(account.member, "missing")))
        ordered = [rows[number] for number in sorted(rows)]
        matrix = ordered_gram(gram, ordered, reports)
        given = draft_round(version, stored.run, stored.round, ordered, matrix, models)
        differences = _differences(state, stored, given)
    if differences:
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise BookError(
            f"round {stored.round} of run {stored.run!r} is in the book with other content: "
            f"{'; '.join(differences[:3])}{more}. Book a correction instead"
        )


def _differences(state: FederationState, stored: RoundRecord, given: RoundRecord) -> list[str]:
    result: list[str] = []
    old, new = by_account(stored), by_account(given)
    for number in sorted(old.keys() | new.keys()):
        name = state.accounts[number].member
        if number not in new:
            result.append(f"{name!r} is missing now")
        elif number not in old:
            result.append(f"{name!r} is new")
        else:
            result += [
                f"{what} of {name!r} is {before!r} in the book, {new[number][what]!r} now"
                for what, before in old[number].items()
                if before != new[number][what]
            ]
    if not result and stored.gram != given.gram:
        result.append("the Gram matrix differs")
    for name in ("model_before", "model_after"):
        if getattr(stored, name) != getattr(given, name):
            result.append(f"{name} differs")
    return result


def by_account(record: RoundRecord) -> dict[int, dict[str, Any]]:
    """The fields of the report of each account in a round's record."""
    statistics = record.statistics or (None,) * len(record.accounts)
    return {
        number: {
            "status": record.statuses.get(number, "ok"),
            "weight": record.weights.get(number, 1.0),
            "reason": record.reasons.get(number, ""),
            "statistic": statistic,
            "examples": record.examples.get(number),
            "statement": record.statements.get(number),
        }
        for number, statistic in zip(record.accounts, statistics, strict=True)
    }
