"""The canonical form of a record: the bytes that are hashed, one form for one content.

JSON (RFC 8259) in UTF-8 with the keys of every object sorted by code point, no white space, no
escapes but those that JSON demands, integers in plain digits, and real numbers in the shortest
digits that read back as the same float64, as Python's `repr` writes them. The hash of a record is
the SHA-256 of these bytes, in 64 small hexadecimal digits. `docs/theory/ledger.md` has the rest.

Python's encoder defines the form. Texts and columns of numbers are written by orjson, in a tenth of
the time, unless a number is so small or large that Python writes it with an exponent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import orjson

__all__ = ["GENESIS", "digest", "encode"]

#: What stands for the previous hash in a federation's first record.
GENESIS = "0" * 64

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


def encode(content: Mapping[str, Any]) -> str:
    """The canonical text of a record.

    Example:
        >>> encode({"b": 0.1, "a": [1, "é"]})
        '{"a":[1,"é"],"b":0.1}'
    """
    pairs = [f"{_value(key)}:{_value(value)}" for key, value in sorted(content.items())]
    return f"{{{','.join(pairs)}}}"


def digest(text: str) -> str:
    """The SHA-256 of a text's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _value(value: Any) -> str:
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # more than 64 bits, half of a surrogate pair, keys that are not text
        return _encode(value)
    if isinstance(value, str):
        return text
    # Texts inside, true and false, exponents, fractions that Python may write with one, numbers
    # that are not finite: all of these hold a mark, and so do some that would have been the same.
    if '"' in text or "e" in text or "0.0000" in text or ("n" in text and _unlike(text, value)):
        return _encode(value)
    return text


def _unlike(text: str, value: Any) -> bool:
    """Whether some `null` was not None but a number that is not finite."""
    return not isinstance(value, list) or text.count("null") != value.count(None)
