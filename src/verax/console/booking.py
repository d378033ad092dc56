"""The two forms that write: a deposit and a settlement, by the same functions as the command line.

Both need the operator's session and its form key. A settlement also needs the federation's name,
typed, and is refused if the book grew since the operator saw the transfers.
"""

from __future__ import annotations

from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from verax.console.call import Call
from verax.ledger import Book
from verax.ledger.money import parse_units
from verax.ledger.settlement import settle


def deposit(call: Call) -> Response:
    """Book money that a member pays in."""
    followed, form = call.viewer.federation, call.form
    try:
        units = parse_units(form.get("amount", ""), followed.state.scale)
        with Book.open(call.console.url) as book:
            receipt = book.deposit(
                followed.name,
                form.get("member", ""),
                units,
                form.get("reason", ""),
                reference=form.get("reference", ""),
            )
    except (ValueError, OSError) as error:
        raise HTTPException(422, f"Nothing was booked: {error}.") from None
    return _done(call, "/balances", f"Deposit booked as record {receipt.sequence}.")


def settlement(call: Call) -> Response:
    """Book the transfers that were proposed, once somebody has typed the federation's name."""
    followed, form = call.viewer.federation, call.form
    if form.get("confirm", "").strip() != followed.name:
        raise HTTPException(
            422, f"Nothing was booked: type the federation's name, {followed.name}, to confirm."
        )
    try:
        seen = int(form.get("record", ""))
        with Book.open(call.console.url) as book:
            _, _, balances = book.snapshot(followed.name)
            transfers = settle(balances).transfers
            if not transfers:
                raise ValueError("all balances are zero")
            receipt = book.settle(
                followed.name, transfers, sequence=seen, reference=form.get("reference", "")
            )
    except (ValueError, OSError) as error:
        raise HTTPException(422, f"Nothing was booked: {error}.") from None
    return _done(call, "/settlement", f"Settlement booked as record {receipt.sequence}.")


def _done(call: Call, path: str, words: str) -> Response:
    call.console.library.refresh()
    return RedirectResponse(f"/f/{call.viewer.federation.key}{path}?done={quote(words)}", 303)
