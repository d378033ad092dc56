"""The database of a book: its transactions, reading records, and appending them to a chain.

A writer locks the federation's row, checks that the book ends where the row says, brings its state
of the federation up to date, appends, and reads back what it wrote. If the connection breaks, it
tries again: whatever was booked is then found in the book.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from verax.ledger.checks import check
from verax.ledger.engine import BookError, BookUnavailableError, make_engine, reading, writing
from verax.ledger.names import as_seen
from verax.ledger.records import (
    GENESIS,
    Body,
    FoundingRecord,
    JoinRecord,
    Record,
    decode,
    encode,
)
from verax.ledger.schema import by_position, check_schema, create_tables, is_sqlite, qualified
from verax.ledger.state import FederationState

_ATTEMPTS = 4
_BATCH = 256
_CREATION_LOCK = 0x7665726178  # any number that is the same in all processes

_HEAD = "SELECT id, sequence, hash FROM {s}federation WHERE name = :name"
_LOCK = _HEAD + " FOR UPDATE"
_RECORDS = (
    "SELECT sequence, content FROM {s}record WHERE federation = :f AND sequence > :after "
    "AND sequence <= :last ORDER BY sequence LIMIT :n"
)
_LAST = (
    "SELECT sequence, content FROM {s}record WHERE federation = :f ORDER BY sequence DESC LIMIT 1"
)
_CONTENT = "SELECT content FROM {s}record WHERE federation = :f AND sequence = :n"
_ENTRIES = (
    "SELECT account, amount FROM {s}entry WHERE federation = :f AND sequence = :n ORDER BY account"
)
_INSERT_FEDERATION = (
    "INSERT INTO {s}federation (name, sequence, hash) VALUES (:name, 0, :hash) RETURNING id"
)
_INSERT_RECORD = "INSERT INTO {s}record (federation, sequence, content) VALUES (:f, :n, :content)"
_INSERT_ENTRY = (
    "INSERT INTO {s}entry (federation, sequence, account, amount) VALUES ({v}, {v}, {v}, {v})"
)
_INSERT_ACCOUNT = (
    "INSERT INTO {s}account (federation, account, member, label) "
    "VALUES (:f, :account, :member, :label) "
    "ON CONFLICT (federation, account) DO UPDATE SET label = excluded.label"
)
_ADVANCE = (
    "UPDATE {s}federation SET sequence = :last, hash = :hash WHERE id = :f AND sequence = :before"
)
# The upper and lower halves are summed separately: the sum of many amounts can exceed 63 bits.
_SUMS = (
    "SELECT account, sum(amount >> 32), sum(amount & 4294967295) FROM {s}entry "
    "WHERE federation = :f GROUP BY account"
)
_NO_INTEGERS = (
    "SELECT 1 FROM {s}entry WHERE federation = :f AND typeof(amount) <> 'integer' LIMIT 1"
)
_ACCOUNTS = "SELECT account, member, label FROM {s}account WHERE federation = :f"


@dataclass(frozen=True)
class Receipt:
    """The result of a change to the book.

    Attributes:
        posted: False if the book already had the same record.
        sequence: the record's place in the chain.
        hash: its hash.
        amounts: minor units per member; a positive amount is owed by the member.
        payments: for a round, the real payments that the amounts were made of.
    """

    posted: bool
    sequence: int
    hash: str
    amounts: dict[str, int]
    payments: dict[str, float]


class Head(NamedTuple):
    """A federation's id and the end of its chain."""

    id: int
    sequence: int
    hash: str


