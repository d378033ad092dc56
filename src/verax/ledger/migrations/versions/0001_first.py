"""The first schema: federations, accounts, records, entries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the four tables."""
    op.create_table(
        "federation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_federation"),
        sa.UniqueConstraint("name", name="uq_federation_name"),
    )
    op.create_table(
        "account",
        sa.Column("federation", sa.Integer(), nullable=False),
        sa.Column("account", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("member", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("federation", "account", name="pk_account"),
        sa.UniqueConstraint("federation", "member", name="uq_account_federation_member"),
        sa.ForeignKeyConstraint(["federation"], ["federation.id"], name="fk_account_federation"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "record",
        sa.Column("federation", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("run", sa.Text()),
        sa.Column("round", sa.BigInteger()),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("federation", "sequence", name="pk_record"),
        sa.UniqueConstraint("federation", "run", "round", name="uq_record_federation_run_round"),
        sa.ForeignKeyConstraint(["federation"], ["federation.id"], name="fk_record_federation"),
        sa.CheckConstraint(
            "(kind = 'round') = (run IS NOT NULL AND round IS NOT NULL)", name="key"
        ),
    )
    op.create_table(
        "entry",
        sa.Column("federation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("account", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("federation", "sequence", "account", name="pk_entry"),
        sa.CheckConstraint("amount <> 0", name="amount"),
        sqlite_with_rowid=False,
    )
