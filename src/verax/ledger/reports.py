"""Reports matched to the book: whose they are, who is missing, whether they were posted before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from verax.ledger.engine import BookError
from verax.ledger.members import joining, member_account
from verax.ledger.names import check_name
from verax.ledger.round import Report, Row, round_inputs
from verax.ledger.state import State, Version
from verax.mechanism import Terms

__all__ = ["match_reports", "newcomers", "permuted", "refuse_other"]


def newcomers(
    state: State, version: Version, run: str, round_: int, reports: Sequence[Report]
) -> list[dict[str, Any]]:
    """Who reports and is unknown: joins an open federation, is refused by a closed one."""
    names = _unknown(state, reports)
    if not names:
        return []
    if version.terms.members:
        raise BookError(
            f"{names[0]!r} has not joined {state.name!r}, and its terms list their members; "
            "join it first"
        )
    joins: list[dict[str, Any]] = []
    grown = deepcopy(state)  # newcomers must not pass for each other either
    for name in sorted(set(names)):
        check_name("member", name)
        joins.append(joining(grown, name, name, round_, run))
        grown.apply(joins[-1] | {"sequence": grown.sequence + 1})
    return joins


def _unknown(state: State, reports: Sequence[Report]) -> list[str]:
    """Members that are known neither by id nor by label."""
    names = [report.member for report in reports if report.member not in state.by_member]
    if not names:
        return []
    labels = {account.label for account in state.accounts.values()}
    return [name for name in names if name not in labels]


def match_reports(
    state: State, version: Version, run: str, round_: int, reports: Sequence[Report]
) -> list[Row]:
    """Reports with their accounts, in the order of the content."""
    found: dict[int, Row] = {}
    accounts, known = state.accounts, state.by_member
    for report in reports:
        number = known.get(report.member) or member_account(state, report.member).number
        account = accounts[number]
        if number in found:
            raise BookError(f"{report.member!r} reports twice in round {round_}")
        if not account.belongs(run, round_):
            raise BookError(
                f"{report.member!r} is no member in round {round_} of run {run!r}: it joined "
                f"from round {account.from_round}"
                + (f" and left from {account.left_round}" if account.left_round else "")
            )
        found[number] = (account, report)
    if version.terms.members:
        _complete(state, version.terms, run, round_, found)
    return [found[number] for number in sorted(found)]


def _complete(state: State, terms: Terms, run: str, round_: int, found: dict[int, Row]) -> None:
    """In a closed federation exactly the listed members count; silence is `missing`."""
    listed: set[int] = set()
    for name in terms.members:
        try:
            account = state.account(name)
        except BookError:
            account = None
        if account is None or not account.belongs(run, round_):
            raise BookError(
                f"the terms list {name!r}, who is no member in round {round_}; "
                "join it, or change the terms"
            )
        listed.add(account.number)
        found.setdefault(account.number, (account, Report(account.member, "missing")))
    if len(listed) != len(terms.members):
        raise BookError("the terms list one member twice, by its id and by its label")
    for number, (account, _) in found.items():
        if number not in listed:
            raise BookError(f"{account.member!r} is not among the members that the terms list")


def permuted(gram: ArrayLike | None, rows: Sequence[Row], reports: Sequence[Report]) -> Any:
    """The Gram matrix in the order of the content instead of that of the reports."""
    if gram is None:
        return None
    matrix = np.asarray(gram, dtype=np.float64)
    place = {r.member: k for k, r in enumerate(r for r in reports if r.status == "ok")}
    if matrix.shape != (len(place), len(place)):
        return matrix  # refused further on, with the shape
    ok = [place[report.member] for _, report in rows if report.status == "ok"]
    return matrix[np.ix_(ok, ok)]


def refuse_other(
    state: State, stored: Mapping[str, Any], reports: Sequence[Report], gram: ArrayLike | None
) -> None:
    """Raise, with the difference, if the reports are not those of the stored round."""
    differences = [f"{name!r} is new" for name in _unknown(state, reports)]
    if not differences:
        terms = state.version_of(stored["terms"]).terms
        found = {
            account.number: (account, report)
            for report in reports
            for account in [state.account(report.member)]
        }
        if len(found) != len(reports):
            raise BookError(f"a member reports twice in round {stored['round']}")
        if terms.members:
            for number in stored["accounts"]:
                account = state.accounts[number]
                found.setdefault(number, (account, Report(account.member, "missing")))
        rows = [found[number] for number in sorted(found)]
        inputs = round_inputs(terms, rows, permuted(gram, rows, reports))
        differences = _differences(state, stored, inputs)
    if differences:
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise BookError(
            f"round {stored['round']} of run {stored['run']!r} is in the book with other content: "
            f"{'; '.join(differences[:3])}{more}. A correction is an entry of its own"
        )


def _differences(state: State, stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    result: list[str] = []
    old = {n: i for i, n in enumerate(stored["accounts"])}
    new = {n: i for i, n in enumerate(given["accounts"])}
    for number in sorted(old.keys() | new.keys()):
        name = state.accounts[number].member
        if number not in new:
            result.append(f"{name!r} is missing now")
        elif number not in old:
            result.append(f"{name!r} is new")
        else:
            for word, what, usual in (
                ("status", "statuses", "ok"),
                ("weight", "weights", 1.0),
                ("reason", "reasons", ""),
            ):
                before = stored[what].get(str(number), usual)
                now = given[what].get(str(number), usual)
                if before != now:
                    result.append(f"{word} of {name!r} is {before!r} in the book, {now!r} now")
            if stored["statistics"] is not None and given["statistics"] is not None:
                before, now = stored["statistics"][old[number]], given["statistics"][new[number]]
                if before != now:
                    result.append(f"statistic of {name!r} is {before!r} in the book, {now!r} now")
    if not result and stored["gram"] != given["gram"]:
        result.append("the Gram matrix differs")
    return result
