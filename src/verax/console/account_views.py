"""What a viewer sees of one account: its statement, with the numbers of every charge; charts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.console.follow import Followed, Library, allowances, participants
from verax.console.history import norms_of, thinned
from verax.console.viewer import Viewer
from verax.console.views import named
from verax.ledger.records import Record, RoundRecord
from verax.ledger.state import FederationState
from verax.mechanism import SpotAudit, SquaredNorm, Terms

#: Rows of a statement on one page.
PAGE = 50
#: The rules that measure a member by the booked statistic itself.
_PLAIN_RULES = (SquaredNorm.name, SpotAudit.name)


def statement(
    viewer: Viewer, library: Library, account: int, *, page: int = 1, most: int = PAGE
) -> dict[str, Any]:
    """One page of a member's statement, at most its first lines, the newest record first."""
    followed = viewer.federation
    series = followed.series.get(account)
    count = 0 if series is None else len(series.sequences)
    pages = max(1, math.ceil(count / PAGE))
    page = min(max(page, 1), pages)
    lines: list[dict[str, Any]] = []
    if series is not None:
        end = count - (page - 1) * PAGE
        for i in range(end - 1, max(end - most, 0) - 1, -1):
            record = library.record(followed.name, series.sequences[i])
            lines.append(_statement_line(followed, record, account, series.balances[i]))
    who = followed.state.accounts[account]
    balance = followed.state.balances.get(account, 0)
    return named(who) | {
        "balance": balance,
        "limit": followed.state.limit(account),
        "charged": 0 if series is None else series.charged,
        "promised": 0.0 if series is None else series.promised,
        "records": count,
        "page": page,
        "pages": pages,
        "lines": lines,
    }


def _statement_line(
    followed: Followed, record: Record, account: int, balance: int
) -> dict[str, Any]:
    body, amount = record.body, dict(record.entries)[account]
    line: dict[str, Any] = {
        "record": record.sequence,
        "hash": record.hash,
        "time": record.time,
        "kind": record.kind,
        "amount": amount,
        "balance": balance,
    }
    if not isinstance(body, RoundRecord):
        return line | {"note": getattr(body, "reason", "")}
    place, state = body.accounts.index(account), followed.state
    terms = state.version_of(body.terms).terms
    status = body.statuses.get(account, "ok")
    statistic = norms_of(body).get(account)
    if statistic is None and body.statistics is not None:
        statistic = body.statistics[place]
    levied = levies(state, terms, body)
    own = levied.pop(account, None) if status == "ok" else None
    fees = _fees(terms, body)
    return line | {
        "run": body.run,
        "round": body.round,
        "status": status,
        "note": body.reasons.get(account, ""),
        "action": "" if status == "ok" else getattr(terms.policy, status),
        "rule": body.rule,
        "statistic": statistic,
        "weight": body.weights.get(account, 1.0),
        "price": _prices(state, terms, body)[account],
        "levy": own,
        "others": None if own is None else math.fsum(levied.values()) / max(len(levied), 1),
        "allowance": allowances(state, terms, body).get(account, 0.0),
        "fees": 0.0 if status != "ok" else fees,
        "payment": body.payments[place],
        "terms": body.terms,
    }


def levies(state: FederationState, terms: Terms, body: RoundRecord) -> dict[int, float]:
    """What the participants of a round are levied, C_i n_i, by account, from the booked statistics.

    Whoever the policy charges like the largest takes part with the largest statistic of the round.
    Empty if the rule reads something else than a norm, or if too few took part for a charge.
    """
    if body.statistics is None or body.rule not in _PLAIN_RULES:
        return {}
    known = dict(zip(body.accounts, body.statistics, strict=True))
    largest = max((value for value in known.values() if value is not None), default=0.0)
    prices = _prices(state, terms, body)
    found: dict[int, float] = {}
    for number in participants(terms, body):
        value = known[number]
        found[number] = prices[number] * (largest if value is None else value)
    return found


def _prices(state: FederationState, terms: Terms, body: RoundRecord) -> dict[int, float]:
    """The price of each account in a round."""
    if len(body.price) == 1:
        return dict.fromkeys(body.accounts, body.price[0])
    return dict(zip((each.number for each in state.listed(terms)), body.price, strict=True))


def _fees(terms: Terms, body: RoundRecord) -> float:
    """What a member whose update counted receives of the flat fees of the others."""
    fined = [s for s in body.statuses.values() if getattr(terms.policy, s) == "flat-fee"]
    ok = len(body.accounts) - len(body.statuses)
    return len(fined) * terms.policy.fee / max(ok, 1)


def series(viewer: Viewer, account: int) -> dict[str, Any]:
    """Balance and squared norms of an account over the records, thinned for a chart."""
    followed = viewer.federation
    found = followed.series.get(account)
    unit = 10.0**followed.state.scale
    table: dict[str, Any] = {"currency": followed.state.currency, "balance": [], "norm": []}
    if found is None:
        return table
    owed = np.array(found.balances, dtype=np.float64) / unit
    table["balance"] = [[found.sequences[i], float(owed[i])] for i in thinned(owed)]
    if viewer.sees_norms(account):
        norms = np.array(found.norms)
        known = np.flatnonzero(~np.isnan(norms))
        chosen = known[thinned(norms[known])].tolist()
        table["norm"] = [[found.sequences[i], found.norms[i]] for i in chosen]
    return table


def price_now(viewer: Viewer) -> dict[str, Any]:
    """What the newest terms cost the viewer in the next round: price and allowance."""
    followed = viewer.federation
    terms = followed.terms
    last = followed.rounds[-1].round if followed.rounds else 0
    ahead = last + 1 if not terms.price.rounds else min(last + 1, terms.price.rounds)
    price, kappa = terms.price.at(ahead).tolist(), terms.allowances_at(ahead)
    listed = [each.number for each in followed.state.listed(terms)] if terms.members else []
    place = listed.index(viewer.account) if viewer.account in listed else 0
    return {
        "round": ahead,
        "price": price[place if len(price) > 1 else 0],
        "allowance": None if kappa is None else float(kappa[place]),
        "rounds": terms.price.rounds,
        "allowance_whole": _allowance_of_a_run(terms, place),
    }


def _allowance_of_a_run(terms: Terms, place: int) -> float | None:
    """The allowances of a whole run: what the audit expects the member to pay in it."""
    rounds = terms.price.rounds
    if not rounds or not terms.allowances:
        return None
    if len(terms.allowances) == 1:
        return rounds * terms.allowances[0][place]
    lengths = np.diff([*terms.price.starts, rounds + 1])
    return float(np.dot(lengths, [row[place] for row in terms.allowances]))
