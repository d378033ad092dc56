"""The schema's history, in Alembic; `upgrade` brings a database to the newest."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

__all__ = ["config", "upgrade"]


def config(connection: Connection) -> Config:
    """Alembic's settings for a connection that is open and in a transaction."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings


def upgrade(connection: Connection) -> None:
    """Make or bring up to date all tables, in the connection's transaction."""
    command.upgrade(config(connection), "head")
