"""`verax ledger close | draw | fine`: what a book has to do with spot checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    ledger_package,
    open_book,
    print_json,
    print_receipt,
    say,
)

OfRun = Annotated[str, typer.Option(help="Which training run.")]


def close(
    book: BookOption,
    run: OfRun,
    beacon: Annotated[
        str,
        typer.Option(
            help="Which value of a public beacon, that nobody knows yet, will draw the rounds; "
            "without it, the signatures of all witnesses of the terms under this record do."
        ),
    ] = "",
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Record that a run has ended, so that rounds can be drawn for spot checks.

    For example:

        verax ledger close book.db --run spring --beacon "drand quicknet, round 12345678"
    """
    with open_book(book, federation) as (opened, name):
        receipt = opened.close_run(name, run, beacon)
        print_receipt(receipt, as_json, f"run {run} is closed")


def draw(
    book: BookOption,
    run: OfRun,
    value: Annotated[
        str,
        typer.Option(
            help="What the announced beacon said, 64 lower-case hexadecimal digits; empty where "
            "witnesses sign."
        ),
    ] = "",
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Draw the rounds that are checked, by public randomness that came after the run.

    For example:

        verax ledger draw book.db --run spring --value 8fb1a9…
    """
    with open_book(book, federation) as (opened, name):
        receipt = opened.draw(name, run, value)
        state = opened.state(name)
    checked = state.checked[run]
    drawn = {state.accounts[n].label: list(rounds) for n, rounds in checked.drawn.items()}
    if as_json:
        print_json({"posted": receipt.posted, "record": receipt.sequence, "drawn": drawn})
        return
    for label, rounds in drawn.items():
        say(f"{label}: {', '.join(map(str, rounds))}")


def fine(
    book: BookOption,
    report: Annotated[Path, typer.Argument(help="A report that `verax spot-check` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Book an auditor's signed report, and the fine that follows from it by the terms.

    For example:

        verax ledger fine book.db north-report.json
    """
    ledger = ledger_package()
    try:
        read: Any = json.loads(report.read_text(encoding="utf-8"))
        found = tuple((int(t), str(d), str(norm)) for t, d, norm in read.pop("found"))
        signed = ledger.SpotReport(**read, found=found)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{report} is no report; `verax spot-check --out` writes one") from None
    with open_book(book, signed.federation) as (opened, _):
        receipt = opened.add_report(signed)
        print_receipt(receipt, as_json, f"the report on {signed.member} is in the book")
