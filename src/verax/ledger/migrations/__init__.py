"""The versions of the schema, in Alembic; `upgrade` brings a database to the newest one."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

__all__ = ["config", "upgrade"]


def config(connection: Connection) -> Config:
    """Alembic's settings for a connection that has an open transaction."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings


def upgrade(connection: Connection) -> None:
    """Create all tables or bring them up to date, in the connection's transaction."""
    command.upgrade(config(connection), "head")
