"""The SQL of every post, written by SQLAlchemy once and then run by the driver as it is.

To build and run a statement costs SQLAlchemy more time than SQLite, which is therefore asked by its
driver; PostgreSQL through SQLAlchemy, which notices when a connection broke.
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
    """A statement whose text is kept for each kind of database."""

    def __init__(self, statement: Executable) -> None:
        self._statement: Any = statement
        self._texts: dict[str, tuple[str, list[str] | None]] = {}

    def run(self, connection: Connection, **values: Any) -> Any:
        """With a value for each of its parameters; the row that it finds, or None."""
        text, order = self._text(connection)
        if order is not None:
            return self.run_in_order(connection, [values[name] for name in order])
        found = connection.exec_driver_sql(text, values)
        return found.one_or_none() if found.returns_rows else None

    def run_in_order(self, connection: Connection, values: Sequence[Any]) -> Any:
        """The same on SQLite, with the values in the order of the parameters."""
        driver: Any = connection.connection.driver_connection
        return driver.execute(self._text(connection)[0], values).fetchone()

    def _text(self, connection: Connection) -> tuple[str, list[str] | None]:
        """Its SQL, and the order of its parameters where they go by place: on SQLite."""
        dialect = connection.dialect
        found = self._texts.get(dialect.name)
        if found is None:
            made = self._statement.compile(dialect=dialect)
            found = self._texts[dialect.name] = (str(made), made.positiontup)
        return found


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

# PostgreSQL takes all entries of a record in one statement, as two arrays.
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

# SQLite takes many rows in one statement at twice the speed of one by one; no more than this, so
# that there are few texts to keep, and less than 999 parameters, its oldest limit.
_MOST_ROWS = 128


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
    """The rows in `entry` of a record; an amount of zero has none."""
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
    for start in range(0, len(rows), _MOST_ROWS * width):
        part = rows[start : start + _MOST_ROWS * width]
        _rows(len(part) // width).run_in_order(connection, part)
