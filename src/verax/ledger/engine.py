"""Connections to SQLite and PostgreSQL, durable by default, and their errors in plain words.

SQLite uses a write-ahead log that is synced at every commit (`synchronous=FULL`); a writer holds
the write lock from its first statement on (`BEGIN IMMEDIATE`). PostgreSQL is as durable as the
server is configured to be; a writer locks the federation's row. Both wait for a lock for a limited
time and then raise an error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

_WRITE = "verax_write"


class BookError(ValueError):
    """The request cannot be booked; nothing was changed."""


class BookUnavailableError(OSError):
    """The database cannot be reached, read or written now; nothing was changed.

    Attributes:
        connection_lost: whether the connection broke, so that a new attempt may succeed.
    """

    connection_lost: bool = False


def book_url(book: str | Path) -> URL:
    """The database's URL, from a path or a URL."""
    text = str(book)
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser()))
    try:
        url = make_url(text)
    except ArgumentError:
        raise BookError(
            "the book's URL cannot be read; give a path or a postgresql:// URL"
        ) from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise BookError("a book in memory would be lost; give a file, as in sqlite:///book.db")
    if url.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise BookError(
            f"books are kept in SQLite or PostgreSQL, not {url.drivername}; "
            "give a path or a postgresql:// URL"
        )
    return url


def make_engine(book: str | Path, *, wait: float, create: bool, read_only: bool) -> Engine:
    """An engine for a book; it waits `wait` seconds for the locks of other writers."""
    url = book_url(book)
    if url.get_backend_name() == "sqlite":
        return _sqlite(Path(url.database or ""), wait, create, read_only)
    return _postgres(url, wait, read_only)


@contextmanager
def writing(engine: Engine) -> Generator[Connection]:
    """A transaction that writes; on SQLite it holds the write lock from its start."""
    with (
        readable(),
        engine.connect().execution_options(**{_WRITE: True}) as connection,
        connection.begin(),
    ):
        yield connection


@contextmanager
def reading(engine: Engine) -> Generator[Connection]:
    """A read-only transaction: all statements see the same state of the book."""
    with readable(), engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


def _sqlite(path: Path, wait: float, create: bool, read_only: bool) -> Engine:
    if path.is_dir():
        raise BookUnavailableError(f"{path} is a folder; give the file of a book")
    if not path.parent.is_dir():
        raise BookUnavailableError(f"{path.parent} does not exist; create the folder first")
    if not create and not path.exists():
        raise BookUnavailableError(
            f"{path} does not exist; `verax ledger create {path}` creates a book"
        )

    def connect() -> sqlite3.Connection:
        if not read_only:
            return _connect(str(path), wait)
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        try:
            connection = _connect(uri, wait)
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            # SQLite cannot create its -shm file in a read-only directory; without a -wal file
            # nobody writes, and the database can be opened as immutable.
            if error.sqlite_errorname not in ("SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY"):
                raise
            if path.with_name(path.name + "-wal").exists():
                raise
            connection = _connect(uri + "&immutable=1", wait)
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        cursor = connection.cursor()
        if not read_only:
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        write = connection.get_execution_options().get(_WRITE)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _connect(path: str, wait: float) -> sqlite3.Connection:
    # With isolation_level None the driver begins no transaction by itself; `_begin` does.
    return sqlite3.connect(
        path,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,
        uri=path.startswith("file:"),
    )


def _postgres(url: URL, wait: float, read_only: bool) -> Engine:
    # Nothing but PostgreSQL's own functions is found without naming its schema.
    options = ["-c search_path=pg_catalog", f"-c lock_timeout={int(wait * 1000)}"]
    if read_only:
        options.append("-c default_transaction_read_only=on")
    given = {"options": " ".join(options), "connect_timeout": max(1, round(wait))}
    try:
        return create_engine(url, connect_args=given)
    except (ImportError, NoSuchModuleError):
        raise BookUnavailableError(
            "PostgreSQL needs a driver: pip install 'psycopg[binary]'"
        ) from None


_SQLITE = {
    "SQLITE_BUSY": "is locked by another writer; wait until it is done and try again",
    "SQLITE_LOCKED": "is locked by another writer; wait until it is done and try again",
    "SQLITE_FULL": "cannot grow: the disk is full; free some space and try again",
    "SQLITE_READONLY": "is read-only; make the file and its folder writable",
    "SQLITE_CORRUPT": "is damaged; restore a backup, or import an export",
    "SQLITE_NOTADB": "is not a SQLite database, or is damaged; check the path, or restore a backup",
    "SQLITE_CANTOPEN": "cannot be opened; check the path and the rights of its folder",
    "SQLITE_IOERR_WRITE": "cannot grow: the disk is full; free some space and try again",
    "SQLITE_IOERR": "cannot be read or written: the disk reports an error or is full",
    "SQLITE_PERM": "may not be used by this user; check the rights of the file",
    "SQLITE_AUTH": "may not be used by this user; check the rights of the file",
}
_POSTGRES = {
    "25006": "is read-only; connect as a user who may write, or to the primary server",
    "40001": "was changed by another writer at the same moment; try again",
    "40P01": "was changed by another writer at the same moment; try again",
    "55P03": "is locked by another writer; wait until it is done and try again",
    "53100": "cannot grow: the server's disk is full; free some space and try again",
    "53300": "has too many connections; try again later",
    "3D000": "does not exist on the server; create the database first",
    "42501": "may not be changed by this user; ask for the right to its tables",
    "28P01": "refused the password; check the URL",
    "28000": "refused the user; check the URL",
}


@contextmanager
def readable() -> Generator[None]:
    """Turn errors of the database into one line that says what to do."""
    try:
        yield
    except DBAPIError as error:
        raise _translate(error.orig, error.connection_invalidated) from error
    except SQLAlchemyError as error:
        raise BookUnavailableError(f"the database failed: {_line(error)}") from error


def _translate(error: BaseException | None, connection_lost: bool) -> Exception:
    name = getattr(error, "sqlite_errorname", None)
    state = getattr(error, "sqlstate", None)
    if name is not None:
        # Extended error codes begin with a basic one: SQLITE_READONLY_DIRECTORY, …
        remedy = _SQLITE.get(name) or _SQLITE.get("_".join(name.split("_")[:2]))
    elif state is not None:
        remedy = _POSTGRES.get(state)
        connection_lost = connection_lost or (remedy is None and state.startswith(("08", "57")))
    else:
        remedy = None
        connection_lost = connection_lost or "onnect" in str(error)
    if remedy is None and connection_lost:
        remedy = f"cannot be reached or the connection broke ({_line(error)}); try again"
    translated = BookUnavailableError(f"the book {remedy or 'failed: ' + _line(error)}")
    translated.connection_lost = connection_lost
    return translated


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:200]
