"""A federation's book as one file (JSON Lines), and back; and backups of whole books.

Every line of an export is the bytes of a record, so the SHA-256 of a line is the `previous` of the
next one. The last line holds the last sequence number, its hash and the root of the Merkle tree.
"""

from __future__ import annotations

import json
import re
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import IO

from verax.files import write_with
from verax.ledger.book import Book
from verax.ledger.engine import BookError
from verax.ledger.records import GENESIS, decode
from verax.ledger.tree import leaf_hash, root

_BATCH = 500


def default_name(federation: str, ending: str) -> str:
    """A safe file name in the current folder for a federation with any name.

    Example:
        >>> default_name("../../etc/passwd", ".jsonl")
        'etc_passwd.jsonl'
    """
    return (re.sub(r"[^A-Za-z0-9-]+", "_", federation).strip("_") or "book")[:80] + ending


def export_book(
    book: Book, federation: str, path: Path, progress: Callable[[int], None] | None = None
) -> int:
    """Write a federation's book to a file, completely or not at all.

    Returns:
        The number of records.
    """
    lines = 0

    def fill(file: IO[bytes]) -> None:
        nonlocal lines
        for line in export_lines(book, federation):
            file.write(line)
            lines += 1
            if progress is not None and lines % _BATCH == 0:
                progress(_BATCH)

    write_with(path, fill)
    return lines - 1  # the last line is no record


def export_lines(book: Book, federation: str) -> Iterator[bytes]:
    """The lines of an export: one per record, and the last one."""
    leaves: list[bytes] = []
    hash_ = GENESIS
    for record in book.records(federation):
        leaves.append(leaf_hash(record.data))
        hash_ = record.hash
        yield record.data + b"\n"
    yield _end_line(leaves, hash_)


def exported_lines(path: Path) -> Iterator[bytes]:
    """The records of an export; raises an error if its last line does not fit them."""
    last, hash_ = b"", GENESIS
    leaves: list[bytes] = []
    with path.open("rb") as file:
        for line in file:
            if last:
                data = last.removesuffix(b"\n")
                leaves.append(leaf_hash(data))
                hash_ = sha256(data).hexdigest()
                yield data
            last = line
    if last != _end_line(leaves, hash_):
        raise BookError(f"{path} does not end as an export of these records: it was cut or changed")


def _end_line(leaves: list[bytes], hash_: str) -> bytes:
    end = {"end": len(leaves), "hash": hash_, "root": b64encode(root(leaves)).decode()}
    return json.dumps(end).encode() + b"\n"


def import_book(
    book: Book, path: Path, progress: Callable[[int], None] | None = None
) -> tuple[str, int]:
    """Import an export: a new federation, or the records that a federation does not have yet.

    Every record passes the checks that a new one does, and every charge is computed again.

    Returns:
        The federation and how many records were new.
    """
    try:
        federation = decode(next(exported_lines(path))).federation
        return federation, book.import_records(federation, lambda: exported_lines(path), progress)
    except (ValueError, StopIteration) as error:
        raise BookError(f"{path} is not imported: {error or 'it is empty'}") from error


def backup_book(book: Book, path: Path) -> None:
    """Copy a book while it is in use: a SQLite file, or for PostgreSQL a folder of exports.

    Copying the file of a live SQLite book would lose what is only in its write-ahead log.
    """
    if path.exists():
        raise BookError(f"{path} exists already; give another file for the backup")
    if book.engine.dialect.name != "sqlite":
        path.mkdir(parents=True)
        for i, federation in enumerate(book.federations(), 1):
            export_book(book, federation, path / f"{i}-{default_name(federation, '.jsonl')}")
        return
    part = path.with_name(f".{path.name}.part")
    try:
        with book.engine.connect() as connection, closing(sqlite3.connect(part)) as target:
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)
            source.backup(target)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    with Book.open(path, read_only=True) as copy:
        for federation in copy.federations():
            copy.snapshot(federation)  # reads and checks every record
