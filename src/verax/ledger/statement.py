"""A member's statement: every record that changed its balance, with each charge recomputed.

Each round is charged again from the inputs in the book (`verax.mechanism.charge`), so that a reader
sees the booked amount beside the recomputed one. A statement can be text, JSON, CSV or a page to
print. A rule that the terms give as `module:name` is imported only if the reader allows it: reading
somebody else's book must not run code that the book names.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verax.amounts import money
from verax.ledger.book import Book
from verax.ledger.checks import check
from verax.ledger.money import format_units, to_units
from verax.ledger.records import Record, RoundRecord
from verax.ledger.reports import by_account
from verax.ledger.round import payments_of
from verax.ledger.state import Account, FederationState
from verax.mechanism import BUILT_IN
from verax.text import csv_cell


@dataclass(frozen=True)
class StatementLine:
    """One record that concerns the member.

    Attributes:
        sequence: its place in the chain.
        time: when it was booked (UTC).
        kind: round, deposit, correction or settlement.
        run: of a round.
        round: of a round.
        status: what happened to the member's update.
        statistic: its squared norm (or what the rule reads) as it counted.
        amount: minor units; a positive amount is owed by the member.
        recomputed: the same, charged again from the inputs; None for other records than rounds and
            for rounds by a rule that was not imported.
        balance: minor units owed after it.
        note: the reason of the record or of the member's status.
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
        federation: whose book it is.
        member: public key or id.
        label: the name that people use for the member.
        currency: of the amounts.
        scale: decimal places of a minor unit.
        worth: what the terms say a unit of the reward is worth to the member, in the currency;
            None if they do not say it.
        opening: minor units owed before the first line.
        closing: minor units owed after the last line.
        between: the sum of the member's amounts in records between the lines that are not shown;
            opening + the amounts of the lines + between = closing.
        balance: minor units owed now, after all records of the book.
        lines: the records of the period.
        unchecked: rules that were not imported, so that their charges were not recomputed.
        sequence: the last record of the book.
        hash: its hash.
    """

    federation: str
    member: str
    label: str
    currency: str
    scale: int
    worth: float | None
    opening: int
    closing: int
    between: int
    balance: int
    lines: tuple[StatementLine, ...]
    unchecked: tuple[str, ...]
    sequence: int
    hash: str

    @property
    def differing(self) -> list[StatementLine]:
        """Rounds whose charge is not what the inputs and the terms give."""
        return [x for x in self.lines if x.recomputed is not None and x.recomputed != x.amount]

    @property
    def summary(self) -> str:
        """The closing balance and what else a reader must know about it."""
        if not self.lines:
            return f"No record was found. The balance now is {self.money(self.balance)}."
        text = f"Closing balance {self.money(self.closing)}."
        if self.between:
            text += f" Records that are not shown changed it by {self.money(self.between)}."
        if self.balance != self.closing:
            text += f" The balance now is {self.money(self.balance)}."
        return text

    @property
    def worth_words(self) -> str:
        """What the terms take a unit of the reward to be worth to the member, in a sentence."""
        if self.worth is None:
            return ""
        amount = money(self.worth, self.currency, exact=True)
        return f"The terms take a unit of the reward to be worth {amount} to this member."

    @property
    def judgement(self) -> str:
        """Whether the charges are what the inputs and the terms give, in a sentence or two."""
        if not self.lines:
            return ""
        if self.differing:
            text = f"{len(self.differing)} round(s) were NOT charged as the terms say."
        elif self.unchecked:
            text = "Every other charge equals the one recomputed from the inputs and the terms."
        else:
            text = "Every charge equals the one recomputed from the inputs and the terms."
        if self.unchecked:
            text = f"Charges by rule {', '.join(self.unchecked)} were not recomputed. {text}"
        return text

    def money(self, units: int) -> str:
        """An amount in minor units as a decimal number."""
        return format_units(units, self.scale)


def make_statement(
    book: Book,
    federation: str,
    member: str,
    *,
    run: str | None = None,
    first: int | None = None,
    last: int | None = None,
    rules: Collection[str] = (),
    progress: Callable[[int], None] | None = None,
) -> Statement:
    """A member's statement.

    Args:
        book: the book.
        federation: its name.
        member: id or label.
        run: show only rounds of this run.
        first: the first round that is shown; with `first` or `last`, only rounds are shown.
        last: the last round that is shown.
        rules: rules of the form `module:name` that may be imported to recompute charges.
        progress: called with the number of records read since the last call.
    """
    if first is not None and last is not None and first > last:
        raise ValueError(f"first is round {first}, after the last, {last}; give them in order")
    account = book.state(federation).account(member)
    book.snapshot(federation)  # refuses a book whose tables differ from its records
    known = {rule.name for rule in BUILT_IN} | set(rules)
    past = FederationState(0, federation)
    lines: list[StatementLine] = []
    unchecked: dict[str, None] = {}
    balance = 0
    for record in book.records(federation):
        check(past, record, charges=False)
        line = _line(past, record, account, balance, known)
        past.apply(record)
        if progress is not None:
            progress(1)
        if line is None:
            continue
        balance = line.balance
        if _is_shown(line, run, first, last):
            lines.append(line)
            if isinstance(record.body, RoundRecord) and line.recomputed is None:
                unchecked[record.body.rule] = None
    opening = lines[0].balance - lines[0].amount if lines else balance
    closing = lines[-1].balance if lines else balance
    return Statement(
        federation,
        account.member,
        account.label,
        past.currency,
        past.scale,
        _worth(past, account),
        opening,
        closing,
        closing - opening - sum(line.amount for line in lines),
        balance,
        tuple(lines),
        tuple(unchecked),
        past.sequence,
        past.hash,
    )


def _worth(state: FederationState, account: Account) -> float | None:
    """What a unit of the reward is worth to a member by the latest terms."""
    terms = state.versions[-1].terms
    if len(terms.worth) <= 1:
        return terms.worth[0] if terms.worth else None
    by_number = dict(zip((a.number for a in state.listed(terms)), terms.worth, strict=True))
    return by_number.get(account.number)


def _is_shown(line: StatementLine, run: str | None, first: int | None, last: int | None) -> bool:
    if run is None and first is None and last is None:
        return True
    return (
        line.round is not None
        and run in (None, line.run)
        and (first is None or line.round >= first)
        and (last is None or line.round <= last)
    )


def _line(
    past: FederationState, record: Record, account: Account, balance: int, known: Collection[str]
) -> StatementLine | None:
    """The line of a record, given the state before it; None if it does not concern the member."""
    amounts = dict(record.entries)
    if account.number not in amounts:
        return None
    amount, body = amounts[account.number], record.body
    if not isinstance(body, RoundRecord):
        return StatementLine(
            record.sequence, record.time, record.kind, "", None, "", None, amount, None,
            balance + amount, getattr(body, "reason", ""),
        )  # fmt: skip
    own = by_account(body)[account.number]
    terms = past.version(body.round, body.run).terms
    recomputed = None
    if terms.rule in known:
        payments = payments_of(past, terms, body)
        units, _ = to_units(payments, terms.scale, past.carried_of(body.accounts))
        recomputed = units[body.accounts.index(account.number)]
    return StatementLine(
        record.sequence, record.time, record.kind, body.run, body.round, own["status"],
        own["statistic"], amount, recomputed, balance + amount, own["reason"],
    )  # fmt: skip


def to_json(statement: Statement) -> dict[str, Any]:
    """One JSON object; amounts are minor units."""
    return asdict(statement) | {"differing": len(statement.differing)}


def to_csv(statement: Statement) -> str:
    """One row per line; no text can run as a formula, or reach into the next cell."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    names = list(StatementLine.__dataclass_fields__)
    file.write(",".join([*names, "currency", "scale"]) + "\n")
    for line in statement.lines:
        cells = [csv_cell(getattr(line, name)) for name in names]
        table.writerow([*cells, csv_cell(statement.currency), statement.scale])
    return file.getvalue()


def to_html(statement: Statement) -> str:
    """A page to print, in one file."""
    from jinja2 import Environment, StrictUndefined

    source = (Path(__file__).parent / "statement.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    return page.render(s=statement, money=statement.money)
