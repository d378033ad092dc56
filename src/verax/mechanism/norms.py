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
# result does not depend on its thread count. Rows are converted to float64 a piece at a time, in a
# buffer of two megabytes: smaller ones fit the cache better, but then threads wait for each other
# between pieces. Buffers are kept, for fresh memory costs as much as what is done in it. A thread
# gets no less than a span of rows.
_ROW = 8192
_PIECE = 32
_SPAN = 128
_spare: list[NDArray[np.float64]] = []


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
        if array.dtype.kind not in "fiub" and not _is_bfloat16(array):
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
    """Sums of squares, one per row of `_ROW` elements and one for what is left, in any order."""
    flat = np.ascontiguousarray(array).reshape(-1)
    whole = flat.size // _ROW
    rows = flat[: whole * _ROW].reshape(whole, _ROW)
    tail = flat[whole * _ROW :]
    rest = (_from_bfloat16(tail) if _is_bfloat16(tail) else tail).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [float(np.vecdot(rest, rest))]
    threads = min(threads, whole // _SPAN)
    if threads < 2:
        return sums + _row_sums(rows)
    own, *others = np.array_split(rows, threads)
    with ThreadPoolExecutor(threads - 1) as pool:
        waiting = [pool.submit(_row_sums, part) for part in others]
        sums += _row_sums(own)
    return sums + [value for part in waiting for value in part.result()]


def _row_sums(rows: NDArray[Any]) -> list[float]:
    sums = np.empty(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # inf and nan are an answer here
        if rows.dtype == np.float64:
            np.vecdot(rows, rows, out=sums)
            return sums.tolist()
        halves = _is_bfloat16(rows)
        try:
            wide = _spare.pop()
        except IndexError:  # the first, or as many threads at work as never before
            wide = np.empty((_PIECE, _ROW))
        for start in range(0, len(rows), _PIECE):
            part = rows[start : start + _PIECE]
            piece = wide[: len(part)]
            np.copyto(piece, _from_bfloat16(part) if halves else part)
            np.vecdot(piece, piece, out=sums[start : start + len(part)])
        _spare.append(wide)
    return sums.tolist()


def _is_bfloat16(array: NDArray[Any]) -> bool:
    """By name, for the type is not NumPy's own; slow enough to be asked once per array."""
    return array.dtype.name == "bfloat16"


def _from_bfloat16(array: NDArray[Any]) -> NDArray[np.float32]:
    """A bfloat16 is the upper half of a float32: shifting bits is exact and far faster."""
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
