"""The SQL statements of a post, compiled by SQLAlchemy once and kept as text.

For SQLite the driver runs the text directly, because SQLAlchemy would take longer to run a
statement than SQLite itself. For PostgreSQL SQLAlchemy runs it, because it notices when a
connection broke.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    Executable,
    Integer,
    bindparam,
    func,
    select,
    update,
)

from verax.ledger import schema

__all__ = ["ADVANCE", "HEAD", "LOCK", "RECORD", "ROUND", "insert_entries"]


class _Prepared:
    """A statement whose SQL text is cached for each database dialect."""

    def __init__(self, statement: Executable) -> None:
        self._statement: Any = statement
        self._texts: dict[str, tuple[str, list[str] | None]] = {}

    def run(self, connection: Connection, **values: Any) -> Any:
        """Run the statement with a value for each parameter; returns its row, or None."""
        text, order = self._text(connection)
        if order is not None:
            return self.run_in_order(connection, [values[name] for name in order])
        result = connection.exec_driver_sql(text, values)
        return result.one_or_none() if result.returns_rows else None

    def run_in_order(self, connection: Connection, values: Sequence[Any]) -> Any:
        """Run the statement on SQLite, with the values in the order of the parameters."""
        driver: Any = connection.connection.driver_connection
        return driver.execute(self._text(connection)[0], values).fetchone()

    def _text(self, connection: Connection) -> tuple[str, list[str] | None]:
        """The SQL text, and for SQLite the order of its positional parameters."""
        dialect = connection.dialect
        if dialect.name not in self._texts:
            compiled = self._statement.compile(dialect=dialect)
            self._texts[dialect.name] = (str(compiled), compiled.positiontup)
        return self._texts[dialect.name]


HEAD = _Prepared(
    _head := select(
        schema.federation.c.id, schema.federation.c.sequence, schema.federation.c.hash
    ).where(schema.federation.c.name == bindparam("name"))
)
LOCK = _Prepared(_head.with_for_update())
ADVANCE = _Prepared(
    update(schema.federation)
    .where(schema.federation.c.id == bindparam("number"))
    .values(sequence=bindparam("last"), hash=bindparam("end"))
)
ROUND = _Prepared(
    select(schema.record.c.sequence, schema.record.c.hash, schema.record.c.content).where(
        schema.record.c.federation == bindparam("number"),
        schema.record.c.run == bindparam("which"),
        schema.record.c.round == bindparam("t"),
    )
)
RECORD = _Prepared(schema.record.insert())

# On PostgreSQL one statement inserts all entries of a record, from two arrays.
_PAIRS = (
    func.unnest(
        bindparam("accounts", type_=ARRAY(Integer)), bindparam("amounts", type_=ARRAY(BigInteger))
    )
    .table_valued("account", "amount")
    .render_derived()
)
_ARRAYS = _Prepared(
    schema.entry.insert().from_select(
        ["federation", "sequence", "account", "amount"],
        select(
            bindparam("number", type_=Integer),
            bindparam("place", type_=BigInteger),
            _PAIRS.c.account,
            _PAIRS.c.amount,
        ),
    )
)

# On SQLite one statement with many rows is twice as fast as one statement per row. The limit keeps
# the number of cached texts small and the parameters below 999, the limit of old SQLite versions.
_MAX_ROWS = 128


@cache
def _rows(count: int) -> _Prepared:
    return _Prepared(schema.entry.insert().values([dict.fromkeys(schema.entry.c, 0)] * count))


def insert_entries(
    connection: Connection,
    federation: int,
    sequence: int,
    accounts: Sequence[int],
    amounts: Sequence[int],
) -> None:
    """Insert a record's rows into `entry`; an amount of zero has no row."""
    if connection.dialect.name == "sqlite":
        rows: list[int] = []
        for account, amount in zip(accounts, amounts, strict=True):
            if amount:
                rows += (federation, sequence, account, amount)
        _insert_rows(connection, rows)
    elif pairs := [pair for pair in zip(accounts, amounts, strict=True) if pair[1]]:
        numbers, units = map(list, zip(*pairs, strict=True))
        _ARRAYS.run(connection, number=federation, place=sequence, accounts=numbers, amounts=units)


def _insert_rows(connection: Connection, rows: list[int]) -> None:
    width = len(schema.entry.c)
    for start in range(0, len(rows), _MAX_ROWS * width):
        part = rows[start : start + _MAX_ROWS * width]
        _rows(len(part) // width).run_in_order(connection, part)
