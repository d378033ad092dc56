"""What the ledger's commands share: common options, opening a book, and printing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from verax.text import printable, printable_json

if TYPE_CHECKING:
    from verax.ledger import Book, Receipt
    from verax.mechanism import Terms

BookOption = Annotated[str, typer.Argument(metavar="BOOK", help="A file, or a postgresql:// URL.")]
Federation = Annotated[
    str | None, typer.Option(help="Which federation; may be left out if BOOK holds one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Member = Annotated[str, typer.Argument(help="The member's id or label.")]
FromRound = Annotated[int, typer.Option(help="The first round that it holds for.")]
OfRun = Annotated[str | None, typer.Option(help="The round is one of this run.")]
Run = Annotated[str | None, typer.Option(help="Only of this run.")]
Out = Annotated[Path | None, typer.Option(help="The file to write.")]
Reference = Annotated[
    str | None,
    typer.Option(help="An id of your own: what has it is booked once, however often it is sent."),
]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="MODULE:NAME",
        help="Import this payment rule, which the book names, to recompute its charges.",
    ),
]


def ledger_package() -> Any:
    """Import the package, or say which extra must be installed."""
    try:
        import verax.ledger as ledger
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("verax"):
            raise
        raise ValueError(
            f"the ledger needs {error.name}, which is not installed: pip install '.[ledger]' in a "
            "clone of Verax"
        ) from None
    return ledger


@contextmanager
def open_book(
    book: str, federation: str | None, *, read_only: bool = False
) -> Generator[tuple[Book, str]]:
    """Open a book and choose its federation."""
    ledger = ledger_package()
    with ledger.Book.open(book, read_only=read_only) as opened:
        names = opened.federations() if federation is None else [federation]
        if len(names) != 1:
            held = ", ".join(map(repr, names)) or "none"
            raise ValueError(f"which federation? the book holds {held}; give --federation")
        yield opened, names[0]


@contextmanager
def counting(what: str) -> Generator[Callable[[int], None]]:
    """Count records in a line on stderr, which is removed at the end."""
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn(what),
        TextColumn("{task.completed:,.0f} records"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
        refresh_per_second=4,
    ) as bar:
        line = bar.add_task(what, total=None)
        yield lambda done: bar.advance(line, done)


def units_of(amount: str, scale: int) -> int:
    """Convert a decimal number to minor units, exactly."""
    from verax.ledger.money import parse_units

    return parse_units(amount, scale)


def new_reference(reference: str | None) -> str:
    """The reference that was given, or a new one that nobody else has."""
    return uuid4().hex if reference is None else reference


def money(units: int, scale: int) -> Text:
    """Format an amount for a cell of a table."""
    from verax.ledger.money import format_units

    return Text(format_units(units, scale), justify="right")


def print_receipt(receipt: Receipt, as_json: bool, words: str) -> None:
    """Print what was booked, or that the book had it already."""
    if as_json:
        print_json(
            {"posted": receipt.posted, "record": receipt.sequence, "hash": receipt.hash}
            | ({"amounts": receipt.amounts} if receipt.amounts else {})
        )
    elif receipt.posted:
        say(f"{words} (record {receipt.sequence})")
    else:
        say(f"{words}; the book had it already")


def say(text: str) -> None:
    """Print a line; a forged book must not deceive a terminal by control characters."""
    typer.echo(printable(text))


def cell(text: str, style: str = "") -> Text:
    """Text for a table, without control characters and without markup."""
    return Text(printable(text), style=style)


def print_json(value: Any) -> None:
    """Print one object on one line."""
    typer.echo(printable_json(value))


def print_cautions(terms: Terms) -> None:
    """Print what whoever agrees on these terms should know."""
    from verax.mechanism import cautions

    for text in cautions(terms):
        typer.echo(printable(f"verax: {text}"), err=True)
