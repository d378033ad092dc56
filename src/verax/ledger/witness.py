"""Checkpoints, proofs and witnesses: how members notice if they are shown different books.

A checkpoint states the root of the Merkle tree over all records. A witness signs a checkpoint only
if it continues the last one that it has seen, so two members who trust the same witness see the
same book. Proofs are texts of C2SP: `tlog-proof` shows that a record is in the book; the request of
`tlog-witness` shows that a book only grew.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verax.ledger.book import Book
from verax.ledger.engine import BookError
from verax.ledger.export import exported_lines
from verax.ledger.notes import Checkpoint, Note, cosign, sign
from verax.ledger.tree import (
    consistency_proof,
    inclusion_proof,
    is_consistent,
    leaf_hash,
    root,
    root_of_inclusion,
)


@dataclass(frozen=True)
class Log:
    """The hashes of all records of one book, or of the beginning of it."""

    leaves: list[bytes]

    @property
    def origin(self) -> str:
        """The name of the log in checkpoints."""
        return f"verax/{self.leaves[0].hex()[:32]}"

    def checkpoint(self, size: int | None = None) -> Checkpoint:
        """The checkpoint of the first records, by default of all."""
        size = len(self.leaves) if size is None else size
        return Checkpoint(self.origin, size, root(self.leaves[:size]))

    def holds(self, checkpoint: Checkpoint) -> bool:
        """Whether this log had the checkpoint at some time."""
        return checkpoint.size <= len(self.leaves) and checkpoint == self.checkpoint(
            checkpoint.size
        )


def read_log(source: str | Path, federation: str | None = None) -> Log:
    """The log of a book or of an export."""
    with _records(str(source), federation) as records:
        leaves = [leaf_hash(data) for data in records]
    if not leaves:
        raise BookError(f"{source} holds no record")
    return Log(leaves)


@contextmanager
def _records(source: str, federation: str | None) -> Generator[Iterator[bytes]]:
    if "://" not in source:
        with Path(source).open("rb") as file:
            is_database = file.read(15) == b"SQLite format 3"
        if not is_database:
            yield exported_lines(Path(source))
            return
    with Book.open(source, read_only=True) as book:
        names = [federation] if federation else book.federations()
        if len(names) != 1:
            raise BookError(f"which federation? the book holds {', '.join(map(repr, names))}")
        yield (record.data for record in book.records(names[0]))


def make_checkpoint(log: Log, name: str, key: Ed25519PrivateKey) -> Note:
    """A checkpoint of the whole log, signed by the operator."""
    return sign(log.checkpoint(), name, key)


def growth_proof(log: Log, note: Note, old: int) -> str:
    """The proof that the checkpoint continues the one of the first `old` records."""
    proof: list[bytes] = []
    if old:
        proof = consistency_proof(log.leaves[: note.checkpoint.size], old)
    return f"old {old}\n{_lines(proof)}\n{note}"


def presence_proof(log: Log, note: Note, sequence: int, data: bytes) -> str:
    """The proof that a record, which it contains, is the one with this sequence number."""
    proof = inclusion_proof(log.leaves[: note.checkpoint.size], sequence - 1)
    extra = b64encode(data).decode()
    head = f"c2sp.org/tlog-proof@v1\nextra {extra}\nindex {sequence - 1}\n"
    return f"{head}{_lines(proof)}\n{note}"


def check_presence(text: str) -> tuple[int, bytes, Note]:
    """Check such a proof against its own checkpoint; returns sequence number, record and note."""
    try:
        head, blank, rest = text.partition("\n\n")
        title, extra, index, *hashes = head.split("\n")
        if (
            title != "c2sp.org/tlog-proof@v1"
            or not blank
            or extra[:6] + index[:6] != "extra index "
        ):
            raise ValueError
        data, place = b64decode(extra[6:], validate=True), int(index[6:])
        proof = [b64decode(line, validate=True) for line in hashes]
        note = Note.parse(rest)
        size = note.checkpoint.size
        if not 0 <= place < size:
            raise ValueError
        if root_of_inclusion(leaf_hash(data), place, size, proof) != note.checkpoint.root:
            raise BookError(f"the proof does not show that record {place + 1} is in the book")
    except BookError:
        raise
    except ValueError:
        raise BookError("the text is not a proof (C2SP tlog-proof)") from None
    return place + 1, data, note


def witness(
    note: Note,
    seen: Checkpoint | None,
    evidence: Log | list[bytes],
    name: str,
    key: Ed25519PrivateKey,
    time: int,
) -> Note:
    """The note with a witness's signature, unless it contradicts what the witness has seen.

    Args:
        note: the checkpoint to sign.
        seen: the last checkpoint that this witness signed; None if it signs for the first time.
        evidence: all records, or a proof that the book grew from `seen` to the note.
        name: the witness's name.
        key: the witness's private key.
        time: now, in seconds since 1970.
    """
    new = note.checkpoint
    if seen is not None and (new.origin != seen.origin or new.size < seen.size):
        raise BookError(
            f"the checkpoint is of {new.size} records of {new.origin}; you have seen {seen.size} "
            f"records of {seen.origin} before"
        )
    if isinstance(evidence, Log):
        continues = seen is None or evidence.holds(seen)
        if not evidence.holds(new):
            raise BookError("the checkpoint is not one of this book")
    else:
        continues = seen is None or is_consistent(
            seen.size, seen.root, new.size, new.root, evidence
        )
    if not continues:
        assert seen is not None
        raise BookError(
            f"SPLIT VIEW: the book does not begin with the {seen.size} records that you signed "
            "before; keep both checkpoints, they prove it"
        )
    return cosign(note, name, key, time)


def read_growth(text: str) -> tuple[int, list[bytes], Note]:
    """The old size, the proof and the checkpoint of a witness's request."""
    try:
        head, blank, rest = text.partition("\n\n")
        first, *hashes = head.split("\n")
        if not blank or not first.startswith("old "):
            raise ValueError
        proof = [b64decode(line, validate=True) for line in hashes]
        return int(first[4:]), proof, Note.parse(rest)
    except BookError:
        raise
    except ValueError:
        raise BookError("the text is not a proof of growth (C2SP tlog-witness)") from None


def compare(one: Log, other: Log) -> int | None:
    """The first record in which two books differ; None if one of them begins with the other."""
    for place, (a, b) in enumerate(zip(one.leaves, other.leaves, strict=False), 1):
        if a != b:
            return place
    return None


def _lines(hashes: list[bytes]) -> str:
    return "".join(b64encode(each).decode() + "\n" for each in hashes)
