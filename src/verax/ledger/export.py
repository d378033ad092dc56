"""A federation's book as one file: every line is a record's canonical text, the bytes hashed.

So `sha256` of a line is what the next one calls `previous`. A last line tells the end: sequence,
hash and balances. `verify` reads the file, and `import_book` puts it into a database, after the
verifier has found nothing wrong.
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
from verax.ledger.verify import verify

__all__ = ["default_name", "export_book", "import_book"]

_BATCH = 500


def default_name(federation: str, ending: str) -> str:
    """A file name in the current folder from a name that may hold anything.

    Example:
        >>> default_name("../../etc/passwd", ".jsonl")
        'etc_passwd.jsonl'
    """
    return (re.sub(r"[^A-Za-z0-9-]+", "_", federation).strip("_") or "book")[:80] + ending


def export_book(
    book: Book, federation: str, path: Path, progress: Callable[[int], None] | None = None
) -> int:
    """Write a federation's book to a file, whole or not at all; returns the number of records."""
    count = 0

    def fill(file: IO[bytes]) -> None:
        nonlocal count
        for line in export_lines(book, federation):
            file.write(line)
            count += 1
            if progress is not None and count % _BATCH == 0:
                progress(_BATCH)

    write_with(path, fill)
    return count - 1


def export_lines(book: Book, federation: str) -> Iterator[bytes]:
    """The lines of an export."""
    balances: dict[int, int] = {0: 0}
    members: dict[int, str] = {0: "escrow"}
    sequence, hash_ = 0, ""
    for record in book.records(federation):
        content = record.content
        if content["kind"] == "join":
            members[content["account"]] = content["member"]
        for number, amount in zip(
            content.get("accounts", ()), content.get("amounts", ()), strict=True
        ):
            balances[number] = balances.get(number, 0) + amount
        sequence, hash_ = record.sequence, record.hash
        yield record.text.encode() + b"\n"
    named = {members[number]: amount for number, amount in balances.items() if amount}
    end = {"balances": named, "hash": hash_, "kind": "end", "sequence": sequence}
    yield encode(end).encode() + b"\n"


def import_book(
    book: Book, path: Path, progress: Callable[[int], None] | None = None
) -> tuple[str, int]:
    """Take an export into a book: a new federation, or the records that are missing at its end.

    Returns:
        The federation and how many records were new.
    """
    checked = verify(path)
    if not checked.ok:
        raise BookError(f"{path} is not imported: {checked.findings[0].message}")

    def texts() -> Iterator[str]:
        with path.open("rb") as file:
            for line, _ in zip(file, range(checked.sequence), strict=False):
                yield line.decode().removesuffix("\n")

    return checked.federation, book.adopt(checked.federation, texts, progress)
