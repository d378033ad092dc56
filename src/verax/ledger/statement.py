"""One member's view of the book: every record that moved its balance, and what the terms say.

Each round is charged again from the inputs in the book (`verax.mechanism.charge`), so that a reader
sees what was booked beside what it should have been. As text, JSON, CSV or a page to print.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verax.ledger.book import Book
from verax.ledger.money import format_units
from verax.ledger.round import Report, round_content
from verax.ledger.state import Account, State

__all__ = ["Line", "Statement", "make_statement", "to_csv", "to_html", "to_json"]


@dataclass(frozen=True)
class Line:
    """One record that concerns the member.

    Attributes:
        sequence: its place in the chain.
        time: when it was booked (UTC).
        kind: round, deposit, correction or settlement.
        run: of a round.
        round: of a round.
        status: what became of the member's update.
        statistic: its squared norm (or what the rule reads) as it counted.
        amount: units; positive: the member owes.
        recomputed: the same, charged again from the inputs; None for what is not a round.
        balance: units owed after it.
        note: reason, or rule and price.
    """

    sequence: int
    time: str
    kind: str
    run: str
    round: int | None
    status: str
    statistic: float | None
    amount: int
    recomputed: int | None
    balance: int
    note: str


@dataclass(frozen=True)
class Statement:
    """A member's account over a period.

    Attributes:
        federation: whose book.
        member: public key or id.
        label: what people call it.
        currency: of the amounts.
        scale: decimal places of a unit.
        opening: units owed before the first line.
        closing: units owed after the last line.
        between: units moved by the member's records between these lines that were not asked for;
            opening + the lines' amounts + between = closing.
        balance: units owed now, after all records of the book.
        lines: the period's records.
        sequence: the last record of the book.
        hash: its hash.
    """

    federation: str
    member: str
    label: str
    currency: str
    scale: int
    opening: int
    closing: int
    between: int
    balance: int
    lines: tuple[Line, ...]
    sequence: int
    hash: str

    @property
    def differing(self) -> list[Line]:
        """Rounds whose charge is not what the inputs and the terms say."""
        return [x for x in self.lines if x.recomputed is not None and x.recomputed != x.amount]

    @property
    def summary(self) -> str:
        """What the lines come to, in a sentence or two."""
        if not self.lines:
            return f"No record was found. The balance now is {self.money(self.balance)}."
        words = f"Closing balance {self.money(self.closing)}."
        if self.between:
            words += f" Records between these that are not shown moved {self.money(self.between)}."
        if self.balance != self.closing:
            words += f" The balance now is {self.money(self.balance)}."
        return words

    def money(self, units: int) -> str:
        """Units as a decimal number."""
        return format_units(units, self.scale)


def make_statement(
    book: Book,
    federation: str,
    member: str,
    *,
    run: str | None = None,
    first: int | None = None,
    last: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Statement:
    """A member's statement.

    Args:
        book: the book.
        federation: its name.
        member: id or label.
        run: only rounds of this run are shown.
        first: the first round shown; with it or `last`, nothing but rounds is.
        last: the last round shown.
        progress: called with the number of records read since the last call.
    """
    if first is not None and last is not None and first > last:
        raise ValueError(f"first is round {first}, after the last, {last}; give them in order")
    account = book.state(federation).account(member)
    past = State(0, federation)
    lines: list[Line] = []
    balance = 0
    sequence, hash_ = 0, ""
    for record in book.records(federation):
        content = record.content
        past.apply(content)
        sequence, hash_ = record.sequence, record.hash
        if progress is not None:
            progress(1)
        line = _line(past, content, account, balance)
        if line is None:
            continue
        balance = line.balance
        if _asked_for(line, run, first, last):
            lines.append(line)
    opening = lines[0].balance - lines[0].amount if lines else balance
    closing = lines[-1].balance if lines else balance
    return Statement(
        federation,
        account.member,
        account.label,
        past.currency,
        past.scale,
        opening,
        closing,
        closing - opening - sum(line.amount for line in lines),
        balance,
        tuple(lines),
        sequence,
        hash_,
    )


def _asked_for(line: Line, run: str | None, first: int | None, last: int | None) -> bool:
    if run is None and first is None and last is None:
        return True
    return (
        line.round is not None
        and run in (None, line.run)
        and (first is None or line.round >= first)
        and (last is None or line.round <= last)
    )


def _line(past: State, content: dict[str, Any], account: Account, balance: int) -> Line | None:
    if account.number not in content.get("accounts", ()):
        return None
    i = content["accounts"].index(account.number)
    amount = content["amounts"][i]
    kind = content["kind"]
    if kind != "round":
        note = content.get("reason", "")
        return Line(
            content["sequence"], content["time"], kind, "", None, "", None, amount, None,
            balance + amount, note,
        )  # fmt: skip
    status = content["statuses"].get(str(account.number), "ok")
    statistic = None if content["statistics"] is None else content["statistics"][i]
    return Line(
        content["sequence"], content["time"], kind, content["run"], content["round"], status,
        statistic, amount, _again(past, content)[i], balance + amount,
        content["reasons"].get(str(account.number), ""),
    )  # fmt: skip


def _again(past: State, content: dict[str, Any]) -> list[int]:
    """The round's amounts, charged again from its inputs by the terms in force."""
    rows: list[tuple[Account, Report]] = []
    for i, number in enumerate(content["accounts"]):
        key = str(number)
        status = content["statuses"].get(key, "ok")
        statistic = None if content["statistics"] is None else content["statistics"][i]
        weight = content["weights"].get(key, 1.0)
        account = past.accounts[number]
        rows.append((account, Report(account.member, status, statistic, weight)))
    terms = past.version(content["round"])
    return round_content(past, terms, content["round"], rows, content["gram"])["amounts"]


def to_json(statement: Statement) -> dict[str, Any]:
    """One object; amounts are whole units."""
    return asdict(statement) | {"differing": len(statement.differing)}


def to_csv(statement: Statement) -> str:
    """A row per line; text that a spreadsheet would take for a formula is made harmless."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    names = list(Line.__dataclass_fields__)
    table.writerow([*names, "currency", "scale"])
    for line in statement.lines:
        cells = [_harmless(getattr(line, name)) for name in names]
        table.writerow([*cells, _harmless(statement.currency), statement.scale])
    return file.getvalue()


def _harmless(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value
    return "" if value is None else value


def to_html(statement: Statement) -> str:
    """A page to print, complete in itself."""
    from jinja2 import Environment, StrictUndefined

    source = (Path(__file__).parent / "statement.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    return page.render(s=statement, money=statement.money)
