"""Four tables. What counts is `record`; the others are indices into it that the verifier checks.

A record holds its canonical text, so that what was hashed is what is stored. `entry` repeats its
amounts, one row per account that is not zero, for SQL; `account` gives a member its number;
`federation` holds the end of the chain, and its row is what writers lock.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = ["REVISION", "account", "entry", "federation", "metadata", "record"]

#: The Alembic revision that these tables are.
REVISION = "0001"

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

federation = Table(
    "federation",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)

account = Table(
    "account",
    metadata,
    Column("federation", ForeignKey("federation.id"), primary_key=True),
    Column("account", Integer, primary_key=True, autoincrement=False),
    Column("member", Text, nullable=False),
    Column("label", Text, nullable=False),
    UniqueConstraint("federation", "member"),
    sqlite_with_rowid=False,
)

record = Table(
    "record",
    metadata,
    Column("federation", ForeignKey("federation.id"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("run", Text),
    Column("round", BigInteger),
    Column("hash", String(64), nullable=False),
    Column("content", Text, nullable=False),
    UniqueConstraint("federation", "run", "round"),
    CheckConstraint("(kind = 'round') = (run IS NOT NULL AND round IS NOT NULL)", name="key"),
    # Not `WITHOUT ROWID` in SQLite: contents are long, and its pages are for short rows.
)

entry = Table(
    "entry",
    metadata,
    # No foreign keys: they would cost a look-up a row, and the verifier checks more than they do.
    Column("federation", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("account", Integer, primary_key=True, autoincrement=False),
    Column("amount", BigInteger, nullable=False),
    CheckConstraint("amount <> 0", name="amount"),
    sqlite_with_rowid=False,
)
