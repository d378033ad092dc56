"""The book: an append-only chain of records per federation, in SQLite or PostgreSQL.

Everything that changes a federation is a record: its founding, members joining and leaving, terms,
limits, rounds, deposits, corrections, settlements. A record carries the hash of the one before, and
is written with its entries in one transaction, or not at all. Amounts are whole units; a positive
one is owed by the member. The entries of every record sum to zero.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from sqlalchemy import Connection, func, select

from verax.ledger import schema
from verax.ledger.canonical import GENESIS, digest
from verax.ledger.engine import BookError, reading
from verax.ledger.members import joining, member_account
from verax.ledger.money import LARGEST
from verax.ledger.names import check_name
from verax.ledger.reports import match_reports, newcomers, permuted, refuse_other
from verax.ledger.round import Report, round_content
from verax.ledger.state import ESCROW, Account, State, Version
from verax.ledger.store import (
    Receipt,
    Record,
    Store,
    found_row,
    head_row,
    insert_record,
    make_receipt,
)
from verax.mechanism import Terms

__all__ = ["Book", "Over", "Receipt", "Record", "Transfer"]

_BATCH = 256


@dataclass(frozen=True)
class Over:
    """A member whose debt passes its limit."""

    member: str
    label: str
    balance: int
    limit: int


@dataclass(frozen=True)
class Transfer:
    """One payment of a settlement, in units, from one member to another."""

    payer: str
    receiver: str
    amount: int


class Book(Store):
    """The books of one or more federations.

    Example:
        >>> import tempfile, os
        >>> from verax.ledger import Book, Report
        >>> from verax.mechanism import Price, Terms
        >>> with Book.create(os.path.join(tempfile.mkdtemp(), "book.db")) as book:
        ...     _ = book.found("clinics", Terms(Price.constant(0.5), scale=2))
        ...     reports = [Report("a", statistic=4.0), Report("b", statistic=1.0)]
        ...     receipt = book.post("clinics", run="first", round_=1, reports=reports)
        ...     (receipt.amounts, book.balances("clinics"))
        ({'a': 150, 'b': -150}, {'a': 150, 'b': -150})
    """

    @classmethod
    def create(
        cls,
        url: str | Path,
        *,
        wait: float = 30.0,
        clock: Callable[[], datetime] | None = None,
    ) -> Book:
        """Make a book, or open the one that is there.

        Args:
            url: a path, `sqlite:///…`, or `postgresql://…`.
            wait: seconds to wait for another writer.
            clock: what time it is; for tests.
        """
        return cls(url, wait=wait, clock=clock, _create=True)

    @classmethod
    def open(
        cls,
        url: str | Path,
        *,
        wait: float = 30.0,
        read_only: bool = False,
        clock: Callable[[], datetime] | None = None,
    ) -> Book:
        """Open a book that exists; `read_only` also opens a file that cannot be written."""
        return cls(url, wait=wait, read_only=read_only, clock=clock)

    # Federations and members

    def federations(self) -> list[str]:
        """The names of all federations in the book."""
        with reading(self.engine) as connection:
            names = select(schema.federation.c.name).order_by(schema.federation.c.name)
            return list(connection.scalars(names))

    def found(self, federation: str, terms: Terms) -> Receipt:
        """Begin a federation's chain with its terms; the same again changes nothing."""
        check_name("federation", federation)
        text = terms.to_toml()

        def work(connection: Connection) -> Receipt:
            row = head_row(connection, federation, lock=True)
            if row is not None:
                state = self._state(connection, federation, row)
                first = state.versions[0]
                if first.hash != digest(text):
                    raise BookError(
                        f"{federation!r} is in the book with other terms; "
                        "`verax ledger terms` changes them from a round on"
                    )
                return Receipt(False, 1, self._hash(connection, state, 1), {}, {})
            state = self._states[federation] = self._begin(connection, federation)
            return self._append(connection, state, GENESIS, [{"kind": "founding", "terms": text}])

        return self._write(federation, work)

    def join(
        self,
        federation: str,
        member: str,
        label: str = "",
        *,
        from_round: int = 1,
        run: str | None = None,
    ) -> Receipt:
        """Take in a member, or change its label; the same again changes nothing.

        Args:
            federation: its name.
            member: public key or opaque id; it never changes.
            label: what people call it; the id if left out.
            from_round: the first round it may take part in, …
            run: … of this run, and every round of others; without one, of every run.
        """
        check_name("member", member)
        label = check_name("label", label or member)
        _round("from_round", from_round)

        def build(state: State) -> list[dict[str, Any]]:
            known = state.by_member.get(member)
            if known is not None and known != ESCROW:
                old = state.accounts[known]
                if (
                    old.label == label
                    and old.left_round is None
                    and (old.from_round, old.from_run) == (from_round, run)
                ):
                    return []
            return [joining(state, member, label, from_round, run)]

        return self._change(federation, build)

    def leave(
        self, federation: str, member: str, *, from_round: int = 1, run: str | None = None
    ) -> Receipt:
        """A member takes part in no round from this one on; its balance stays.

        With a run, the round is one of that run, and the member takes part in no other run.
        """
        _round("from_round", from_round)

        def build(state: State) -> list[dict[str, Any]]:
            account = member_account(state, member)
            if (account.left_round, account.left_run) == (from_round, run):
                return []
            body = {"kind": "leave", "account": account.number}
            return [body | {"from_round": from_round, "run": run}]

        return self._change(federation, build)

    def change_terms(self, federation: str, terms: Terms, *, from_round: int) -> Receipt:
        """New terms for all rounds from this one on that are posted from now on."""
        _round("from_round", from_round)
        text = terms.to_toml()

        def build(state: State) -> list[dict[str, Any]]:
            if (terms.currency, terms.scale) != (state.currency, state.scale):
                raise BookError(
                    f"currency and scale are {state.currency} and {state.scale}, cannot change to "
                    f"{terms.currency} and {terms.scale}: balances would lose their meaning"
                )
            last = state.versions[-1]
            if last.hash == digest(text) and last.from_round == from_round:
                return []
            return [{"kind": "terms", "from_round": from_round, "terms": text}]

        return self._change(federation, build)

    def set_limit(self, federation: str, units: int | None, member: str | None = None) -> Receipt:
        """How much a member (or, without one, everybody) may owe before `watch` reports it."""
        if units is not None and not 0 <= units <= LARGEST:
            raise BookError(f"limit is {units}, must be 0 … {LARGEST} units")

        def build(state: State) -> list[dict[str, Any]]:
            number = None if member is None else member_account(state, member).number
            if number in state.limits and state.limits[number] == units:
                return []
            return [{"kind": "limit", "account": number, "limit": units}]

        return self._change(federation, build)

    def members(self, federation: str) -> list[Account]:
        """All who ever joined, in that order."""
        with reading(self.engine) as connection:
            state = self._read_state(connection, federation)
            return [account for number, account in sorted(state.accounts.items()) if number]

    def terms(self, federation: str, round_: int | None = None) -> Terms:
        """The terms in force for a round that is posted now; without one, the newest."""
        with reading(self.engine) as connection:
            state = self._read_state(connection, federation)
            return state.versions[-1].terms if round_ is None else state.version(round_).terms

    def versions(self, federation: str) -> list[Version]:
        """All versions of the terms, oldest first."""
        with reading(self.engine) as connection:
            return list(self._read_state(connection, federation).versions)

    # Entries

    def post(
        self,
        federation: str,
        run: str,
        round_: int,
        reports: Sequence[Report],
        gram: ArrayLike | None = None,
    ) -> Receipt:
        """Charge a round by the terms in force and book it: all of it or nothing.

        Posting the same round again with the same reports changes nothing (`posted` is False);
        with others it is refused, and the difference is named. In an open federation (terms without
        `members`) whoever reports and is unknown joins with this round. In a closed one all listed
        members must have joined, and those without a report count as missing.

        Args:
            federation: its name.
            run: which training run; rounds count from 1 in each.
            round_: t = 1, 2, …
            reports: one per member, in any order.
            gram: ⟨m_i, m_j⟩ of the ok updates as they counted, in the order of the reports, for
                the rules that read it.
        """
        check_name("run", run)
        _round("round", round_)
        reports = list(reports)

        def work(connection: Connection) -> Receipt:
            row = head_row(connection, federation, lock=True)
            state = self._state(connection, federation, row)
            stored = self._round(connection, state, run, round_)
            if stored is not None:
                content = stored.content
                refuse_other(state, content, reports, gram)
                return make_receipt(state, content, stored.hash, posted=False)
            version = state.version(round_)
            joins = newcomers(state, version, run, round_, reports)
            previous = row[2]
            if joins:
                previous = self._append(connection, state, previous, joins).hash
            rows = match_reports(state, version, run, round_, reports)
            body = round_content(state, version, round_, rows, permuted(gram, rows, reports))
            return self._append(
                connection, state, previous, [body | {"kind": "round", "run": run, "round": round_}]
            )

        return self._write(federation, work)

    def deposit(self, federation: str, member: str, units: int, reason: str = "") -> Receipt:
        """A member pays money in, ahead of its charges (negative: takes it out)."""
        if not units or abs(units) > LARGEST:
            raise BookError(f"deposit is {units}, must be 1 … {LARGEST} units, or that negative")

        def build(state: State) -> list[dict[str, Any]]:
            entries = {ESCROW: units, member_account(state, member).number: -units}
            return [_entries("deposit", entries) | {"reason": reason}]

        return self._change(federation, build, repeatable=False)

    def correct(
        self,
        federation: str,
        amounts: Mapping[str, int],
        reason: str,
        *,
        corrects: int | None = None,
    ) -> Receipt:
        """A counter-entry: what is wrong stays, and this stands beside it, with a reason.

        Args:
            federation: its name.
            amounts: units per member, summing to zero.
            reason: why; it is printed in statements.
            corrects: the sequence number of the record that was wrong.
        """
        if not reason.strip():
            raise BookError("a correction needs a reason")
        if sum(amounts.values()) or not any(amounts.values()):
            raise BookError(
                f"corrections must sum to zero and not be empty, these sum to "
                f"{sum(amounts.values())} units"
            )
        if max(map(abs, amounts.values())) > LARGEST:
            raise BookError(f"a correction passes the limit of 63 bits, {LARGEST} units")

        def build(state: State) -> list[dict[str, Any]]:
            if corrects is not None and not 1 <= corrects <= state.sequence:
                raise BookError(f"record {corrects} does not exist, the last is {state.sequence}")
            entries: dict[int, int] = {}
            for name, units in amounts.items():
                number = state.account(name).number
                if number in entries:
                    raise BookError(f"{name!r} stands twice in the correction")
                entries[number] = units
            return [_entries("correction", entries) | {"corrects": corrects, "reason": reason}]

        return self._change(federation, build, repeatable=False)

    def settle(self, federation: str, transfers: Sequence[Transfer], *, sequence: int) -> Receipt:
        """Book transfers that have been made.

        Args:
            federation: its name.
            transfers: who paid whom.
            sequence: the last record that the transfers were computed from; if the book has grown
                since, they are refused.
        """

        def build(state: State) -> list[dict[str, Any]]:
            if state.sequence != sequence:
                raise BookError(
                    f"the book grew from record {sequence} to {state.sequence} since the "
                    "settlement was computed; compute it again"
                )
            entries: dict[int, int] = {}
            rows: list[list[int]] = []
            for transfer in transfers:
                payer, receiver = (
                    state.account(transfer.payer).number,
                    state.account(transfer.receiver).number,
                )
                if transfer.amount <= 0 or payer == receiver:
                    raise BookError(f"{transfer} must move a positive amount between two members")
                entries[payer] = entries.get(payer, 0) - transfer.amount
                entries[receiver] = entries.get(receiver, 0) + transfer.amount
                rows.append([payer, receiver, transfer.amount])
            if not rows:
                return []
            return [_entries("settlement", entries) | {"transfers": rows}]

        return self._change(federation, build, repeatable=False)

    def adopt(
        self,
        federation: str,
        texts: Callable[[], Iterable[str]],
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Take over records that were verified before, in one transaction; see `import_book`.

        Args:
            federation: its name.
            texts: gives the canonical texts from the first record on.
            progress: called with the number of records read since the last call.

        Returns:
            How many records were new.
        """
        new = 0

        def work(connection: Connection) -> Receipt:
            nonlocal new
            new = 0
            row = head_row(connection, federation, lock=True)
            if row is None:
                state, last = self._begin(connection, federation), GENESIS
            else:
                state, last = State(row[0], federation), row[2]
                self._load(connection, state, row[1])
            known = state.sequence
            for text in texts():
                content = json.loads(text)
                sequence, hash_ = content["sequence"], digest(text)
                if sequence > known:
                    insert_record(connection, state, content, text, hash_)
                    state.apply(content)
                    last = hash_
                    new += 1
                elif self._hash(connection, state, sequence) != hash_:
                    raise BookError(
                        f"the book and the file have different histories from record {sequence} "
                        "on; import it into a book of its own"
                    )
                if progress is not None:
                    progress(1)
            self._advance(connection, state, last)
            self._states[federation] = state
            return Receipt(new > 0, state.sequence, last, {}, {})

        self._write(federation, work)
        return new

    # Reading

    def balances(self, federation: str) -> dict[str, int]:
        """What each member owes (negative: is owed), in units; with the escrow account if used."""
        return self.snapshot(federation)[2]

    def snapshot(self, federation: str) -> tuple[int, str, dict[str, int]]:
        """The last record's sequence number and hash, and the balances up to it."""
        with reading(self.engine) as connection:
            state = self._read_state(connection, federation)
            return state.sequence, state.hash, self._balances(connection, state)

    def watch(self, federation: str) -> list[Over]:
        """Members who owe more than their limit, the farthest first."""
        with reading(self.engine) as connection:
            state = self._read_state(connection, federation)
            balances = self._balances(connection, state)
        over: list[Over] = []
        for number, account in state.accounts.items():
            limit = state.limit(number)
            balance = balances.get(account.member, 0)
            if number != ESCROW and limit is not None and balance > limit:
                over.append(Over(account.member, account.label, balance, limit))
        return sorted(over, key=lambda o: (o.limit - o.balance, o.member))

    def rounds(self, federation: str, run: str | None = None) -> list[tuple[str, int, int, str]]:
        """The rounds as (run, round, sequence, hash), in the order of the chain."""
        table = schema.record
        with reading(self.engine) as connection:
            state = self._read_state(connection, federation)
            wanted = select(table.c.run, table.c.round, table.c.sequence, table.c.hash).where(
                table.c.federation == state.id, table.c.kind == "round"
            )
            if run is not None:
                wanted = wanted.where(table.c.run == run)
            return [tuple(row) for row in connection.execute(wanted.order_by(table.c.sequence))]

    def last_round(self, federation: str, run: str) -> int | None:
        """The highest round of a run in the book."""
        table = schema.record
        with reading(self.engine) as connection:
            state = self._read_state(connection, federation)
            last = select(func.max(table.c.round)).where(
                table.c.federation == state.id, table.c.run == run
            )
            return connection.scalar(last)

    def head(self, federation: str) -> tuple[int, str]:
        """The last record's sequence number and hash."""
        with reading(self.engine) as connection:
            row = found_row(head_row(connection, federation), federation)
            return row[1], row[2]

    def records(self, federation: str, after: int = 0) -> Iterator[Record]:
        """All records after a sequence number, in order; a few at a time in memory."""
        table = schema.record
        with reading(self.engine) as connection:
            row = found_row(head_row(connection, federation), federation)
            last = row[1]
            while after < last:
                batch = connection.execute(
                    select(table.c.sequence, table.c.hash, table.c.content)
                    .where(table.c.federation == row[0], table.c.sequence > after)
                    .order_by(table.c.sequence)
                    .limit(_BATCH)
                ).all()
                if not batch:
                    raise BookError(f"record {after + 1} of {federation!r} is missing")
                for sequence, hash_, text in batch:
                    yield Record(sequence, hash_, text)
                after = batch[-1][0]

    def state(self, federation: str) -> State:
        """Terms, accounts and limits as they are now; a copy that nobody else changes."""
        with reading(self.engine) as connection:
            row = found_row(head_row(connection, federation), federation)
            return self._load(connection, State(row[0], federation), row[1])


def _round(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise BookError(f"{name} is {value!r}, must be a whole number ≥ 1")


def _entries(kind: str, amounts: Mapping[int, int]) -> dict[str, Any]:
    pairs = sorted(amounts.items())
    return {
        "kind": kind,
        "accounts": [number for number, _ in pairs],
        "amounts": [amount for _, amount in pairs],
    }
