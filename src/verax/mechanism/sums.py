"""Sums over all numbers of large arrays, in float64, at the speed of memory.

A sum here becomes a charge, so it must not depend on accidents: rows of a fixed length are summed
by themselves and their sums added exactly (`math.fsum`); layout, the order of arrays and the number
of threads change no bit. The loops are compiled when first used: they widen and multiply in the
processor's registers, which NumPy can do only by passes over a widened copy, at half of the speed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_products", "add_squares", "exact_sums", "is_bfloat16"]

Arrays = Sequence[NDArray[Any]]

_ROW = 8192
# A thread takes a piece at a time, small enough for a cache; below some millions of numbers one
# thread is done before others have started.
_PIECE = 64 * _ROW
_MANY = 32 * _PIECE


def exact_sums(
    loop: Callable[..., None],
    which: Sequence[tuple[int, ...]],
    groups: Sequence[Arrays],
    threads: int | None = None,
) -> list[float]:
    """What a loop adds up over all groups; `inf` or `nan` where a number is not finite.

    Args:
        loop: `add_squares` or `add_products`.
        which: for every sum, which arrays of a group the loop reads.
        groups: arrays of one shape each, and of real numbers.
        threads: how many share the work (default: all cores); it changes no bit.
    """
    add = _compiled(loop)

    def rows_of(piece: Arrays) -> list[list[float]]:
        arrays = [_native(array) for array in piece]
        rows = np.empty((len(which), math.ceil(arrays[0].size / _ROW)))
        for sums, own in zip(rows, which, strict=True):
            add(*(arrays[k] for k in own), sums)
        return rows.tolist()

    numbers = sum(array.size for group in groups for array in group)
    if threads == 1 or numbers < _MANY:
        parts = [rows_of(piece) for piece in _pieces(groups)]
    else:
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            parts = list(pool.map(rows_of, _pieces(groups)))
    return [_exact([x for part in parts for x in part[k]]) for k in range(len(which))]


def add_squares(x: Any, sums: Any) -> None:
    """Σ x_k² of each row."""
    for row in range(sums.size):
        own = x[row * _ROW : (row + 1) * _ROW]
        total = 0.0
        for k in range(own.size):
            total += np.float64(own[k]) * np.float64(own[k])
        sums[row] = total


def add_products(s: Any, x: Any, y: Any, sums: Any) -> None:
    """Σ (x_k − s_k)(y_k − s_k) of each row."""
    for row in range(sums.size):
        part = slice(row * _ROW, (row + 1) * _ROW)
        base, one, other = s[part], x[part], y[part]
        total = 0.0
        for k in range(base.size):
            low = np.float64(base[k])
            total += (np.float64(one[k]) - low) * (np.float64(other[k]) - low)
        sums[row] = total


def is_bfloat16(array: NDArray[Any]) -> bool:
    """By name, for the type is not NumPy's own; slow enough to be asked seldom."""
    return array.dtype.name == "bfloat16"


@cache
def _compiled(loop: Callable[..., None]) -> Callable[..., None]:
    import numba  # here, for it takes as long to load as all of NumPy

    # A row may be added up in any order, for that is what fills a vector register; of NaN and
    # infinity the compiler must assume nothing, so that both come out.
    return numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})(loop)


def _pieces(groups: Iterable[Arrays]) -> Iterator[Arrays]:
    """The same stretch of all arrays of a group, group by group, in logical (C) order."""
    for group in groups:
        flat = [np.ascontiguousarray(array).reshape(-1) for array in group]
        for start in range(0, flat[0].size, _PIECE):
            yield [array[start : start + _PIECE] for array in flat]


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """As the loops read it: float32 or float64, aligned; read-only, so that one loop serves all."""
    if is_bfloat16(array):  # the upper half of a float32: shifting bits is exact, and fast
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    as_is = array.dtype.isnative and array.dtype.char in "fd"
    found = np.require(array, array.dtype if as_is else np.float64, ["ALIGNED"]).view()
    found.flags.writeable = False
    return found


def _exact(parts: list[float]) -> float:
    # fsum raises on overflow of intermediate sums and on inf − inf; a plain sum says inf or nan.
    try:
        return math.fsum(parts)
    except (OverflowError, ValueError):
        return float(sum(parts))
