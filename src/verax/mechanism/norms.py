"""Squared norms of updates, ‖m‖² = Σ_k m_k², accumulated in float64.

The number is a charge, so it must not depend on accidents: an array is summed in fixed pieces of
its logical (C) order, the pieces are added exactly (`math.fsum`), and so are the arrays of a tree.
Memory layout, the order of the arrays and the number of threads therefore change no bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["squared_norm"]

# BLAS runs a dot product of up to 10 000 elements on one thread: rows stay below that, so that the
# result does not depend on its thread count. A piece of rows is converted at a time; threads share
# an array in spans, long enough that starting a thread does not count.
_ROW = 8192
_PIECE = 32
_SPAN = 4 * _PIECE * _ROW


def squared_norm(update: Any, *, threads: int | None = None) -> float:
    """‖m‖² over all arrays of an update (an array, or any nesting of mappings and sequences).

    Args:
        update: float32, float64, float16, bfloat16 or integer arrays.
        threads: how many threads share a large array (default: all cores). It changes the time
            taken, never the result.

    Returns:
        The sum of squares in float64; `inf` or `nan` if an entry is not finite.

    Example:
        >>> squared_norm({"weights": [[3.0, 4.0]], "bias": [12.0]})
        169.0
    """
    threads = threads or os.cpu_count() or 1
    return _exact_sum([_array_sums(array, threads) for array in _leaves(update)])


def _exact_sum(parts: list[list[float]]) -> float:
    flat = [value for part in parts for value in part]
    # fsum raises on overflow of intermediate sums and on inf − inf; a plain sum says inf or nan.
    try:
        return math.fsum(flat)
    except (OverflowError, ValueError):
        return float(sum(flat))


def _leaves(tree: Any) -> Iterator[NDArray[Any]]:
    if isinstance(tree, Mapping):
        for value in tree.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(value)
    elif isinstance(tree, list | tuple) and not _is_numeric(tree):
        for value in tree:  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(value)
    else:
        array = np.asarray(tree)
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise ValueError(f"an update holds real numbers, not {array.dtype} ({tree!r:.60})")
        yield array


def _is_numeric(values: Any) -> bool:
    """Whether a list is itself an array written out, as in [[3.0, 4.0]]."""
    while isinstance(values, list | tuple):
        if not values:
            return True
        values = values[0]  # pyright: ignore[reportUnknownVariableType]
    return isinstance(values, int | float)


def _array_sums(array: NDArray[Any], threads: int) -> list[float]:
    flat = np.ascontiguousarray(array).reshape(-1)
    spans = [flat[start : start + _SPAN] for start in range(0, flat.size, _SPAN)]
    if threads == 1 or len(spans) < 2:
        return [value for span in spans for value in _row_sums(span)]
    with ThreadPoolExecutor(min(threads, len(spans))) as pool:
        return [value for sums in pool.map(_row_sums, spans) for value in sums]


def _row_sums(span: NDArray[Any]) -> list[float]:
    """Sums of squares of a span, one number per row and one for what is left."""
    whole = span.size // _ROW
    rows = span[: whole * _ROW].reshape(whole, _ROW)
    sums = np.empty(whole + 1)
    with np.errstate(over="ignore", invalid="ignore"):  # inf and nan are an answer here
        if span.dtype == np.float64:
            np.vecdot(rows, rows, out=sums[:whole])
        else:
            wide = np.empty((min(_PIECE, whole), _ROW))
            for start in range(0, whole, _PIECE):
                part = rows[start : start + _PIECE]
                piece = wide[: len(part)]
                np.copyto(piece, _widen(part))
                np.vecdot(piece, piece, out=sums[start : start + len(part)])
        rest = np.asarray(_widen(span[whole * _ROW :]), dtype=np.float64)
        sums[whole] = np.vecdot(rest, rest)
    return sums.tolist()


def _widen(array: NDArray[Any]) -> NDArray[Any]:
    """A bfloat16 is the upper half of a float32: shifting bits is exact and far faster."""
    if array.dtype.name != "bfloat16":
        return array
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