class Store:
    """The database of a book, without the meaning of its records."""

    def __init__(
        self,
        url: str | Path,
        *,
        wait: float = 30.0,
        read_only: bool = False,
        clock: Callable[[], datetime] | None = None,
        _create: bool = False,
    ) -> None:
        self.engine = make_engine(url, wait=wait, create=_create, read_only=read_only)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._states: dict[str, FederationState] = {}
        self._lock = threading.RLock()
        try:
            if _create:
                with writing(self.engine) as connection:
                    if not is_sqlite(connection):
                        # Two processes may create the same book at once; SQLite locks the file.
                        lock = f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"
                        connection.exec_driver_sql(lock)
                    create_tables(connection)
            with reading(self.engine) as connection:
                check_schema(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Reading

    @contextmanager
    def _reading(self, federation: str) -> Generator[tuple[Connection, FederationState]]:
        """A read-only transaction and the federation as it is in it."""
        with self._lock, reading(self.engine) as connection:
            yield connection, self._current(connection, federation)

    def _current(
        self, connection: Connection, federation: str, *, lock: bool = False
    ) -> FederationState:
        """The state at the end of the chain; `lock` locks it against other writers."""
        head = find_head(connection, federation, lock=lock)
        state = self._states.get(federation)
        if (
            state is None
            or state.id != head.id
            or state.sequence > head.sequence
            or (state.sequence == head.sequence and state.hash != head.hash)
        ):
            state = self._states[federation] = FederationState(head.id, federation)
        for content in read_contents(connection, head, state.sequence):
            try:
                record = decode(content)
                check(state, record, charges=False)
                state.apply(record)
            except ValueError as error:
                words = f"has a record {state.sequence + 1} that cannot be used ({error})"
                raise BookError(_advice(federation, words)) from error
        if state.sequence < head.sequence:
            raise BookError(_advice(federation, f"has no record {state.sequence + 1}"))
        if state.hash != head.hash:
            raise BookError(_advice(federation, "does not end with the hash that it states"))
        return state

    def _record(self, connection: Connection, state: FederationState, sequence: int) -> Record:
        return read_record(connection, state.id, state.name, sequence)

    def _check_indexes(self, connection: Connection, state: FederationState) -> None:
        """Refuse to go on if `entry` or `account` say anything else than the records."""
        rows = connection.execute(qualified(connection, _SUMS), {"f": state.id})
        sums = {number: (int(upper) << 32) + int(lower) for number, upper, lower in rows}
        if is_sqlite(connection):  # which stores any type in any column
            query = qualified(connection, _NO_INTEGERS)
            sums |= {None: 1} if connection.execute(query, {"f": state.id}).first() else {}
        accounts = connection.execute(qualified(connection, _ACCOUNTS), {"f": state.id})
        named = {number: (member, label) for number, member, label in accounts}
        known = {n: (a.member, a.label) for n, a in state.accounts.items() if n}
        balances = {number: amount for number, amount in state.balances.items() if amount}
        if {n: amount for n, amount in sums.items() if amount} != balances or named != known:
            raise BookError(
                f"the tables `entry` and `account` of {state.name!r} differ from its records; "
                "`verax ledger verify` says where, `verax ledger rebuild` makes them anew"
            )

    # Writing

    def _write(self, federation: str, work: Callable[[Connection], Receipt]) -> Receipt:
        """Run `work` in a transaction; repeat it if the connection broke.

        If the connection breaks during the commit, nobody knows whether the commit took place; the
        second attempt then finds in the book what the first one booked.
        """
        with self._lock:
            for attempt in range(_ATTEMPTS):
                try:
                    with writing(self.engine) as connection:
                        return work(connection)
                except BookUnavailableError as error:
                    self._states.pop(federation, None)
                    # Another writer inserted the same record between two statements.
                    conflict = isinstance(error.__cause__, IntegrityError)
                    if not (conflict or error.connection_lost) or attempt == _ATTEMPTS - 1:
                        raise
                    time.sleep(0.05 * 2**attempt)
                except BaseException:
                    self._states.pop(federation, None)
                    raise
            raise AssertionError("unreachable")

    def _change(
        self, federation: str, build: Callable[[FederationState], Sequence[Body]]
    ) -> Receipt:
        """Append the records that `build` returns for the current state; none changes nothing."""

        def work(connection: Connection) -> Receipt:
            state = self._current(connection, federation, lock=True)
            return self._append(connection, state, build(state))

        return self._write(federation, work)

    def _append(
        self, connection: Connection, state: FederationState, bodies: Sequence[Body]
    ) -> Receipt:
        """Append records to the chain, with their entries."""
        if not bodies:
            return Receipt(False, state.sequence, state.hash, {}, {})
        self._check_end(connection, state)
        now = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before, records = state.sequence, list[Record]()
        for body in bodies:
            try:
                record = decode(encode(state.name, state.sequence + 1, state.hash, now, body))
            except ValueError as error:
                raise BookError(f"the {body.kind} cannot be booked: {error}") from None
            # The charge of a new round was computed a moment ago.
            check(state, record, charges=False)
            self._insert(connection, state, record)
            records.append(record)
        self._advance(connection, state, before)
        return make_receipt(state, records[-1], posted=True)

    def _check_end(self, connection: Connection, state: FederationState) -> None:
        """The last record in the table must be the one that the state ends with."""
        row = connection.execute(qualified(connection, _LAST), {"f": state.id}).one_or_none()
        stored = (0, GENESIS) if row is None else (row[0], sha256(row[1]).hexdigest())
        if stored != (state.sequence, state.hash):
            words = f"ends at record {stored[0]}, not with record {state.sequence} as it states"
            raise BookError(_advice(state.name, words))

    def _insert(self, connection: Connection, state: FederationState, record: Record) -> None:
        """Insert one record with its account and entries, read it back, and update the state."""
        body, key = record.body, {"f": state.id, "n": record.sequence}
        if isinstance(body, JoinRecord):
            insert_account(connection, state.id, body.account, body.member, body.label)
        insert = qualified(connection, _INSERT_RECORD)
        connection.execute(insert, key | {"content": record.data})
        entries = insert_entries(connection, state.id, record)
        content = connection.execute(qualified(connection, _CONTENT), key).scalar_one()
        stored = connection.execute(qualified(connection, _ENTRIES), key).all() if entries else []
        if content != record.data or [tuple(row) for row in stored] != entries:
            raise BookError(_advice(state.name, "did not store what was written"))
        state.apply(record)

    def _advance(self, connection: Connection, state: FederationState, before: int) -> None:
        """Store the end of the chain, and read it back."""
        values = {"f": state.id, "last": state.sequence, "hash": state.hash, "before": before}
        connection.execute(qualified(connection, _ADVANCE), values)
        if find_head(connection, state.name) != (state.id, state.sequence, state.hash):
            raise BookError(_advice(state.name, "did not store the new end of the chain"))

    def _insert_federation(self, connection: Connection, federation: str) -> FederationState:
        """Insert a federation that has no record yet, with a name unlike all others."""
        names = connection.scalars(qualified(connection, "SELECT name FROM {s}federation"))
        for name in names:
            if as_seen(name) == as_seen(federation):
                raise BookError(f"{federation!r} looks like the federation {name!r} in the book")
        values = {"name": federation, "hash": GENESIS}
        inserted = connection.execute(qualified(connection, _INSERT_FEDERATION), values)
        state = FederationState(inserted.scalar_one(), federation)
        self._states[federation] = state
        return state

    def _found(self, connection: Connection, federation: str, terms: str) -> Receipt:
        state = self._insert_federation(connection, federation)
        return self._append(connection, state, [FoundingRecord(terms)])


def insert_entries(
    connection: Connection, federation: int, record: Record
) -> list[tuple[int, int]]:
    """Insert the rows of `entry` that a record has; an amount of zero has no row."""
    entries = [(number, amount) for number, amount in record.entries if amount]
    if entries:
        # By the driver itself: naming every value of every row would take as long as storing it.
        rows = [(federation, record.sequence, *entry) for entry in entries]
        connection.exec_driver_sql(by_position(connection, _INSERT_ENTRY), rows)
    return entries


def insert_account(
    connection: Connection, federation: int, account: int, member: str, label: str
) -> None:
    """Insert the account of a new member, or update the label of a known one."""
    values = {"f": federation, "account": account, "member": member, "label": label}
    connection.execute(qualified(connection, _INSERT_ACCOUNT), values)


def lookup_head(connection: Connection, federation: str, *, lock: bool = False) -> Head | None:
    """The end of a federation's chain, or None; `lock` locks it against other writers."""
    statement = _LOCK if lock and not is_sqlite(connection) else _HEAD
    row = connection.execute(qualified(connection, statement), {"name": federation}).one_or_none()
    if row is not None and (type(row[1]) is not int or type(row[2]) is not str):
        raise BookError(_advice(federation, "states an end that is none"))
    return None if row is None else Head(*row)


def find_head(connection: Connection, federation: str, *, lock: bool = False) -> Head:
    """The end of a federation's chain, or an error that says what to do."""
    head = lookup_head(connection, federation, lock=lock)
    if head is None:
        raise BookError(
            f"{federation!r} is not in the book; `verax ledger create --federation` creates it"
        )
    return head


def make_receipt(state: FederationState, record: Record, *, posted: bool) -> Receipt:
    """A receipt for a record, with members instead of account numbers."""
    names = [state.accounts[number].member for number, _ in record.entries]
    amounts = [amount for _, amount in record.entries]
    payments: Any = getattr(record.body, "payments", ())
    return Receipt(
        posted,
        record.sequence,
        record.hash,
        dict(zip(names, amounts, strict=True)),
        dict(zip(names, payments, strict=False)),
    )


def read_contents(connection: Connection, head: Head, after: int) -> Iterator[Any]:
    """The stored bytes of the records after one of them; only a batch is in memory at a time."""
    query = qualified(connection, _RECORDS)
    while after < head.sequence:
        values = {"f": head.id, "after": after, "last": head.sequence, "n": _BATCH}
        rows = connection.execute(query, values).all()
        yield from (content for _, content in rows)
        after = rows[-1][0] if rows else head.sequence


def read_record(connection: Connection, id_: int, federation: str, sequence: int) -> Record:
    """The record of a federation with a sequence number, as it is stored."""
    values = {"f": id_, "n": sequence}
    content = connection.execute(qualified(connection, _CONTENT), values).scalar()
    if content is None:
        raise BookError(_advice(federation, f"has no record {sequence}"))
    try:
        return decode(content)
    except ValueError as error:
        words = f"has a record {sequence} that cannot be used ({error})"
        raise BookError(_advice(federation, words)) from error


def _advice(federation: str, words: str) -> str:
    return (
        f"the book of {federation!r} {words}; `verax ledger verify` says what is wrong; restore a "
        "backup, or import an export"
    )
