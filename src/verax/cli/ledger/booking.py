"""`verax ledger post | deposit | correct | settle`: commands that book amounts."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    Member,
    Reference,
    cell,
    counting,
    ledger_package,
    money,
    new_reference,
    open_book,
    print_json,
    print_receipt,
    units_of,
)

if TYPE_CHECKING:
    from verax.ledger import Report


def post(
    book: BookOption,
    file: Annotated[
        Path | None, typer.Option(help="Rounds, JSON Lines; without it, standard input.")
    ] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    r"""Charge rounds by the terms and book them; rounds that the book has already change nothing.

    A line is a round: {"run": "a", "round": 1, "reports": [{"member": "north", "status": "ok",
    "statistic": 4.0, "weight": 1.0, "reason": ""}, …], "gram": [[…]] for the rules that read it}.

    For example:

        verax ledger post book.db --file rounds.jsonl
    """
    ledger = ledger_package()
    new = known = 0
    with (
        nullcontext(sys.stdin) if file is None else file.open(encoding="utf-8") as lines,
        open_book(book, federation) as (opened, name),
        counting("posting") as step,
    ):
        for i, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                run, round_, reports, gram = _parse_round(ledger.Report, line)
                receipt = opened.post(name, run, round_, reports, gram)
            except (ValueError, OverflowError) as error:
                raise ValueError(f"line {i}: {error}; {new} rounds before it are booked") from None
            new, known = new + receipt.posted, known + (not receipt.posted)
            if as_json:
                print_json(
                    {
                        "run": run,
                        "round": round_,
                        "posted": receipt.posted,
                        "record": receipt.sequence,
                        "hash": receipt.hash,
                        "amounts": receipt.amounts,
                    }
                )
            step(1)
    if not as_json:
        typer.echo(f"{new} rounds booked, {known} were in the book already")


def deposit(
    book: BookOption,
    member: Member,
    amount: Annotated[str, typer.Argument(help="As in 12.50; a negative amount is paid out.")],
    reason: Annotated[str, typer.Option(help="What it is for; printed in statements.")] = "",
    reference: Reference = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Book money that a member pays in before it is charged.

    For example:

        verax ledger deposit book.db North 50
    """
    with open_book(book, federation) as (opened, name):
        units = units_of(amount, opened.terms(name).scale)
        receipt = opened.deposit(name, member, units, reason, reference=new_reference(reference))
        print_receipt(receipt, as_json, f"{amount} from {member}")


def correct(
    book: BookOption,
    reason: Annotated[str, typer.Option(help="Why; printed in statements.")],
    entry: Annotated[
        list[str], typer.Option(help="MEMBER=AMOUNT, as in North=-1.50; must sum to zero.")
    ],
    corrects: Annotated[int | None, typer.Option(help="The record that was wrong.")] = None,
    reference: Reference = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Book a reversing entry; the record that was wrong stays in the book.

    For example:

        verax ledger correct book.db --reason "round 3 was a test" \
        --entry North=-1.50 --entry South=1.50
    """
    with open_book(book, federation) as (opened, name):
        scale = opened.terms(name).scale
        amounts: dict[str, int] = {}
        for each in entry:
            who, sign, amount = each.rpartition("=")
            if not sign or who in amounts:
                raise ValueError(f"entry {each!r} must be MEMBER=AMOUNT, each member once")
            amounts[who] = units_of(amount, scale)
        key = new_reference(reference)
        receipt = opened.correct(name, amounts, reason, reference=key, corrects=corrects)
        print_receipt(receipt, as_json, "corrected")


def settle(
    book: BookOption,
    commit: Annotated[
        bool, typer.Option("--commit", help="Book the transfers: they have been made.")
    ] = False,
    reference: Reference = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Compute the fewest transfers that bring all balances to zero.

    Nothing is booked without --commit. The number of transfers is the smallest possible for up to
    12 members with a balance.

    For example:

        verax ledger settle book.db
    """
    ledger_package()
    from verax.ledger.settlement import settle as compute

    with open_book(book, federation, read_only=not commit) as (opened, name):
        sequence, _, balances = opened.snapshot(name)
        state = opened.state(name)
        result = compute(balances)
        if commit and result.transfers:
            key = new_reference(reference)
            opened.settle(name, result.transfers, sequence=sequence, reference=key)
    if as_json:
        print_json(
            {
                "fewest": result.fewest,
                "committed": commit and bool(result.transfers),
                "currency": state.currency,
                "scale": state.scale,
                "transfers": [
                    {"from": t.payer, "to": t.receiver, "amount": t.amount}
                    for t in result.transfers
                ],
            }
        )
        return
    amount = Column(cell(f"amount ({state.currency})"))
    table = Table("from", "to", amount, title=cell(f"Settlement of {name}"))
    for t in result.transfers:
        payer, receiver = state.account(t.payer).label, state.account(t.receiver).label
        table.add_row(cell(payer), cell(receiver), money(t.amount, state.scale))
    console = Console()
    console.print(table)
    how = "the smallest number" if result.fewest else "perhaps not the smallest number"
    booked = "booked" if commit else "not booked; --commit books them once they are paid"
    console.print(f"{len(result.transfers)} transfers, {how}; {booked}.", highlight=False)


def _parse_round(
    report: type[Report], line: str
) -> tuple[str, int, list[Report], list[list[float]] | None]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict) or not {"run", "round", "reports"} <= row.keys():
        raise ValueError('a round needs "run", "round" and "reports"')
    if unknown := row.keys() - {"run", "round", "reports", "gram"}:
        raise ValueError(f"{sorted(unknown)[0]!r} is no field of a round")
    try:
        reports = [report(**each) for each in row["reports"]]
    except TypeError:
        raise ValueError(
            "a report is an object with member, status, statistic, weight and reason"
        ) from None
    for each in reports:
        numbers = (each.statistic, each.weight)
        if any(not (x is None or type(x) in (int, float)) for x in numbers):
            raise ValueError(f"statistic and weight of {each.member!r} must be numbers")
        if not isinstance(each.member, str) or not isinstance(each.reason, str):
            raise ValueError(f"member {each.member!r} and its reason must be text")
    return row["run"], row["round"], reports, row.get("gram")
