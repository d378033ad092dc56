"""Where the records lie: tables, transactions, the end of a chain and what is remembered of it.

A writer locks the federation's row, reads the end of the chain, brings what it remembers of the
federation up to there, and appends. If a connection breaks it starts again, unless that could book
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
from typing import Any, Self

from sqlalchemy import Connection, func, inspect, literal_column, select, update
from sqlalchemy.exc import IntegrityError

from verax.ledger import schema
from verax.ledger.canonical import GENESIS, digest, encode
from verax.ledger.engine import (
    BookError,
    BookUnavailableError,
    Writer,
    make_engine,
    reading,
)
from verax.ledger.sql import ADVANCE, HEAD, LOCK, RECORD, ROUND, insert_entries
from verax.ledger.state import ESCROW, State

__all__ = ["Receipt", "Record", "Store", "found_row", "head_row", "insert_record", "make_receipt"]

_ATTEMPTS = 4


@dataclass(frozen=True)
class Receipt:
    """What a change to the book came to.

    Attributes:
        posted: False where the book already said the same.
        sequence: the record's place in the chain.
        hash: its hash.
        amounts: units per member; positive: the member owes.
        payments: for a round, the real payments that the amounts were made of.
    """

    posted: bool
    sequence: int
    hash: str
    amounts: dict[str, int]
    payments: dict[str, float]


@dataclass(frozen=True)
class Record:
    """A record as it stands in the book."""

    sequence: int
    hash: str
    text: str

    @property
    def content(self) -> dict[str, Any]:
        """The parsed canonical text."""
        return json.loads(self.text)


class Store:
    """The database side of a book."""

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
        self._writer = Writer(self.engine)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._states: dict[str, State] = {}
        self._lock = threading.RLock()
        try:
            if _create:
                self._make_tables()
            self._check_schema()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back all connections."""
        self._writer.close()
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

    def _make_tables(self) -> None:
        from verax.ledger.migrations import upgrade  # Alembic takes long to load

        with self._writer.transaction() as connection:
            tables = set(inspect(connection).get_table_names())
            if tables and "alembic_version" not in tables:
                raise BookError(
                    f"the database holds other tables ({', '.join(sorted(tables)[:3])}, …); "
                    "give the book a database of its own"
                )
        try:
            with self._writer.transaction() as connection:
                if not _revision(connection):
                    upgrade(connection)
        except BookUnavailableError as error:
            if not isinstance(error.__cause__, IntegrityError):  # another process was faster
                raise

    def _check_schema(self) -> None:
        with reading(self.engine) as connection:
            found = _revision(connection)
        if found is None:
            raise BookError("the database holds no book; `verax ledger init` makes one")
        if found > schema.REVISION:
            raise BookError(
                f"the book has schema {found}, this Verax knows up to {schema.REVISION}; "
                "install the newer Verax that wrote it"
            )
        if found < schema.REVISION:
            raise BookError(
                f"the book has the older schema {found}, this Verax works with {schema.REVISION}; "
                "`verax ledger init` brings it up to date"
            )

    def _write(
        self, federation: str, work: Callable[[Connection], Receipt], repeatable: bool = True
    ) -> Receipt:
        """Run `work` in a transaction; again if the connection broke and nothing can double."""
        with self._lock:
            for attempt in range(_ATTEMPTS):
                done = False
                try:
                    with self._writer.transaction() as connection:
                        receipt = work(connection)
                        done = True
                except BookUnavailableError as error:
                    self._states.pop(federation, None)
                    raced = isinstance(error.__cause__, IntegrityError)
                    again = raced or (error.lost and (repeatable or not done))
                    if not again or attempt == _ATTEMPTS - 1:
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
        build: Callable[[State], list[dict[str, Any]]],
        *,
        repeatable: bool = True,
    ) -> Receipt:
        """Append what `build` makes of the state, or nothing."""

        def work(connection: Connection) -> Receipt:
            row = head_row(connection, federation, lock=True)
            state = self._state(connection, federation, row)
            bodies = build(state)
            if not bodies:
                return Receipt(False, row[1], row[2], {}, {})
            return self._append(connection, state, row[2], bodies)

        return self._write(federation, work, repeatable)

    def _append(
        self, connection: Connection, state: State, previous: str, bodies: list[dict[str, Any]]
    ) -> Receipt:
        """Chain the bodies to the book and write them with their entries."""
        now = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        receipt = Receipt(False, state.sequence, previous, {}, {})
        for body in bodies:
            content = body | {
                "federation": state.name,
                "previous": previous,
                "sequence": state.sequence + 1,
                "time": now,
                "version": 1,
            }
            text = encode(content)
            previous = digest(text)
            insert_record(connection, state, content, text, previous)
            state.apply(content)
            receipt = make_receipt(state, content, previous, posted=True)
        self._advance(connection, state, previous)
        return receipt

    def _advance(self, connection: Connection, state: State, hash_: str) -> None:
        """Move the end of the chain."""
        ADVANCE.run(connection, number=state.id, last=state.sequence, end=hash_)
        state.hash = hash_

    def _begin(self, connection: Connection, federation: str) -> State:
        """A federation without a record yet."""
        table = schema.federation
        made = connection.execute(
            table.insert().values(name=federation, sequence=0, hash=GENESIS).returning(table.c.id)
        )
        return State(made.scalar_one(), federation)

    def _state(self, connection: Connection, federation: str, row: Any) -> State:
        """The remembered state, brought up to the end of the chain."""
        number, sequence, hash_ = found_row(row, federation)
        state = self._states.get(federation)
        if (
            state is None
            or state.id != number
            or state.sequence > sequence
            or (state.sequence == sequence and state.hash != hash_)
        ):
            state = self._states[federation] = State(number, federation)
        if state.sequence < sequence:
            self._load(connection, state, sequence)
        state.hash = hash_
        return state

    def _read_state(self, connection: Connection, federation: str) -> State:
        row = found_row(head_row(connection, federation), federation)
        with self._lock:
            return self._state(connection, federation, row)

    def _load(self, connection: Connection, state: State, sequence: int) -> State:
        table = schema.record
        news = (
            select(table.c.content)
            .where(
                table.c.federation == state.id,
                table.c.sequence > state.sequence,
                table.c.sequence <= sequence,
                table.c.kind != "round",
            )
            .order_by(table.c.sequence)
        )
        for text in connection.scalars(news):
            try:
                state.apply(json.loads(text))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise BookError(
                    f"a record of {state.name!r} after {state.sequence} cannot be read; "
                    "`verax ledger verify` says which, an export or a backup has it"
                ) from error
        state.sequence = sequence
        return state

    def _hash(self, connection: Connection, state: State, sequence: int) -> str:
        table = schema.record
        wanted = select(table.c.hash).where(
            table.c.federation == state.id, table.c.sequence == sequence
        )
        return connection.execute(wanted).scalar_one()

    def _round(self, connection: Connection, state: State, run: str, round_: int) -> Record | None:
        row = ROUND.run(connection, number=state.id, which=run, t=round_)
        return None if row is None else Record(*row)

    def _balances(self, connection: Connection, state: State) -> dict[str, int]:
        table = schema.entry
        # Upper and lower halves are summed apart: a sum of many amounts can pass 63 bits.
        sums = (
            select(
                table.c.account,
                func.sum(table.c.amount.bitwise_rshift(literal_column("32"))),
                func.sum(table.c.amount.bitwise_and(literal_column("4294967295"))),
            )
            .where(table.c.federation == state.id)
            .group_by(table.c.account)
        )
        found = {n: (int(up) << 32) + int(low) for n, up, low in connection.execute(sums)}
        return {
            account.member: found.get(number, 0)
            for number, account in sorted(state.accounts.items())
            if number != ESCROW or ESCROW in found
        }


