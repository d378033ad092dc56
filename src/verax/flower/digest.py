"""The digest of a model, which members sign and rounds record.

It is the SHA-256 of a list with one line per array, sorted by name:
`<SHA-256 of the array's bytes> <type> <shape> <name>`, with the bytes in C order, NumPy's name of
the type, the lengths of the shape separated by commas, and the name as a JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from verax.flower.decoding import decode


def model_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """The digest of arrays by name.

    Example:
        >>> model_digest({"bias": np.zeros(2, np.float32)})[:16]
        '67fd545704cc7056'
    """
    lines = [_line(name, array) for name, array in sorted(arrays.items())]
    return sha256("".join(lines).encode()).hexdigest()


def record_digest(record: ArrayRecord) -> str:
    """The digest of a model in Flower's form."""
    return model_digest({name: decode(array) for name, array in record.items()})


def _line(name: str, array: NDArray[Any]) -> str:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    shape = ",".join(map(str, array.shape))
    return f"{sha256(flat.data).hexdigest()} {array.dtype.str} {shape} {json.dumps(name)}\n"
