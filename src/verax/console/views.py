"""What a viewer sees of a federation, as plain values: pages and API show exactly these.

Every function takes the viewer, and whatever is not the viewer's is None here, before a template or
a serialiser can meet it.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.console.follow import Followed, Library
from verax.console.history import RoundRow, RunTotal, norms_of
from verax.console.viewer import Viewer
from verax.ledger.notes import WITNESS, Note, PublicKey
from verax.ledger.records import RoundRecord
from verax.ledger.settlement import settle
from verax.ledger.state import Account


def federation_facts(viewer: Viewer) -> dict[str, Any]:
    """What every member may know."""
    followed = viewer.federation
    state, terms = followed.state, followed.terms
    last = followed.rounds[-1] if followed.rounds else None
    return {
        "id": followed.key,
        "name": followed.name,
        "currency": state.currency,
        "scale": state.scale,
        "records": state.sequence,
        "hash": state.hash,
        "members": len(followed.members),
        "rounds": len(followed.rounds),
        "runs": len(followed.runs),
        "last_round": None if last is None else _round_facts(last),
        "rule": terms.rule,
        "openness": {what: shown(followed, what) for what in ("amounts", "norms")},
        "problem": followed.problem if viewer.is_operator else bool(followed.problem),
    }


def shown(followed: Followed, what: str) -> str:
    """Whose amounts or norms members see: own or all."""
    return "all" if followed.shows_all(what) else "own"


def _round_facts(row: RoundRow) -> dict[str, Any]:
    return {
        "record": row.sequence,
        "run": row.run,
        "round": row.round,
        "time": row.time,
        "asked": row.asked,
        "counted": row.counted,
    }


def round_details(viewer: Viewer, library: Library, row: RoundRow) -> dict[str, Any]:
    """A round with a line per member; members see their own line unless the terms say more."""
    followed = viewer.federation
    body = library.record(followed.name, row.sequence).body
    assert isinstance(body, RoundRecord)
    norms = norms_of(body)
    audited = followed.state.version_of(body.terms).terms.audited
    lines: list[dict[str, Any]] = []
    for number, amount in zip(body.accounts, body.amounts, strict=True):
        sees_norm, sees_amount = viewer.sees_norms(number), viewer.sees_amounts(number)
        if not (sees_norm or sees_amount):
            continue
        lines.append(
            named(followed.state.accounts[number])
            | {
                "status": body.statuses.get(number, "ok"),
                "reason": body.reasons.get(number, "") if sees_norm else "",
                "norm": norms.get(number) if sees_norm else None,
                "outside": sees_norm and number in row.outside,
                "alarm": row.alarms.get(number, "") if sees_norm else "",
                "amount": amount if sees_amount else None,
            }
        )
    return _round_facts(row) | {
        "band": None if audited is None else list(audited.band(body.round)),
        "lines": lines,
    }


def rounds(
    viewer: Viewer, library: Library, *, before: int | None = None, limit: int = 10, run: str = ""
) -> list[dict[str, Any]]:
    """The newest rounds first, at most `limit`: those before a record, and of one run if given."""
    chosen: list[RoundRow] = []
    for row in reversed(viewer.federation.rounds):
        if (before is None or row.sequence < before) and run in ("", row.run):
            chosen.append(row)
        if len(chosen) == limit:
            break
    return [round_details(viewer, library, row) for row in chosen]


def alarms(viewer: Viewer, most: int = 20) -> list[dict[str, Any]]:
    """The newest alarms and norms outside the audited band, of accounts whose norms are shown."""
    found: list[dict[str, Any]] = []
    followed, account = viewer.federation, viewer.account
    marked = followed.marked
    if account is not None and not followed.shows_all("norms"):
        marked = followed.series[account].marked if account in followed.series else []
    for row in reversed(marked):
        for number in sorted(row.marked):
            if viewer.sees_norms(number):
                words = row.alarms.get(number, "a squared norm outside the audited band")
                who = named(followed.state.accounts[number])
                found.append(_round_facts(row) | who | {"message": words})
        if len(found) >= most:
            break
    return found[:most]


def balances(viewer: Viewer, search: str = "") -> list[dict[str, Any]]:
    """Members with balance and limit; of others than the viewer only what the terms open."""
    followed, wanted = viewer.federation, search.strip().casefold()
    rows: list[dict[str, Any]] = []
    for account in followed.members:
        if wanted and wanted not in f"{account.member}\n{account.label}".casefold():
            continue
        limit = followed.state.limit(account.number)
        balance = followed.state.balances.get(account.number, 0)
        visible = viewer.sees_amounts(account.number)
        rows.append(
            named(account)
            | {
                "balance": balance if visible else None,
                "limit": limit if visible else None,
                "over": visible and limit is not None and balance > limit,
                "left": account.left_round,
                "rounds": len(followed.series[account.number].sequences)
                if visible and account.number in followed.series
                else None,
            }
        )
    return rows


def named(account: Account) -> dict[str, Any]:
    """An account's number and names."""
    return {"account": account.number, "member": account.member, "label": account.label}


