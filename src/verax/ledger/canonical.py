"""The canonical form of a record: the bytes that are hashed, one form for one content.

JSON (RFC 8259) in UTF-8 with the keys of every object sorted by code point, no white space, no
escapes but those that JSON requires, integers in plain digits, and real numbers in the shortest
digits that read back as the same float64, as Python's `repr` writes them. The hash of a record is
the SHA-256 of these bytes, in 64 lower-case hexadecimal digits. `docs/theory/ledger.md` defines the
form in full.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: The previous hash of a federation's first record.
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
    return _encode(content)


def digest(text: str) -> str:
    """The SHA-256 of a text's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
