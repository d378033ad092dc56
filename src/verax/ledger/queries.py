"""Reading a book: members, terms, balances, rounds and records. Nothing here changes it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

from verax.ledger.engine import reading
from verax.ledger.records import Record, decode
from verax.ledger.schema import qualified
from verax.ledger.state import ESCROW, Account, FederationState, TermsVersion
from verax.ledger.store import Store, find_head, read_contents, read_record
from verax.mechanism import Terms


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
            query = qualified(connection, "SELECT name FROM {s}federation")
            return sorted(connection.scalars(query))

    def members(self, federation: str) -> list[Account]:
        """The accounts of all members that ever joined, in the order in which they joined."""
        with self._reading(federation) as (_, state):
            return [account for number, account in sorted(state.accounts.items()) if number]

    def terms(self, federation: str, round_: int | None = None, run: str | None = None) -> Terms:
        """The terms of a round that is posted now; without a round, the newest.

        With its run, the terms that the round was opened with.
        """
        with self._reading(federation) as (_, state):
            return state.versions[-1].terms if round_ is None else state.version(round_, run).terms

    def version(self, federation: str, round_: int, run: str) -> TermsVersion:
        """The same with their text and its hash."""
        with self._reading(federation) as (_, state):
            return state.version(round_, run)

    def versions(self, federation: str) -> list[TermsVersion]:
        """All versions of the terms, the oldest first."""
        with self._reading(federation) as (_, state):
            return list(state.versions)

    def balances(self, federation: str) -> dict[str, int]:
        """What each member owes, in minor units; a negative balance is owed to the member.

        The escrow account is included if it was used. The balances come from the records; an error
        says so if the table of entries differs from them.
        """
        return self.snapshot(federation)[2]

    def snapshot(self, federation: str) -> tuple[int, str, dict[str, int]]:
        """The last record's sequence number and hash, and the balances up to it."""
        with self._reading(federation) as (connection, state):
            self._check_indexes(connection, state)
            return state.sequence, state.hash, state.balances_by_member()

    def over_limit(self, federation: str) -> list[OverLimit]:
        """Members whose debt exceeds their limit, the largest excess first."""
        over: list[OverLimit] = []
        with self._reading(federation) as (_, state):
            for number, account in state.accounts.items():
                limit = state.limit(number)
                balance = state.balances.get(number, 0)
                if number != ESCROW and limit is not None and balance > limit:
                    over.append(OverLimit(account.member, account.label, balance, limit))
        return sorted(over, key=lambda each: (each.limit - each.balance, each.member))

    def rounds(self, federation: str, run: str | None = None) -> list[tuple[str, int, int, str]]:
        """The rounds as (run, round, sequence, hash), in the order of the chain."""
        with self._reading(federation) as (_, state):
            return [
                (of_run, t, sequence, hash_)
                for (of_run, t), (sequence, hash_) in state.rounds.items()
                if run in (None, of_run)
            ]

    def last_round(self, federation: str, run: str) -> int | None:
        """The highest round of a run in the book."""
        return max((t for _, t, _, _ in self.rounds(federation, run)), default=None)

    def head(self, federation: str) -> tuple[int, str]:
        """The last record's sequence number and hash."""
        with self._reading(federation) as (_, state):
            return state.sequence, state.hash

    def length(self, federation: str) -> int:
        """How many records there are, by the table alone: nothing is read or checked."""
        with reading(self.engine) as connection:
            return find_head(connection, federation).sequence

    def records(self, federation: str, after: int = 0) -> Iterator[Record]:
        """All records after a sequence number, in order; only a batch is in memory at a time."""
        with reading(self.engine) as connection:
            head = find_head(connection, federation)
            yield from map(decode, read_contents(connection, head, after))

    def record(self, federation: str, sequence: int) -> Record:
        """The record with a sequence number, as it is stored: nothing before it is read."""
        with reading(self.engine) as connection:
            head = find_head(connection, federation)
            return read_record(connection, head.id, federation, sequence)

    def leaves(self, federation: str) -> list[bytes]:
        """The hashes of all records in the Merkle tree."""
        with self._reading(federation) as (_, state):
            return list(state.leaves)

    def state(self, federation: str) -> FederationState:
        """Terms, accounts, balances and limits as they are now; a copy of the caller's own."""
        with self._reading(federation) as (_, state):
            return deepcopy(state)
