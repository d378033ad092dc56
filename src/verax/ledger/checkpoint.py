"""Checkpoints: the end of the chain at some time, signed, for members to keep.

Whoever keeps a checkpoint can prove later that the history before it was rewritten. The signature
(Ed25519) covers the canonical text of the checkpoint without the signature.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from verax.ledger.book import Book
from verax.ledger.canonical import encode
from verax.ledger.engine import BookError


def make_checkpoint(
    book: Book, federation: str, key: Ed25519PrivateKey | None = None
) -> dict[str, Any]:
    """A checkpoint of the book as it is now, with balances; signed if there is a key."""
    sequence, hash_, balances = book.snapshot(federation)
    content: dict[str, Any] = {
        "balances": balances,
        "federation": federation,
        "hash": hash_,
        "kind": "checkpoint",
        "sequence": sequence,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": 1,
    }
    if key is not None:
        content["key"] = public_key(key)
        content["signature"] = key.sign(encode(content).encode()).hex()
    return content


def public_key(key: Ed25519PrivateKey) -> str:
    """The public key, 32 bytes in hexadecimal."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


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