def norms_over_rounds(viewer: Viewer, most: int = 200) -> dict[str, Any]:
    """Squared norms of the last rounds by member, with the audited band."""
    followed = viewer.federation
    rows = followed.rounds[-most:]
    audited = followed.terms.audited
    places = {row.sequence: i for i, row in enumerate(rows)}
    members: list[dict[str, Any]] = []
    for account in followed.members:
        found = followed.series.get(account.number)
        if found is None or not viewer.sees_norms(account.number):
            continue
        values: list[float | None] = [None] * len(rows)
        for i in range(len(found.sequences) - 1, -1, -1):
            if not rows or found.sequences[i] < rows[0].sequence:
                break
            place = places.get(found.sequences[i])
            if place is not None and not math.isnan(found.norms[i]):
                values[place] = found.norms[i]
        members.append(named(account) | {"norms": values})
    return {
        "rounds": [{"run": row.run, "round": row.round} for row in rows],
        "band": [None if audited is None else list(audited.band(row.round)) for row in rows],
        "members": members,
    }


def terms_versions(viewer: Viewer) -> list[dict[str, Any]]:
    """All versions of the terms, the newest first; they are what members agreed on."""
    return [
        {
            "record": version.sequence,
            "from_round": version.from_round,
            "hash": version.hash,
            "text": version.terms.to_toml(),
            "terms": version.terms,
        }
        for version in reversed(viewer.federation.state.versions)
    ]


def settlement(viewer: Viewer) -> dict[str, Any]:
    """The transfers that would bring all balances to zero."""
    state = viewer.federation.state
    proposed = settle(state.balances_by_member())
    return {
        "record": state.sequence,
        "fewest": proposed.fewest,
        "currency": state.currency,
        "scale": state.scale,
        "transfers": [
            {
                "payer": each.payer,
                "payer_label": state.account(each.payer).label,
                "receiver": each.receiver,
                "receiver_label": state.account(each.receiver).label,
                "amount": each.amount,
            }
            for each in proposed.transfers
        ],
    }


def tree_head(viewer: Viewer) -> dict[str, Any]:
    """Size, last hash and root of the book: two members who see the same see the same book."""
    state = viewer.federation.state
    return {
        "origin": state.origin,
        "records": state.sequence,
        "hash": state.hash,
        "root": b64encode(state.root_at(state.sequence)).decode(),
    }


def witnesses(viewer: Viewer) -> list[dict[str, Any]]:
    """Every checkpoint in the book with the witnesses of the terms that signed it, newest first."""
    followed = viewer.federation
    keys: Sequence[str] = followed.state.changes.witnesses
    found: list[dict[str, Any]] = []
    for sequence, text in reversed(followed.checkpoints):
        note = Note.parse(text)
        signed = [
            key.partition("+")[0]
            for key in keys
            if note.cosigned_at(PublicKey.parse(key, WITNESS)) is not None
        ]
        found.append({"record": sequence, "size": note.checkpoint.size, "signed": signed})
    return found


def with_terms_as_text(versions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Versions of the terms for JSON."""
    return [{key: row[key] for key in row if key != "terms"} for row in versions]


def comparison(viewer: Viewer, audit: dict[str, Any]) -> list[dict[str, Any]]:
    """What the audit predicted each honest member to pay, beside what the newest run charged."""
    followed = viewer.federation
    last = followed.rounds[-1] if followed.rounds else None
    done = 0 if last is None else last.round
    so_far, whole = predicted_payments(audit, done), predicted_payments(audit, math.inf)
    rounds_audited = (audit.get("payments") or {}).get("rounds") or []
    rows: list[dict[str, Any]] = []
    for place, account in enumerate(_in_order_of_terms(followed)):
        total = RunTotal()
        if last is not None and account.number in followed.series:
            total = followed.series[account.number].runs.get(last.run, total)
        rows.append(
            named(account)
            | {
                "run": None if last is None else last.run,
                "round": done,
                "predicted": so_far.get(place),
                "predicted_whole": whole.get(place),
                "promised": total.promised,
                "charged": total.charged,
                "rounds": total.counted,
                "audited_rounds": rounds_audited[-1] if rounds_audited else None,
            }
        )
    return rows


def _in_order_of_terms(followed: Followed) -> list[Account]:
    """The members in the order of the terms that list them, else in the order of joining."""
    if not followed.terms.members:
        return followed.members
    known = {name for each in followed.members for name in (each.member, each.label)}
    return [followed.state.account(name) for name in followed.terms.members if name in known]


def predicted_payments(audit: dict[str, Any], round_: float) -> dict[int, float]:
    """What honest clients pay up to a round at the proposed price, before allowances, by client.

    The audit states it at some rounds; between them it is interpolated.
    """
    proposed, payments = audit.get("proposed") or {}, audit.get("payments") or {}
    table = (payments.get("schedules") or {}).get(proposed.get("schedule"))
    price = proposed.get("price")
    if not table or price is None:
        return {}
    rounds = [0, *payments["rounds"]]
    clients = [client["client"] for client in audit["clients"]]
    columns = zip(clients, zip(*table, strict=True), strict=True)
    return {
        client: price * float(np.interp(round_, rounds, [0.0, *map(_number, column)]))
        for client, column in columns
    }


def _number(value: float | None) -> float:
    """JSON has null for numbers that are not finite."""
    return 0.0 if value is None else value
