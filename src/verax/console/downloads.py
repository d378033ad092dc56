"""Long downloads: the records of a book in parts, and a member's receipts with their proofs.

A receipt is a proof of C2SP (`tlog-proof`) that a round's record is in the book, under a checkpoint
that the operator signed. It contains the whole record, with everybody's numbers.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verax.ledger import Book, BookError
from verax.ledger.records import Record, RoundRecord
from verax.ledger.tree import leaf_hash, node_hash
from verax.ledger.witness import Log, make_checkpoint

#: Records that are read, and held in memory, at a time.
_RECORDS_AT_ONCE = 256


def batches(book: Book, federation: str, last: int) -> Iterator[list[Record]]:
    """The first `last` records in parts; each part is read by itself.

    Between two parts no transaction is open, so that a slow download holds no connection.
    """
    done = 0
    while done < last:
        most = min(_RECORDS_AT_ONCE, last - done)
        batch = list(islice(book.records(federation, after=done), most))
        if not batch:
            raise BookError(f"record {done + 1} of {federation!r} was removed")
        yield batch
        done += len(batch)


def receipt_lines(
    book: Book,
    federation: str,
    leaves: list[bytes],
    account: int,
    signer: tuple[str, Ed25519PrivateKey],
) -> Iterator[bytes]:
    """The receipts of all rounds of an account, a line each, as `verax ledger verify` reads them.

    Args:
        book: open for reading.
        federation: its name.
        leaves: the hashes of its records as they were followed.
        account: whose rounds.
        signer: the operator's key name and private key.
    """
    note, levels = make_checkpoint(Log(leaves), *signer), _levels(leaves)
    for batch in batches(book, federation, len(leaves)):
        for record in batch:
            index = record.sequence - 1
            if leaf_hash(record.data) != leaves[index]:
                raise BookError(f"record {record.sequence} is not the one that was there before")
            if isinstance(record.body, RoundRecord) and account in record.body.accounts:
                path = "".join(b64encode(each).decode() + "\n" for each in _path(levels, index))
                extra = b64encode(record.data).decode()
                proof = f"c2sp.org/tlog-proof@v1\nextra {extra}\nindex {index}\n{path}\n{note}"
                yield json.dumps({"receipt": proof}).encode() + b"\n"


def _levels(leaves: list[bytes]) -> list[list[bytes]]:
    """All levels of the Merkle tree from the leaves up; a last node without a partner moves up."""
    levels = [leaves]
    while len(levels[-1]) > 1:
        level = levels[-1]
        pairs = [node_hash(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        levels.append(pairs + level[len(level) & ~1 :])
    return levels


def _path(levels: list[list[bytes]], index: int) -> Iterator[bytes]:
    """The audit path of a leaf, from the leaf up: its partner on every level that has one."""
    for level in levels:
        if index ^ 1 < len(level):
            yield level[index ^ 1]
        index >>= 1
