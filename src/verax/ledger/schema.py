"""The tables. `record` is authoritative; the other tables repeat parts of it for queries.

`record` stores the canonical text, so that the stored bytes are the hashed bytes. `entry` repeats
the amounts, one row per amount that is not zero. `account` maps account numbers to members.
`federation` stores the end of the chain; writers lock its row. The verifier compares the other
tables with the records. `verax_schema` stores the version of these tables.
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

#: The version of these tables; a book with another version is not opened.
VERSION = 1

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

version = Table("verax_schema", metadata, Column("number", Integer, nullable=False))

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
    # Not `WITHOUT ROWID` in SQLite, which is meant for short rows: contents are long.
)

entry = Table(
    "entry",
    metadata,
    # No foreign keys: each would cost a look-up per row, and the verifier checks more than they do.
    Column("federation", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("account", Integer, primary_key=True, autoincrement=False),
    Column("amount", BigInteger, nullable=False),
    CheckConstraint("amount <> 0", name="amount"),
    sqlite_with_rowid=False,
)
