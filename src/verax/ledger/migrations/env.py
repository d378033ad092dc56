"""Alembic's entry point: it runs in the transaction of the connection that `config` holds."""

from __future__ import annotations

from alembic import context

from verax.ledger.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
context.run_migrations()
