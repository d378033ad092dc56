"""Signatures: signed checkpoints, and Ed25519.

Checkpoints are signed notes of C2SP (`tlog-checkpoint`, `tlog-cosignature`). Signatures are Ed25519
(RFC 8032), verified here in plain Python: some milliseconds each.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import lru_cache

from verax.verifier.forms import WrongRecordError

_Point = tuple[
    int, int, int, int
]  # extended coordinates X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z


@dataclass(frozen=True)
class Note:
    """A checkpoint: the log's name, its size, its root, and signature lines by key name."""

    origin: str
    size: int
    root: bytes
    text: str
    signatures: tuple[tuple[str, bytes], ...]


def parse_note(text: str) -> Note:
    """Read a signed checkpoint."""
    body, blank, rest = text.partition("\n\n")
    lines = body.split("\n")
    signatures: list[tuple[str, bytes]] = []
    try:
        origin, size, root = lines
        if not re.fullmatch(r"0|[1-9]\d{0,18}", size) or not origin or not origin.isprintable():
            raise ValueError
        for line in rest.split("\n")[:-1]:
            dash, name, signature = line.split(" ")
            if dash != "—" or not re.fullmatch(r"[^\s+]+", name) or len(_raw(signature)) < 5:
                raise ValueError
            signatures.append((name, _raw(signature)))
        if not blank or not rest.endswith("\n") or not signatures or len(_raw(root)) != 32:
            raise ValueError
    except ValueError:
        raise WrongRecordError("checkpoint", "is not a signed checkpoint") from None
    return Note(origin, int(size), _raw(root), body + "\n", tuple(signatures))


@lru_cache(maxsize=1000)
def parse_key(text: str, type_: int) -> tuple[str, bytes, bytes] | None:
    """The name, the id and the bytes of a public key name+id+key; None if it is none."""
    try:
        name, id_, rest = text.split("+", 2)
        raw = _raw(rest)
    except ValueError:
        return None
    digest = hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4]
    if not re.fullmatch(r"[^\s+]+", name) or len(raw) != 33 or raw[0] != type_:
        return None
    return (name, digest, raw[1:]) if digest.hex() == id_ else None


def is_signed(note: Note, key: str) -> bool:
    """Whether the operator with this key signed the checkpoint."""
    return any(
        len(raw) == 64 and verify_ed25519(public, note.text.encode(), raw)
        for public, raw in _by(note, key, 1)
    )


def is_cosigned(note: Note, key: str) -> bool:
    """Whether the witness with this key signed the checkpoint."""
    return bool(cosignature(note, key))


def cosignature(note: Note, key: str) -> bytes:
    """Time and signature of the witness with this key; empty if it did not sign."""
    for public, raw in _by(note, key, 4):
        time = int.from_bytes(raw[:8], "big")
        message = f"cosignature/v1\ntime {time}\n{note.text}".encode()
        if len(raw) == 72 and time and verify_ed25519(public, message, raw[8:]):
            return raw
    return b""


def _by(note: Note, key: str, type_: int) -> list[tuple[bytes, bytes]]:
    parsed = parse_key(key, type_)
    if parsed is None:
        return []
    name, id_, public = parsed
    return [
        (public, raw[4:]) for signer, raw in note.signatures if (signer, raw[:4]) == (name, id_)
    ]


def _raw(text: str) -> bytes:
    """Base64 in exactly one form; raises ValueError."""
    raw = b64decode(text, validate=True)
    if b64encode(raw).decode() != text:
        raise ValueError
    return raw


# Ed25519: −x² + y² = 1 + d x² y² modulo p

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # of −1


def verify_ed25519(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether s·B = R + h·A for the key A and the signature (R, s)."""
    minus_key = _multiples(key)
    s = int.from_bytes(signature[32:], "little")
    if not minus_key or len(signature) != 64 or s >= _ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    h = int.from_bytes(digest, "little") % _ORDER
    right = _add(_times(s, _BASE), _times(h, minus_key))
    inverse = pow(right[2], -1, _P)
    x, y = right[0] * inverse % _P, right[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]


def _decompress(raw: bytes) -> _Point | None:
    number = int.from_bytes(raw, "little")
    y, sign = number & (2**255 - 1), number >> 255
    if len(raw) != 32 or y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (not x and sign):
        return None
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


def _add(a: _Point, b: _Point) -> _Point:
    e = (a[1] - a[0]) * (b[1] - b[0]) % _P
    f = (a[1] + a[0]) * (b[1] + b[0]) % _P
    g = 2 * a[3] * b[3] * _D % _P
    h = 2 * a[2] * b[2] % _P
    return (
        (f - e) * (h - g) % _P,
        (h + g) * (f + e) % _P,
        (h - g) * (h + g) % _P,
        (f - e) * (f + e) % _P,
    )


@lru_cache(maxsize=200)
def _multiples(key: bytes) -> list[list[_Point]]:
    """16^i · d · (−A) for i < 64 and d < 16; empty if the key is no point A of the curve.

    A member signs in every round; with its multiples, a signature takes a sixth of the time.
    """
    point = _decompress(key)
    if point is None:
        return []
    x, y, z, t = point
    return _table((_P - x, y, z, _P - t))


def _table(point: _Point) -> list[list[_Point]]:
    rows: list[list[_Point]] = []
    for _ in range(64):
        row = [_ZERO]
        for _ in range(16):
            row.append(_add(row[-1], point))
        point = row.pop()
        rows.append(row)
    return rows


def _times(n: int, multiples: list[list[_Point]]) -> _Point:
    """N · P, from the multiples of P that the hexadecimal digits of n name."""
    result = _ZERO
    for row in multiples:
        result = _add(result, row[n & 15])
        n >>= 4
    return result


_ZERO: _Point = (0, 1, 1, 0)
_BASE = _table(_decompress((4 * pow(5, -1, _P) % _P).to_bytes(32, "little")) or _ZERO)
