"""A federation's book as one file (JSON Lines), and back.

Every line is a record's canonical text, so the SHA-256 of a line is the `previous` of the next one.
The last line holds the last sequence number and hash and the balances. `verify` reads the file;
`import_book` inserts it into a database after the verifier has found nothing wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from verax.files import write_with
from verax.ledger.book import Book
from verax.ledger.canonical import encode
from verax.ledger.engine import BookError
from verax.ledger.store import entries_of
from verax.ledger.verify import verify

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
    count = 0

    def fill(file: IO[bytes]) -> None:
        nonlocal count
        for line in _export_lines(book, federation):
            file.write(line)
            count += 1
            if progress is not None and count % _BATCH == 0:
                progress(_BATCH)

    write_with(path, fill)
    return count - 1


def _export_lines(book: Book, federation: str) -> Iterator[bytes]:
    balances: dict[int, int] = {0: 0}
    members: dict[int, str] = {0: "escrow"}
    sequence, hash_ = 0, ""
    for record in book.records(federation):
        content = record.content
        if content["kind"] == "join":
            members[content["account"]] = content["member"]
        for number, amount in entries_of(content):
            balances[number] = balances.get(number, 0) + amount
        sequence, hash_ = record.sequence, record.hash
        yield record.text.encode() + b"\n"
    by_member = {members[number]: amount for number, amount in balances.items() if amount}
    end = {"balances": by_member, "hash": hash_, "kind": "end", "sequence": sequence}
    yield encode(end).encode() + b"\n"


def import_book(
    book: Book, path: Path, progress: Callable[[int], None] | None = None
) -> tuple[str, int]:
    """Import an export: a new federation, or the records that a federation does not have yet.

    Returns:
        The federation and how many records were new.
    """
    checked = verify(path)
    if not checked.ok:
        wrong = next(each for each in checked.findings if each.kind != "unchecked")
        raise BookError(f"{path} is not imported: {wrong.message}")

    def texts() -> Iterator[str]:
        with path.open("rb") as file:
            for line, _ in zip(file, range(checked.sequence), strict=False):
                yield line.decode().removesuffix("\n")

    return checked.federation, book.import_records(checked.federation, texts, progress)
