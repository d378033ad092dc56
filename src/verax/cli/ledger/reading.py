"""`verax ledger rounds | balances | statement | watch`: commands that read a book."""

from __future__ import annotations

import io
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    Member,
    Out,
    Rules,
    Run,
    cell,
    counting,
    ledger_package,
    money,
    open_book,
    print_json,
)
from verax.text import printable, printable_json


def rounds(
    book: BookOption, run: Run = None, federation: Federation = None, as_json: AsJson = False
) -> None:
    """List the rounds in the book.

    For example:

        verax ledger rounds book.db --run first
    """
    with open_book(book, federation, read_only=True) as (opened, name):
        listed = opened.rounds(name, run)
    if as_json:
        print_json([{"run": r, "round": t, "record": s, "hash": h} for r, t, s, h in listed])
        return
    table = Table("run", "round", "record", "hash", title=cell(f"Rounds of {name}"))
    for run_, t, sequence, hash_ in listed:
        table.add_row(cell(run_), str(t), str(sequence), hash_[:16])
    Console().print(table)


def balances(book: BookOption, federation: Federation = None, as_json: AsJson = False) -> None:
    """Show what each member owes; a negative balance is owed to the member.

    For example:

        verax ledger balances book.db --json
    """
    with open_book(book, federation, read_only=True) as (opened, name):
        sequence, hash_, units_owed = opened.snapshot(name)
        state = opened.state(name)
    if as_json:
        print_json(
            {
                "federation": name,
                "currency": state.currency,
                "scale": state.scale,
                "record": sequence,
                "hash": hash_,
                "balances": units_owed,
            }
        )
        return
    table = Table(
        "member",
        "label",
        Column(cell(f"owes ({state.currency})")),
        title=cell(f"{name}, up to record {sequence}"),
    )
    for member, units in units_owed.items():
        table.add_row(cell(member), cell(state.account(member).label), money(units, state.scale))
    Console().print(table)


def statement(
    book: BookOption,
    member: Member,
    form: Annotated[str, typer.Option("--format", help="text, json, csv or html.")] = "text",
    out: Out = None,
    run: Run = None,
    first: Annotated[int | None, typer.Option(help="First round shown.")] = None,
    last: Annotated[int | None, typer.Option(help="Last round shown.")] = None,
    rule: Rules = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Show a member's charges, round by round, beside the charges recomputed by the terms.

    For example:

        verax ledger statement book.db North --format html --out north.html
    """
    ledger_package()
    from verax.files import write_text
    from verax.ledger import statement as statements

    form = "json" if as_json else form
    if form not in ("text", "json", "csv", "html"):
        raise ValueError(f"format is {form!r}, must be text, json, csv or html")
    with open_book(book, federation, read_only=True) as (opened, name), counting("reading") as step:
        shown = statements.make_statement(
            opened, name, member, run=run, first=first, last=last, rules=rule or (), progress=step
        )
    if form == "json":
        text = printable_json(statements.to_json(shown)) + "\n"
    elif form == "csv":
        text = statements.to_csv(shown)
    elif form == "html":
        text = printable(statements.to_html(shown), keep="\n")
    else:
        console = Console() if out is None else Console(record=True, width=120, file=io.StringIO())
        _show_statement(console, shown)
        text = "" if out is None else console.export_text()
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
    if shown.differing:
        raise typer.Exit(1)


def watch(book: BookOption, federation: Federation = None, as_json: AsJson = False) -> None:
    """List the members whose debt exceeds their limit; exit code 1 if there are any.

    For example:

        verax ledger watch book.db
    """
    with open_book(book, federation, read_only=True) as (opened, name):
        over = opened.over_limit(name)
        scale = opened.terms(name).scale
    if as_json:
        print_json([vars(each) for each in over])
    elif not over:
        typer.echo("no debt exceeds its limit")
    else:
        table = Table("member", "label", "owes", "limit")
        for each in over:
            balance, most = money(each.balance, scale), money(each.limit, scale)
            table.add_row(cell(each.member), cell(each.label), balance, most)
        Console().print(table)
    if over:
        raise typer.Exit(1)


#: The width of a terminal from which on a statement shows recomputed charges as well.
_WIDE = 96


def _show_statement(console: Console, shown: Any) -> None:
    console.print(cell(f"Statement of {shown.label} ({shown.member}), {shown.federation}"))
    console.print(
        cell(
            f"in {shown.currency}; a positive amount is owed by the member. "
            f"Opening balance {shown.money(shown.opening)}"
        )
    )
    if shown.worth_words:
        console.print(cell(shown.worth_words))
    table = Table()
    for heading in ("record", "booked"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what", overflow="fold", min_width=16)
    # If all charges are right, the sentence below says so, and a narrow terminal needs no column.
    headings = ["statistic", "amount", "recomputed", "balance"]
    if not shown.differing and console.width < _WIDE:
        headings.remove("recomputed")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for x in shown.lines:
        again = "" if x.recomputed is None else shown.money(x.recomputed)
        cells = {
            "statistic": "" if x.statistic is None else f"{x.statistic:.6g}",
            "amount": shown.money(x.amount),
            "recomputed": Text(again, style="" if x.recomputed in (None, x.amount) else "bold red"),
            "balance": shown.money(x.balance),
        }
        table.add_row(
            str(x.sequence),
            x.time[:10],
            cell(_description(x)),
            *(cells[heading] for heading in headings),
        )
    console.print(table)
    console.print(cell(f"{shown.summary} {shown.judgement}".strip()))


def _description(line: Any) -> str:
    """A record in a few words, with its status if that is not ok, and its note."""
    words = f"{line.run} {line.round}" if line.kind == "round" else line.kind
    if line.status not in ("", "ok"):
        words += f", {line.status}"
    return f"{words}: {line.note}" if line.note else words
