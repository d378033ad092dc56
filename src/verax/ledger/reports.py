"""Reports matched with accounts: whose they are, who is missing, what was posted before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from verax.ledger.engine import BookError
from verax.ledger.names import check_name
from verax.ledger.round import Report, ReportRow, round_inputs
from verax.ledger.state import FederationState, TermsVersion, join_record
from verax.mechanism import Terms


def new_members(
    state: FederationState,
    version: TermsVersion,
    run: str,
    round_: int,
    reports: Sequence[Report],
) -> list[dict[str, Any]]:
    """Join records for unknown members that report; a closed federation refuses them."""
    names = _unknown(state, reports)
    if not names:
        return []
    if version.terms.members:
        raise BookError(
            f"{names[0]!r} has not joined {state.name!r}, and its terms list their members; "
            "join it first"
        )
    joins: list[dict[str, Any]] = []
    after = deepcopy(state)  # new members must not have names that look like each other's either
    for name in sorted(set(names)):
        check_name("member", name)
        joins.append(join_record(after, name, name, round_, run))
        after.apply(joins[-1] | {"sequence": after.sequence + 1})
    return joins


def _unknown(state: FederationState, reports: Sequence[Report]) -> list[str]:
    """Names of reporting members that are neither an id nor a label."""
    names = [report.member for report in reports if report.member not in state.by_member]
    if not names:
        return []
    labels = {account.label for account in state.accounts.values()}
    return [name for name in names if name not in labels]


def match_reports(
    state: FederationState,
    version: TermsVersion,
    run: str,
    round_: int,
    reports: Sequence[Report],
) -> list[ReportRow]:
    """Reports with their accounts, by account number."""
    rows: dict[int, ReportRow] = {}
    for report in reports:
        number = state.by_member.get(report.member) or state.member_account(report.member).number
        account = state.accounts[number]
        if number in rows:
            raise BookError(f"{report.member!r} reports twice in round {round_}")
        if not account.may_take_part(run, round_):
            raise BookError(
                f"{report.member!r} is not a member in round {round_} of run {run!r}: it joined "
                f"from round {account.from_round} on"
                + (f" and left from round {account.left_round} on" if account.left_round else "")
            )
        rows[number] = (account, report)
    if version.terms.members:
        _add_missing(state, version.terms, run, round_, rows)
    return [rows[number] for number in sorted(rows)]


def _add_missing(
    state: FederationState, terms: Terms, run: str, round_: int, rows: dict[int, ReportRow]
) -> None:
    """In a closed federation exactly the listed members count; one without a report is missing."""
    listed: set[int] = set()
    for name in terms.members:
        try:
            account = state.account(name)
        except BookError:
            account = None
        if account is None or not account.may_take_part(run, round_):
            raise BookError(
                f"the terms list {name!r}, who is not a member in round {round_}; "
                "join it, or change the terms"
            )
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
        return matrix  # `round_inputs` refuses it and names the shape
    ok = [position[report.member] for _, report in rows if report.status == "ok"]
    return matrix[np.ix_(ok, ok)]


def refuse_difference(
    state: FederationState,
    stored: Mapping[str, Any],
    reports: Sequence[Report],
    gram: ArrayLike | None,
) -> None:
    """Raise an error that names the difference if a stored round has other reports."""
    differences = [f"{name!r} is new" for name in _unknown(state, reports)]
    if not differences:
        terms = state.version_of(stored["terms"]).terms
        accounts = [state.account(report.member) for report in reports]
        rows = {a.number: (a, r) for a, r in zip(accounts, reports, strict=True)}
        if len(rows) != len(reports):
            raise BookError(f"a member reports twice in round {stored['round']}")
        if terms.members:
            for number in stored["accounts"]:
                account = state.accounts[number]
                rows.setdefault(number, (account, Report(account.member, "missing")))
        ordered = [rows[number] for number in sorted(rows)]
        inputs = round_inputs(terms, ordered, ordered_gram(gram, ordered, reports))
        differences = _differences(state, stored, inputs)
    if differences:
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise BookError(
            f"round {stored['round']} of run {stored['run']!r} is in the book with other content: "
            f"{'; '.join(differences[:3])}{more}. Book a correction instead"
        )


def _differences(
    state: FederationState, stored: Mapping[str, Any], given: Mapping[str, Any]
) -> list[str]:
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
    if not result and stored["gram"] != given["gram"]:
        result.append("the Gram matrix differs")
    return result


def by_account(content: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The fields of the report of each account in a round's record."""
    accounts = content["accounts"]
    statistics = content["statistics"] or [None] * len(accounts)
    return {
        number: {
            "status": content["statuses"].get(str(number), "ok"),
            "weight": content["weights"].get(str(number), 1.0),
            "reason": content["reasons"].get(str(number), ""),
            "statistic": statistic,
        }
        for number, statistic in zip(accounts, statistics, strict=True)
    }
