"""What a viewer sees of one account: its statement, with the numbers of every charge; charts."""

from __future__ import annotations

import math
from typing import Any

from verax.console.follow import Followed, Library, allowances
from verax.console.history import norms_of, thinned
from verax.console.viewer import Viewer
from verax.console.views import named
from verax.ledger.records import Record, RoundRecord

#: Rows of a statement on one page.
PAGE = 50


def statement(viewer: Viewer, library: Library, account: int, *, page: int = 1) -> dict[str, Any]:
    """One page of a member's statement, the newest record first."""
    followed = viewer.federation
    series = followed.series.get(account)
    count = 0 if series is None else len(series.sequences)
    pages = max(1, math.ceil(count / PAGE))
    page = min(max(page, 1), pages)
    lines: list[dict[str, Any]] = []
    if series is not None:
        end = count - (page - 1) * PAGE
        for i in range(end - 1, max(end - PAGE, 0) - 1, -1):
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
    price = body.price[0]
    if len(body.price) > 1:
        listed = [each.number for each in state.listed(terms)]
        price = body.price[listed.index(account)]
    status = body.statuses.get(account, "ok")
    payment = body.payments[place]
    kappa = allowances(state, terms, body).get(account, 0.0)
    measured = None if body.statistics is None else body.statistics[place]
    # For rules that read a statistic the charge is a line of arithmetic; a Gram matrix is not.
    levy = None if measured is None else price * measured
    return line | {
        "run": body.run,
        "round": body.round,
        "status": status,
        "note": body.reasons.get(account, ""),
        "action": "" if status == "ok" else getattr(terms.policy, status),
        "rule": body.rule,
        "statistic": norms_of(body).get(account) if measured is None else measured,
        "weight": body.weights.get(account, 1.0),
        "price": price,
        "levy": levy,
        "others": None if levy is None or body.statuses else levy - kappa - payment,
        "allowance": kappa,
        "payment": payment,
        "terms": body.terms,
    }


def series(viewer: Viewer, account: int) -> dict[str, Any]:
    """Balance and squared norms of an account over the records, thinned for a chart."""
    followed = viewer.federation
    found = followed.series.get(account)
    unit = 10.0**followed.state.scale
    table: dict[str, Any] = {"currency": followed.state.currency, "balance": [], "norm": []}
    if found is None:
        return table
    owed = [balance / unit for balance in found.balances]
    table["balance"] = [[found.sequences[i], owed[i]] for i in thinned(owed)]
    if viewer.sees_norms(account):
        known = [i for i, norm in enumerate(found.norms) if not math.isnan(norm)]
        values = [found.norms[i] for i in known]
        table["norm"] = [[found.sequences[known[i]], values[i]] for i in thinned(values)]
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
    }
