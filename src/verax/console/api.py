"""`/api/v1`: what the pages show, as JSON; amounts are whole minor units."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from verax.console import account_views, views
from verax.console.call import Call
from verax.console.downloads import batches, receipt_lines
from verax.console.limits import ReservedResponse
from verax.console.viewer import Viewer
from verax.ledger import Book
from verax.ledger.export import default_name
from verax.ledger.money import format_units
from verax.ledger.records import GENESIS
from verax.ledger.tree import leaf_hash, root
from verax.ledger.witness import Log, make_checkpoint
from verax.text import csv_cell, printable_json


def _json(value: Any) -> Response:
    # A name or a reason of somebody else must not reach a terminal with control characters in it.
    return Response(printable_json(value) + "\n", media_type="application/json")


def me(call: Call) -> Response:
    """Whose token it is."""
    assert call.token is not None
    token = call.token
    return _json(
        {
            "role": token.role,
            "federation": token.federation or None,
            "member": token.member or None,
            "expires": token.expires,
        }
    )


def federations(call: Call) -> Response:
    """The federations that the token opens."""
    assert call.token is not None
    found = [Viewer.of(call.token, each) for each in call.console.library.federations]
    return _json([views.federation_facts(viewer) for viewer in found if viewer is not None])


def federation(call: Call) -> Response:
    """One federation."""
    return _json(views.federation_facts(call.viewer))


def rounds(call: Call) -> Response:
    """Rounds, the newest first."""
    before = call.number("before", 0, 2**62) or None
    limit, run = call.number("limit", 20, 200), call.text("run")
    library = call.console.library
    return _json(views.rounds(call.viewer, library, before=before, limit=limit, run=run))


def alarms(call: Call) -> Response:
    """Alarms, the newest first."""
    return _json(views.alarms(call.viewer))


def norms(call: Call) -> Response:
    """Squared norms of the last rounds by member, with the audited band."""
    return _json(views.norms_over_rounds(call.viewer, call.number("limit", 200, 1000)))


def balances(call: Call) -> Response:
    """Members and balances."""
    return _json(views.balances(call.viewer, call.text("search")))


def terms(call: Call) -> Response:
    """All versions of the terms, the newest first."""
    return _json(views.with_terms_as_text(views.terms_versions(call.viewer)))


def statement(call: Call) -> Response:
    """A page of a member's statement."""
    page = call.number("page", 1, 10**9)
    return _json(
        account_views.statement(call.viewer, call.console.library, call.account, page=page)
    )


def series(call: Call) -> Response:
    """A member's balance and squared norms over the records."""
    with call.viewer.federation.lock:
        return _json(account_views.series(call.viewer, call.account))


def receipts(call: Call) -> Response:
    """The place and the hash of every record that concerns a member: keep it as evidence."""
    followed = call.viewer.federation
    found = followed.series.get(call.account)
    rows: list[dict[str, Any]] = []
    with followed.lock:
        for i, sequence in enumerate([] if found is None else found.sequences):
            assert found is not None
            leaf = b64encode(followed.state.leaves[sequence - 1]).decode()
            row = {"record": sequence, "leaf": leaf, "amount": found.amounts[i]}
            rows.append(row | {"balance": found.balances[i]})
        head = views.tree_head(call.viewer)
    return _attached(
        call, "-receipts.json", printable_json(head | {"receipts": rows}), "application/json"
    )


def comparison(call: Call) -> Response:
    """What the audit predicted beside what was charged."""
    document = call.console.audit_summary()
    return _json([] if document is None else views.comparison(call.viewer, document))


def settlement(call: Call) -> Response:
    """The transfers that would clear all balances."""
    return _json(views.settlement(call.viewer))


def settlement_csv(call: Call) -> Response:
    """The same as a table for a spreadsheet."""
    found = views.settlement(call.viewer)
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["from", "to", "amount", "currency"])
    for each in found["transfers"]:
        names = [csv_cell(each["payer_label"]), csv_cell(each["receiver_label"])]
        amount = format_units(each["amount"], found["scale"])
        table.writerow([*names, amount, csv_cell(found["currency"])])
    return _attached(call, "-settlement.csv", file.getvalue(), "text/csv")


def tree(call: Call) -> Response:
    """Size, last hash and root of the book."""
    return _json(views.tree_head(call.viewer) | {"witnesses": views.witnesses(call.viewer)})


def checkpoint(call: Call) -> Response:
    """A checkpoint: signed if the console has the operator's key, else the text to be signed."""
    followed, signer = call.viewer.federation, call.console.signer
    log = Log(list(followed.state.leaves))
    note = log.checkpoint().text if signer is None else str(make_checkpoint(log, *signer))
    return _attached(call, ".note", note, "text/plain")


def export(call: Call) -> Response:
    """The whole book as `verax ledger export` writes it."""
    book, name = call.console.library.book, call.viewer.federation.name
    return _download(call, ".jsonl", _export_parts(book, name, book.length(name)))


def signed_receipts(call: Call) -> Response:
    """A member's rounds, each with a signed proof, as `verax ledger verify --mine` reads them."""
    console, followed = call.console, call.viewer.federation
    if console.signer is None:
        raise HTTPException(404, "The console was started without --key, so it signs nothing.")
    with followed.lock:
        leaves = list(followed.state.leaves)
    lines = receipt_lines(console.library.book, followed.name, leaves, call.account, console.signer)
    return _download(call, "-receipts.jsonl", lines)


def _download(call: Call, ending: str, parts: Iterator[bytes]) -> Response:
    """A download that may be long, of which a token has few at once."""
    exports, token = call.console.exports, call.token
    assert token is not None
    if not exports.reserve(token.id):
        raise HTTPException(429, "Too many downloads of the book at once; wait for one to end.")
    disposition = _disposition(call.viewer.federation.name, ending)
    return ReservedResponse(
        parts,
        lambda: exports.release(token.id),
        "application/jsonl",
        {"content-disposition": disposition},
    )


def _export_parts(book: Book, federation: str, last: int) -> Iterator[bytes]:
    """The lines of an export."""
    leaves: list[bytes] = []
    hash_ = GENESIS
    for batch in batches(book, federation, last):
        leaves += [leaf_hash(record.data) for record in batch]
        hash_ = batch[-1].hash
        yield b"".join(record.data + b"\n" for record in batch)
    end = {"end": last, "hash": hash_, "root": b64encode(root(leaves)).decode()}
    yield json.dumps(end).encode() + b"\n"


def _attached(call: Call, ending: str, text: str, kind: str) -> Response:
    headers = {"content-disposition": _disposition(call.viewer.federation.name, ending)}
    return Response(text, media_type=kind, headers=headers)


def _disposition(federation: str, ending: str) -> str:
    """A download under a name of letters, digits and underscores, whatever the federation's is."""
    return f'attachment; filename="{default_name(federation, ending)}"'