def insert_record(
    connection: Connection, state: State, content: Mapping[str, Any], text: str, hash_: str
) -> None:
    """One record with its account and entries: all that is written of it."""
    if content["kind"] == "join" and content["account"] not in state.accounts:
        connection.execute(
            schema.account.insert(),
            {
                "federation": state.id,
                "account": content["account"],
                "member": content["member"],
                "label": content["label"],
            },
        )
    elif content["kind"] == "join":
        table = schema.account
        connection.execute(
            update(table)
            .where(table.c.federation == state.id, table.c.account == content["account"])
            .values(label=content["label"])
        )
    sequence = content["sequence"]
    RECORD.run(
        connection,
        federation=state.id,
        sequence=sequence,
        kind=content["kind"],
        run=content["run"] if content["kind"] == "round" else None,
        round=content.get("round"),
        hash=hash_,
        content=text,
    )
    if "amounts" in content:
        insert_entries(connection, state.id, sequence, content["accounts"], content["amounts"])


def head_row(connection: Connection, federation: str, *, lock: bool = False) -> Any:
    """A federation's id and the end of its chain, or None; locked against other writers."""
    return (LOCK if lock else HEAD).run(connection, name=federation)


def found_row(row: Any, federation: str) -> Any:
    """The row, or an error that says what to do."""
    if row is None:
        raise BookError(
            f"{federation!r} is not in the book; `verax ledger init --federation` founds it"
        )
    return row


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def make_receipt(state: State, content: Mapping[str, Any], hash_: str, *, posted: bool) -> Receipt:
    """What a record says, by member instead of by account number."""
    accounts = state.accounts
    names = [accounts[number].member for number in content.get("accounts", ())]
    return Receipt(
        posted,
        content["sequence"],
        hash_,
        dict(zip(names, content.get("amounts", ()), strict=True)),
        dict(zip(names, content.get("payments", ()), strict=False)),
    )
