r"""Checkpoints as signed notes, in the formats of C2SP, and their signatures (Ed25519).

A checkpoint (`tlog-checkpoint`) is a text of three lines: the origin, which names the log; the
number of its records; the root of the Merkle tree over them, in base64. A signed note appends an
empty line and lines `— name base64(id ‖ signature)`, id = SHA-256(name ‖ "\n" ‖ type ‖ key)[:4].
The operator signs the text itself (type 1). A witness signs the text after the lines
`cosignature/v1` and `time T`, and puts T before its signature (type 4, `tlog-cosignature`).
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from verax.ledger.engine import BookError

OPERATOR, WITNESS = 1, 4  # the types of keys

_KEY_NAME = re.compile(r"[^\s+]+")
_SIZE = re.compile(r"0|[1-9]\d{0,18}")


@dataclass(frozen=True)
class PublicKey:
    """A public key with its name, as signature lines refer to it."""

    name: str
    type: int
    key: bytes

    def __post_init__(self) -> None:
        if not _KEY_NAME.fullmatch(self.name):
            raise BookError(f"the key's name is {self.name!r}, must have no spaces and no +")

    @property
    def id(self) -> bytes:
        """The first four bytes of a hash of all three."""
        return sha256(self.name.encode() + b"\n" + bytes([self.type]) + self.key).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{_base64(bytes([self.type]) + self.key)}"

    @classmethod
    def parse(cls, text: str, type_: int) -> PublicKey:
        """Read `name+id+key`, the form in which keys are exchanged."""
        try:
            name, id_, rest = text.split("+", 2)
            raw = unbase64(rest)
            key = cls(name, raw[0], raw[1:])
            Ed25519PublicKey.from_public_bytes(key.key)
            if key.id.hex() != id_ or key.type != type_:
                raise ValueError
        except (ValueError, IndexError):
            kind = "a witness" if type_ == WITNESS else "an operator"
            raise BookError(f"{text!r} is not the public key of {kind}, name+id+key") from None
        return key


@dataclass(frozen=True)
class Checkpoint:
    """The size and the root of a log at some time."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"


@dataclass(frozen=True)
class Note:
    """A checkpoint with signature lines, of which some may be by unknown keys."""

    checkpoint: Checkpoint
    signatures: tuple[tuple[str, bytes], ...]

    def __str__(self) -> str:
        lines = (f"— {name} {_base64(signature)}\n" for name, signature in self.signatures)
        return f"{self.checkpoint.text}\n{''.join(lines)}"

    @classmethod
    def parse(cls, text: str) -> Note:
        """Read a signed checkpoint; raises BookError if it is none."""
        try:
            body, blank, rest = text.partition("\n\n")
            origin, size, root = body.split("\n")
            if not blank or not text.endswith("\n") or not _SIZE.fullmatch(size):
                raise ValueError
            if not origin or not origin.isprintable() or len(unbase64(root)) != 32:
                raise ValueError
            signatures: list[tuple[str, bytes]] = []
            for line in rest.splitlines():
                dash, name, signature = line.split(" ")
                raw = unbase64(signature)
                if dash != "—" or not _KEY_NAME.fullmatch(name) or len(raw) < 5:
                    raise ValueError
                signatures.append((name, raw))
            if "".join(f"{line}\n" for line in rest.splitlines()) != rest or not signatures:
                raise ValueError
        except ValueError:
            raise BookError("the text is not a signed checkpoint (C2SP tlog-checkpoint)") from None
        return cls(Checkpoint(origin, int(size), unbase64(root)), tuple(signatures))

    def is_signed_by(self, operator: PublicKey) -> bool:
        """Whether a line is the operator's valid signature."""
        text = self.checkpoint.text.encode()
        return any(
            is_valid(operator.key, raw, text) for raw in self._by(operator) if len(raw) == 64
        )

    def cosigned_at(self, witness: PublicKey) -> int | None:
        """When a witness signed it, in seconds since 1970; None if it did not."""
        raw = self.cosignature(witness)
        return None if raw is None else int.from_bytes(raw[:8], "big")

    def cosignature(self, witness: PublicKey) -> bytes | None:
        """The time and the signature of a witness; None if it did not sign."""
        for raw in self._by(witness):
            time = int.from_bytes(raw[:8], "big")
            message = _cosigned_text(self.checkpoint, time)
            if len(raw) == 72 and time and is_valid(witness.key, raw[8:], message):
                return raw
        return None

    def _by(self, key: PublicKey) -> list[bytes]:
        return [raw[4:] for name, raw in self.signatures if (name, raw[:4]) == (key.name, key.id)]


def sign(checkpoint: Checkpoint, name: str, private: Ed25519PrivateKey) -> Note:
    """The checkpoint with the operator's signature."""
    key = public_key(private, name, OPERATOR)
    return Note(checkpoint, ((name, key.id + private.sign(checkpoint.text.encode())),))


def cosign(note: Note, name: str, private: Ed25519PrivateKey, time: int) -> Note:
    """The note with the cosignature of a witness at a time, in seconds since 1970."""
    key = public_key(private, name, WITNESS)
    signature = private.sign(_cosigned_text(note.checkpoint, time))
    others = tuple(each for each in note.signatures if each[0] != name)
    return Note(note.checkpoint, (*others, (name, key.id + time.to_bytes(8, "big") + signature)))


def _cosigned_text(checkpoint: Checkpoint, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{checkpoint.text}".encode()


def is_valid(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature (Ed25519) of a message is by the holder of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key(private: Ed25519PrivateKey, name: str, type_: int) -> PublicKey:
    """The public half of a key, under a name."""
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return PublicKey(name, type_, raw)


def new_key(path: Path) -> Ed25519PrivateKey:
    """Create a key in a file that only its owner may read; an existing file is never replaced."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    return key


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key (PEM)."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BookError(f"{path} holds no Ed25519 private key in PEM without a password")
    return key


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()


def unbase64(text: str) -> bytes:
    """Base64 in exactly one form; raises ValueError."""
    raw = b64decode(text, validate=True)
    if _base64(raw) != text:
        raise ValueError
    return raw
