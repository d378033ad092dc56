"""How large an update is: ‖reply − sent‖² over the whole model, for all replies in one pass.

    n_i = Σ_k (r_{i,k} − s_k)²,   G_ij = Σ_k (r_{i,k} − s_k)(r_{j,k} − s_k)

in float64 whatever the model's type. A compiled loop widens, subtracts and multiplies in the
processor's registers, so that a reply costs little more than reading it once. Every reply's piece
is held against a piece of the model while that is in the cache. Rows of a fixed length are summed
by themselves and their sums added exactly (`math.fsum`): threads, layout and the order of replies
change no bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["gram_of_updates", "squared_norms"]

Array = NDArray[np.float64]
Arrays = Sequence[NDArray[Any]]

_ROW = 8192
_PIECE = 64 * _ROW


def squared_norms(sent: Arrays, replies: Sequence[Arrays], *, threads: int | None = None) -> Array:
    """n_i for every reply; `inf` or `nan` where an entry is not finite.

    Args:
        sent: the model's arrays.
        replies: the same arrays as each member returned them, in the same order and shapes.
        threads: how many share the work (default: all cores); it changes no bit.

    Example:
        >>> squared_norms([np.zeros(2)], [[np.array([3.0, 4.0])], [np.ones(2)]])
        array([25.,  2.])
    """
    return _sums(sent, replies, [(i, i) for i in range(len(replies))], threads)


def gram_of_updates(
    sent: Arrays, replies: Sequence[Arrays], *, threads: int | None = None
) -> Array:
    """G for all replies, (N, N); its diagonal is `squared_norms`, bit for bit."""
    n = len(replies)
    pairs = [(i, j) for i in range(n) for j in range(i, n)]
    gram = np.empty((n, n))
    for (i, j), product in zip(pairs, _sums(sent, replies, pairs, threads), strict=True):
        gram[i, j] = gram[j, i] = product
    return gram


def _sums(
    sent: Arrays, replies: Sequence[Arrays], pairs: list[tuple[int, int]], threads: int | None
) -> Array:
    """Σ_k (r_{i,k} − s_k)(r_{j,k} − s_k) for each pair (i, j)."""

    def rows_of(piece: Arrays) -> Array:
        model, *own = [_native(array) for array in piece]
        rows = np.empty((len(pairs), math.ceil(model.size / _ROW)))
        for sums, (i, j) in zip(rows, pairs, strict=True):
            _add_up(model, own[i], own[j], sums)
        return rows

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        parts = [rows.tolist() for rows in pool.map(rows_of, _pieces(sent, replies))]
    return np.array([_exact([x for part in parts for x in part[k]]) for k in range(len(pairs))])


def _pieces(sent: Arrays, replies: Sequence[Arrays]) -> Iterator[Arrays]:
    """The same stretch of the model and of every reply, array by array."""
    for arrays in zip(sent, *replies, strict=True):
        flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
        for start in range(0, flat[0].size, _PIECE):
            yield [array[start : start + _PIECE] for array in flat]


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """As the loop reads it: float32 or float64, aligned; read-only, so that one loop serves all."""
    as_is = array.dtype.isnative and array.dtype.char in "fd"
    found = np.require(array, array.dtype if as_is else np.float64, ["ALIGNED"]).view()
    found.flags.writeable = False
    return found


# Sums may be taken in any order, for that is what fills a vector register; of NaN and infinity the
# compiler must assume nothing, so that both come out.
@numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})  # pyright: ignore[reportUntypedFunctionDecorator]
def _add_up(model: Any, one: Any, other: Any, sums: Any) -> None:
    """Σ (one − model)·(other − model) of each row of a piece."""
    for row in range(sums.size):
        part = slice(row * _ROW, (row + 1) * _ROW)
        s, x, y = model[part], one[part], other[part]
        total = 0.0
        for k in range(s.size):
            total += (np.float64(x[k]) - np.float64(s[k])) * (np.float64(y[k]) - np.float64(s[k]))
        sums[row] = total


def _exact(parts: list[float]) -> float:
    try:
        return math.fsum(parts)
    except (OverflowError, ValueError):  # inf − inf, or an overflow on the way
        return float(sum(parts))
