"""Reading a book: members, terms, balances, rounds and records. Nothing here changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import func, select

from verax.ledger import schema
from verax.ledger.engine import BookError, reading
from verax.ledger.state import ESCROW, Account, FederationState, TermsVersion
from verax.ledger.store import Record, Store, find_head
from verax.mechanism import Terms

_BATCH = 256


@dataclass(frozen=True)
class OverLimit:
    """A member whose debt exceeds its limit; amounts in minor units."""

    member: str
    label: str
    balance: int
    limit: int


class BookReader(Store):
    """The methods of a book that read it."""

    def federations(self) -> list[str]:
        """The names of all federations in the book."""
        with reading(self.engine) as connection:
            names = select(schema.federation.c.name).order_by(schema.federation.c.name)
            return list(connection.scalars(names))

    def members(self, federation: str) -> list[Account]:
        """The accounts of all members that ever joined, in the order in which they joined."""
        with reading(self.engine) as connection:
            state = self._current(connection, federation)
            return [account for number, account in sorted(state.accounts.items()) if number]

    def terms(self, federation: str, round_: int | None = None) -> Terms:
        """The terms in force for a round that is posted now; without a round, the newest."""
        with reading(self.engine) as connection:
            state = self._current(connection, federation)
            return state.versions[-1].terms if round_ is None else state.version(round_).terms

    def versions(self, federation: str) -> list[TermsVersion]:
        """All versions of the terms, the oldest first."""
        with reading(self.engine) as connection:
            return list(self._current(connection, federation).versions)

    def balances(self, federation: str) -> dict[str, int]:
        """What each member owes, in minor units; a negative balance is owed to the member.

        The escrow account is included if it was used.
        """
        return self.snapshot(federation)[2]

    def snapshot(self, federation: str) -> tuple[int, str, dict[str, int]]:
        """The last record's sequence number and hash, and the balances up to it."""
        with reading(self.engine) as connection:
            state = self._current(connection, federation)
            return state.sequence, state.hash, self._balances(connection, state)

    def over_limit(self, federation: str) -> list[OverLimit]:
        """Members whose debt exceeds their limit, the largest excess first."""
        with reading(self.engine) as connection:
            state = self._current(connection, federation)
            balances = self._balances(connection, state)
        over: list[OverLimit] = []
        for number, account in state.accounts.items():
            limit = state.limit(number)
            balance = balances.get(account.member, 0)
            if number != ESCROW and limit is not None and balance > limit:
                over.append(OverLimit(account.member, account.label, balance, limit))
        return sorted(over, key=lambda each: (each.limit - each.balance, each.member))

    def rounds(self, federation: str, run: str | None = None) -> list[tuple[str, int, int, str]]:
        """The rounds as (run, round, sequence, hash), in the order of the chain."""
        table = schema.record
        with reading(self.engine) as connection:
            state = self._current(connection, federation)
            query = select(table.c.run, table.c.round, table.c.sequence, table.c.hash).where(
                table.c.federation == state.id, table.c.kind == "round"
            )
            if run is not None:
                query = query.where(table.c.run == run)
            return [tuple(row) for row in connection.execute(query.order_by(table.c.sequence))]

    def last_round(self, federation: str, run: str) -> int | None:
        """The highest round of a run in the book."""
        table = schema.record
        with reading(self.engine) as connection:
            state = self._current(connection, federation)
            query = select(func.max(table.c.round)).where(
                table.c.federation == state.id, table.c.run == run
            )
            return connection.scalar(query)

    def head(self, federation: str) -> tuple[int, str]:
        """The last record's sequence number and hash."""
        with reading(self.engine) as connection:
            head = find_head(connection, federation)
            return head.sequence, head.hash

    def records(self, federation: str, after: int = 0) -> Iterator[Record]:
        """All records after a sequence number, in order; only a batch is in memory at a time."""
        table = schema.record
        with reading(self.engine) as connection:
            head = find_head(connection, federation)
            while after < head.sequence:
                batch = connection.execute(
                    select(table.c.sequence, table.c.hash, table.c.content)
                    .where(table.c.federation == head.id, table.c.sequence > after)
                    .order_by(table.c.sequence)
                    .limit(_BATCH)
                ).all()
                if not batch:
                    raise BookError(f"record {after + 1} of {federation!r} is missing")
                for sequence, hash_, text in batch:
                    yield Record(sequence, hash_, text)
                after = batch[-1][0]

    def state(self, federation: str) -> FederationState:
        """Terms, accounts and limits as they are now; a copy of the caller's own."""
        with reading(self.engine) as connection:
            head = find_head(connection, federation)
            state = FederationState(head.id, federation)
            return self._load(connection, state, head.sequence)
