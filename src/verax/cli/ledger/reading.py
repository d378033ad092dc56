"""`verax ledger rounds | balances | statement | watch`: what the book says."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    Member,
    Out,
    Run,
    counting,
    ledger_package,
    money,
    open_book,
    print_json,
)

if TYPE_CHECKING:
    pass

__all__ = ["balances", "rounds", "statement", "watch"]


def rounds(
    book: BookOption, run: Run = None, federation: Federation = None, as_json: AsJson = False
) -> None:
    """List the rounds in the book.

    For example:

        verax ledger rounds book.db --run first
    """
    with open_book(book, federation, read_only=True) as (opened, name):
        found = opened.rounds(name, run)
    if as_json:
        print_json([{"run": r, "round": t, "record": s, "hash": h} for r, t, s, h in found])
        return
    table = Table("run", "round", "record", "hash", title=Text(f"Rounds of {name}"))
    for run_, t, sequence, hash_ in found:
        table.add_row(Text(run_), str(t), str(sequence), hash_[:16])
    Console().print(table)


def balances(book: BookOption, federation: Federation = None, as_json: AsJson = False) -> None:
    """What each member owes (negative: is owed).

    For example:

        verax ledger balances book.db --json
    """
    with open_book(book, federation, read_only=True) as (opened, name):
        sequence, hash_, found = opened.snapshot(name)
        state = opened.state(name)
    if as_json:
        print_json(
            {
                "federation": name,
                "currency": state.currency,
                "scale": state.scale,
                "record": sequence,
                "hash": hash_,
                "balances": found,
            }
        )
        return
    table = Table(
        "member",
        "label",
        f"owes ({state.currency})",
        title=Text(f"{name}, up to record {sequence}"),
    )
    for member, units in found.items():
        table.add_row(Text(member), Text(state.account(member).label), money(units, state.scale))
    Console().print(table)


def statement(
    book: BookOption,
    member: Member,
    form: Annotated[str, typer.Option("--format", help="text, json, csv or html.")] = "text",
    out: Out = None,
    run: Run = None,
    first: Annotated[int | None, typer.Option(help="First round shown.")] = None,
    last: Annotated[int | None, typer.Option(help="Last round shown.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """One member's charges, round by round, beside what the norms and the terms say.

    For example:

        verax ledger statement book.db North --format html --out north.html
    """
    ledger_package()
    from verax.files import write_text
    from verax.ledger import statement as made

    form = "json" if as_json else form
    if form not in ("text", "json", "csv", "html"):
        raise ValueError(f"format is {form!r}, must be text, json, csv or html")
    with open_book(book, federation, read_only=True) as (opened, name), counting("reading") as step:
        found = made.make_statement(
            opened, name, member, run=run, first=first, last=last, progress=step
        )
    if form == "text":
        if out is None:
            _show_statement(Console(), found)
        else:
            console = Console(record=True, width=120, file=io.StringIO())
            _show_statement(console, found)
            write_text(out, console.export_text())
    else:
        text = {
            "json": lambda: json.dumps(made.to_json(found), ensure_ascii=False) + "\n",
            "csv": lambda: made.to_csv(found),
            "html": lambda: made.to_html(found),
        }[form]()
        if out is None:
            typer.echo(text, nl=False)
        else:
            write_text(out, text)
    if found.differing:
        raise typer.Exit(1)


def watch(book: BookOption, federation: Federation = None, as_json: AsJson = False) -> None:
    """Who owes more than the limit; exit code 1 if anybody does.

    For example:

        verax ledger watch book.db
    """
    with open_book(book, federation, read_only=True) as (opened, name):
        over = opened.watch(name)
        scale = opened.terms(name).scale
    if as_json:
        print_json([vars(each) for each in over])
    elif not over:
        typer.echo("nobody owes more than the limit")
    else:
        table = Table("member", "label", "owes", "limit")
        for each in over:
            balance, most = money(each.balance, scale), money(each.limit, scale)
            table.add_row(Text(each.member), Text(each.label), balance, most)
        Console().print(table)
    if over:
        raise typer.Exit(1)


#: Columns of a terminal from which a statement has room for charges and recomputed charges.
_WIDE = 96


def _show_statement(console: Console, found: Any) -> None:
    console.print(
        Text(
            f"Statement of {found.label} ({found.member}), {found.federation}\n"
            f"in {found.currency}; positive: owed by the member. "
            f"Opening balance {found.money(found.opening)}"
        )
    )
    table = Table()
    for heading in ("record", "booked"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what", overflow="fold", min_width=16)
    # Where all is well, the words below say so, and a narrow terminal has no room for both.
    headings = ["statistic", "amount", "recomputed", "balance"]
    if not found.differing and console.width < _WIDE:
        headings.remove("recomputed")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for x in found.lines:
        again = "" if x.recomputed is None else found.money(x.recomputed)
        cells = {
            "statistic": "" if x.statistic is None else f"{x.statistic:.6g}",
            "amount": found.money(x.amount),
            "recomputed": Text(again, style="" if x.recomputed in (None, x.amount) else "bold red"),
            "balance": found.money(x.balance),
        }
        table.add_row(
            str(x.sequence), x.time[:10], Text(_what(x)), *(cells[heading] for heading in headings)
        )
    console.print(table)
    wrong = len(found.differing)
    judged = (
        f"{wrong} round(s) were NOT charged as the terms say."
        if wrong
        else "Every charge, recomputed from the inputs in the book and the terms, is the same."
    )
    console.print(Text(f"{found.summary} {judged}" if found.lines else found.summary))


def _what(line: Any) -> str:
    """A record in a few words, with what is unusual about it."""
    words = f"{line.run} {line.round}" if line.kind == "round" else line.kind
    if line.status not in ("", "ok"):
        words += f", {line.status}"
    return f"{words}: {line.note}" if line.note else words
