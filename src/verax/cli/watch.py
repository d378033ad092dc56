"""`verax watch`: follow a running federation in the terminal, by reading its book."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from verax.text import printable, printable_json

#: Lines of the table that are not members: title, heading, borders, alarms.
_OTHER_LINES = 12


def watch(
    book: Annotated[str, typer.Argument(metavar="BOOK", help="A file, or a postgresql:// URL.")],
    federation: Annotated[
        str | None, typer.Option(help="Which federation; may be left out if BOOK holds one.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between readings of the book.")] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show the rounds in the book and stop.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(help="Stop after this number of new rounds.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a round.")] = False,
) -> None:
    """Follow a running federation: norms, payments and balances of each round, and alarms.

    Prints a table in a terminal, and one line per round elsewhere. Ctrl-C ends it; the federation
    keeps running.

    For example:

        verax watch book.db
    """
    if not every > 0:
        raise ValueError(f"--every is {every:g}, must be > 0 seconds")
    from verax.cli.ledger.shared import open_book

    with open_book(book, federation, read_only=True) as (opened, name):
        follower = _Follower(opened, name)
        steps = _steps(follower, every, once, rounds)
        console = Console()
        if as_json or not console.is_terminal:
            for new in steps:
                for row in new:
                    typer.echo(printable_json(row) if as_json else _line(row))
            return
        most = max(console.height - _OTHER_LINES, 3)
        with Live(follower.table(most), console=console, refresh_per_second=4) as live:
            for _ in steps:
                live.update(follower.table(most))


def _steps(
    follower: _Follower, every: float, once: bool, rounds: int | None
) -> Iterator[list[dict[str, Any]]]:
    seen = 0
    while True:
        new = follower.read()
        if rounds is not None:
            new = new[: rounds - seen]
        seen += len(new)
        yield new
        if once or (rounds is not None and seen >= rounds):
            return
        time.sleep(every)


class _Follower:
    """Reads new records of a book; knows balances, alarms and the last round of each member."""

    def __init__(self, book: Any, federation: str) -> None:
        from verax.flower.alarm import Alarm

        self._book, self._federation = book, federation
        self._after, self._alarm, self._new_alarm = 0, Alarm(), Alarm
        self._run = ""
        self._labels: dict[int, str] = {}
        self._balances: dict[int, int] = {}
        self._members: dict[int, dict[str, Any]] = {}
        self._alarms: list[str] = []
        self._head = "no round yet"
        terms = book.terms(federation)
        self._scale, self._currency = terms.scale, terms.currency

    def read(self) -> list[dict[str, Any]]:
        """The rounds that were booked since the last reading."""
        rounds: list[dict[str, Any]] = []
        for record in self._book.records(self._federation, after=self._after):
            content = record.content
            self._after = content["sequence"]
            if content["kind"] == "join":
                self._labels[content["account"]] = content["label"]
            for number, units in record.entries:
                self._balances[number] = self._balances.get(number, 0) + units
            if content["kind"] == "round":
                rounds.append(self._round(content))
        return rounds

    def _round(self, content: dict[str, Any]) -> dict[str, Any]:
        from verax.flower.alarm import norms_of

        if content["run"] != self._run:
            self._run, self._alarm = content["run"], self._new_alarm()
        norms = norms_of(content, {n: str(n) for n in content["accounts"]})
        alarms = self._alarm.update(norms)
        rows: list[dict[str, Any]] = []
        for number, units in zip(content["accounts"], content["amounts"], strict=True):
            row = {
                "member": self._labels.get(number, str(number)),
                "status": content["statuses"].get(str(number), "ok"),
                "reason": content["reasons"].get(str(number), ""),
                "norm": norms.get(str(number)),
                "payment": units,
                "balance": self._balances[number],
                "alarm": alarms.get(str(number), ""),
            }
            rows.append(row)
            self._members[number] = row
            if row["alarm"]:
                where = f"round {content['round']} of {content['run']}"
                self._alarms.append(f"{where}: {row['member']} sent {row['alarm']}")
        self._head = f"round {content['round']} of run {content['run']}, {content['time']}"
        return {
            "run": content["run"],
            "round": content["round"],
            "time": content["time"],
            "currency": self._currency,
            "scale": self._scale,
            "members": rows,
        }

    def table(self, most: int) -> Table:
        """The last round of each member and what it owes now, for at most this many members.

        Members with an alarm come first, then those whose update did not count, then those with the
        largest payments.
        """
        caption = [f"ALARM {message}" for message in self._alarms[-5:]]
        shown = sorted(self._members)
        if len(shown) > most:
            caption.append(f"and {len(shown) - most} members more; --json shows all")
            shown = sorted(sorted(shown, key=self._priority)[:most])
        table = Table(
            title=Text(printable(f"{self._federation}: {self._head}")),
            caption=Text("\n".join(map(printable, caption))),
        )
        for heading in ("member", "update"):
            table.add_column(heading)
        for heading in ("squared norm", f"pays ({self._currency})", "owes"):
            table.add_column(Text(printable(heading)), justify="right", no_wrap=True)
        for number in shown:
            row = self._members[number]
            update = row["status"] + (f": {row['reason']}" if row["reason"] else "")
            style = "bold red" if row["alarm"] else "" if row["status"] == "ok" else "yellow"
            table.add_row(
                Text(printable(row["member"]), style=style),
                Text(printable(update), style=style),
                "" if row["norm"] is None else f"{row['norm']:.6g}",
                _money(row["payment"], self._scale),
                _money(self._balances[number], self._scale),
            )
        return table

    def _priority(self, number: int) -> tuple[bool, bool, int]:
        row = self._members[number]
        return not row["alarm"], row["status"] == "ok", -abs(row["payment"])


def _line(row: dict[str, Any]) -> str:
    parts: list[str] = []
    for member in row["members"]:
        norm = member["status"] if member["norm"] is None else f"{member['norm']:.6g}"
        text = f"{member['member']} {norm} pays {_money(member['payment'], row['scale'])}"
        text += f" owes {_money(member['balance'], row['scale'])}"
        parts.append(text + (f" ALARM: {member['alarm']}" if member["alarm"] else ""))
    head = f"{row['time']} round {row['round']} of {row['run']} ({row['currency']}): "
    return printable(head + "; ".join(parts))


def _money(units: int, scale: int) -> str:
    from verax.ledger.money import format_units

    return format_units(units, scale)
