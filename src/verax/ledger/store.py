"""The database of a book: its tables, its transactions, and appending records to a chain.

A writer locks the federation's row, reads the end of the chain, brings its cached state of the
federation up to date, and appends. If the connection breaks, it tries again, unless that could book
something twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, bindparam, func, insert, inspect, literal_column, select, update
from sqlalchemy.exc import IntegrityError

from verax.ledger import schema
from verax.ledger.canonical import GENESIS, digest, encode
from verax.ledger.engine import BookError, BookUnavailableError, make_engine, reading, writing
from verax.ledger.state import ESCROW, FederationState

_ATTEMPTS = 4
_CREATION_LOCK = 0x7665726178  # any number that is the same in all processes

# The statements of every post are built once: building one takes longer than running it.
_HEAD = select(*schema.federation.c["id", "sequence", "hash"]).where(
    schema.federation.c.name == bindparam("name")
)
_LOCK = _HEAD.with_for_update()
_ROUND = select(*schema.record.c["sequence", "hash", "content"]).where(
    *(schema.record.c[key] == bindparam(key) for key in ("federation", "run", "round"))
)
_ADVANCE = (
    update(schema.federation)
    .where(schema.federation.c.id == bindparam("number"))
    .values(sequence=bindparam("last"), hash=bindparam("end"))
)


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


@dataclass(frozen=True)
class Record:
    """A record as it is stored in the book."""

    sequence: int
    hash: str
    text: str

    @property
    def content(self) -> dict[str, Any]:
        """The parsed canonical text."""
        return json.loads(self.text)


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
                self._create_tables()
            self._check_schema()
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

    def _create_tables(self) -> None:
        with writing(self.engine) as connection:
            if connection.dialect.name == "postgresql":
                # Two processes may create the same book at once; SQLite's write lock prevents it.
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
            tables = set(inspect(connection).get_table_names())
            if tables and schema.version.name not in tables:
                raise BookError(
                    f"the database holds other tables ({', '.join(sorted(tables)[:3])}, …); "
                    "give the book a database of its own"
                )
            if not tables:
                schema.metadata.create_all(connection)
                connection.execute(insert(schema.version), {"number": schema.VERSION})

    def _check_schema(self) -> None:
        with reading(self.engine) as connection:
            number = None
            if inspect(connection).has_table(schema.version.name):
                number = connection.scalar(select(schema.version.c.number))
        if number is None:
            raise BookError("the database holds no book; `verax ledger create` creates one")
        if number != schema.VERSION:
            raise BookError(
                f"the book has schema {number}, this version of Verax works with schema "
                f"{schema.VERSION}; use the version of Verax that wrote the book"
            )

    def _write(
        self, federation: str, work: Callable[[Connection], Receipt], repeatable: bool = True
    ) -> Receipt:
        """Run `work` in a transaction; repeat it if the connection broke and nothing was booked.

        If the connection breaks during the commit, nobody knows whether the commit took place; then
        only work that books nothing twice is repeated.
        """
        with self._lock:
            for attempt in range(_ATTEMPTS):
                reached_commit = False
                try:
                    with writing(self.engine) as connection:
                        receipt = work(connection)
                        reached_commit = True
                except BookUnavailableError as error:
                    self._states.pop(federation, None)
                    # Another writer inserted the same record between two statements.
                    conflict = isinstance(error.__cause__, IntegrityError)
                    safe = repeatable or not reached_commit
                    if not (conflict or (error.connection_lost and safe)):
                        raise
                    if attempt == _ATTEMPTS - 1:
                        raise
                    time.sleep(0.05 * 2**attempt)
                except BaseException:
                    self._states.pop(federation, None)
                    raise
                else:
                    return receipt
            raise AssertionError("unreachable")

    def _change(
        self,
        federation: str,
        build: Callable[[FederationState], list[dict[str, Any]]],
        *,
        repeatable: bool = True,
    ) -> Receipt:
        """Append the records that `build` returns for the current state; none changes nothing."""

        def work(connection: Connection) -> Receipt:
            state = self._current(connection, federation, lock=True)
            return self._append(connection, state, build(state))

        return self._write(federation, work, repeatable)

    def _append(
        self, connection: Connection, state: FederationState, bodies: list[dict[str, Any]]
    ) -> Receipt:
        """Append records to the chain, with their entries."""
        now = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        receipt = Receipt(False, state.sequence, state.hash, {}, {})
        for body in bodies:
            content = body | {
                "federation": state.name,
                "previous": state.hash,
                "sequence": state.sequence + 1,
                "time": now,
                "version": 1,
            }
            insert_record(connection, state, content, encode(content))
            receipt = make_receipt(state, content, state.hash, posted=True)
        if bodies:
            advance(connection, state)
        return receipt

    def _insert_federation(self, connection: Connection, federation: str) -> FederationState:
        """Insert a federation that has no record yet."""
        table = schema.federation
        inserted = connection.execute(
            table.insert().values(name=federation, sequence=0, hash=GENESIS).returning(table.c.id)
        )
        return FederationState(inserted.scalar_one(), federation)

    def _state(self, connection: Connection, federation: str, head: Head) -> FederationState:
        """The cached state, brought up to the end of the chain."""
        state = self._states.get(federation)
        if (
            state is None
            or state.id != head.id
            or state.sequence > head.sequence
            or (state.sequence == head.sequence and state.hash != head.hash)
        ):
            state = self._states[federation] = FederationState(head.id, federation)
        if state.sequence < head.sequence:
            self._load(connection, state, head.sequence)
        state.hash = head.hash
        return state

    def _current(
        self, connection: Connection, federation: str, *, lock: bool = False
    ) -> FederationState:
        """The state at the end of the chain; `lock` locks it against other writers."""
        head = find_head(connection, federation, lock=lock)
        with self._lock:
            return self._state(connection, federation, head)

    def _load(
        self, connection: Connection, state: FederationState, sequence: int
    ) -> FederationState:
        """Apply the records after the state up to a sequence number; rounds do not change it."""
        table = schema.record
        later = (
            select(table.c.content)
            .where(
                table.c.federation == state.id,
                table.c.sequence > state.sequence,
                table.c.sequence <= sequence,
                table.c.kind != "round",
            )
            .order_by(table.c.sequence)
        )
        for text in connection.scalars(later):
            try:
                state.apply(json.loads(text))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise BookError(
                    f"a record of {state.name!r} after record {state.sequence} cannot be read; "
                    "`verax ledger verify` names it; restore a backup, or import an export"
                ) from error
        state.sequence = sequence
        return state

    def _hash(self, connection: Connection, state: FederationState, sequence: int) -> str:
        table = schema.record
        query = select(table.c.hash).where(
            table.c.federation == state.id, table.c.sequence == sequence
        )
        return connection.execute(query).scalar_one()

    def _round(
        self, connection: Connection, state: FederationState, run: str, round_: int
    ) -> Record | None:
        values = {"federation": state.id, "run": run, "round": round_}
        row = connection.execute(_ROUND, values).one_or_none()
        return None if row is None else Record(*row)

    def _balances(self, connection: Connection, state: FederationState) -> dict[str, int]:
        table = schema.entry
        # The upper and lower halves are summed separately: the sum of many amounts can exceed
        # 63 bits.
        query = (
            select(
                table.c.account,
                func.sum(table.c.amount.bitwise_rshift(literal_column("32"))),
                func.sum(table.c.amount.bitwise_and(literal_column("4294967295"))),
            )
            .where(table.c.federation == state.id)
            .group_by(table.c.account)
        )
        rows = connection.execute(query)
        sums = {number: (int(upper) << 32) + int(lower) for number, upper, lower in rows}
        return {
            account.member: sums.get(number, 0)
            for number, account in sorted(state.accounts.items())
            if number != ESCROW or ESCROW in sums
        }


def insert_record(
    connection: Connection, state: FederationState, content: Mapping[str, Any], text: str
) -> None:
    """Insert one record with its account and entries, and update the state by it."""
    if content["kind"] == "join":
        _store_account(connection, state, content)
    hash_ = digest(text)
    key = {"federation": state.id, "sequence": content["sequence"]}
    row = {
        "kind": content["kind"],
        "run": content["run"] if content["kind"] == "round" else None,
        "round": content.get("round"),
        "hash": hash_,
        "content": text,
    }
    connection.execute(insert(schema.record), key | row)
    # An amount of zero has no row.
    entries = [key | {"account": n, "amount": units} for n, units in entries_of(content) if units]
    if entries:
        connection.execute(insert(schema.entry), entries)
    state.apply(content)
    state.hash = hash_


def advance(connection: Connection, state: FederationState) -> None:
    """Store the end of the chain."""
    values = {"number": state.id, "last": state.sequence, "end": state.hash}
    connection.execute(_ADVANCE, values)


def _store_account(
    connection: Connection, state: FederationState, content: Mapping[str, Any]
) -> None:
    """Insert the account of a new member, or update the label of a known one."""
    table = schema.account
    number, label = content["account"], content["label"]
    if number in state.accounts:
        connection.execute(
            update(table)
            .where(table.c.federation == state.id, table.c.account == number)
            .values(label=label)
        )
        return
    values = {"federation": state.id, "account": number, "member": content["member"]}
    connection.execute(table.insert(), values | {"label": label})


def lookup_head(connection: Connection, federation: str, *, lock: bool = False) -> Head | None:
    """The end of a federation's chain, or None; `lock` locks it against other writers."""
    row = connection.execute(_LOCK if lock else _HEAD, {"name": federation}).one_or_none()
    return None if row is None else Head(*row)


def find_head(connection: Connection, federation: str, *, lock: bool = False) -> Head:
    """The end of a federation's chain, or an error that says what to do."""
    head = lookup_head(connection, federation, lock=lock)
    if head is None:
        raise BookError(
            f"{federation!r} is not in the book; `verax ledger create --federation` creates it"
        )
    return head


def entries_of(content: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Account number and amount of each entry of a record; empty if it has no entries."""
    return list(zip(content.get("accounts", ()), content.get("amounts", ()), strict=True))


def make_receipt(
    state: FederationState, content: Mapping[str, Any], hash_: str, *, posted: bool
) -> Receipt:
    """A receipt for a record, with members instead of account numbers."""
    names = [state.accounts[number].member for number in content.get("accounts", ())]
    return Receipt(
        posted,
        content["sequence"],
        hash_,
        dict(zip(names, content.get("amounts", ()), strict=True)),
        dict(zip(names, content.get("payments", ()), strict=False)),
    )
