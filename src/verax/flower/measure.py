"""How large an update is: ‖reply − sent‖² over the whole model, for all replies in one pass.

    n_i = Σ_k (r_{i,k} − s_k)²,   G_ij = Σ_k (r_{i,k} − s_k)(r_{j,k} − s_k)

in float64 whatever the model's type. The arrays are read in pieces that stay in the processor's
cache: a piece of the model that was sent is widened once, then each reply's piece is widened,
subtracted and multiplied; no full difference is ever stored. Rows have a fixed length and their
sums are added exactly (`math.fsum`): threads, layout and the order of replies change no bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["gram_of_updates", "squared_norms"]

Array = NDArray[np.float64]
Arrays = Sequence[NDArray[Any]]

# As in `mechanism.norms`: BLAS runs a dot product of up to 10 000 elements on one thread.
_ROW = 8192
_PIECE = 32
_SPAN = 64


def squared_norms(sent: Arrays, replies: Sequence[Arrays], *, threads: int | None = None) -> Array:
    """n_i for every reply; `inf` or `nan` where an entry is not finite.

    Args:
        sent: the model's arrays.
        replies: the same arrays as each member returned them, in the same order and shapes.
        threads: how many share a large array (default: all cores); it changes no bit.

    Example:
        >>> squared_norms([np.zeros(2)], [[np.array([3.0, 4.0])], [np.ones(2)]])
        array([25.,  2.])
    """
    if not replies:
        return np.zeros(0)
    sums: list[list[float]] = [[] for _ in replies]
    for model, own in zip(sent, zip(*replies, strict=True), strict=True):
        for part in _spread(model, own, _norm_rows, threads):
            for i, row in enumerate(part.tolist()):
                sums[i] += row
    return np.array([_exact(parts) for parts in sums])


def gram_of_updates(sent: Arrays, replies: Sequence[Arrays], threads: int | None = None) -> Array:
    """G for all replies, (N, N); its diagonal is `squared_norms`, bit for bit."""
    n = len(replies)
    sums: list[list[list[float]]] = [[[] for _ in replies] for _ in replies]
    for model, own in zip(sent, zip(*replies, strict=True), strict=True):
        for part in _spread(model, own, _gram_rows, threads):
            for i in range(n):
                for j in range(i, n):
                    sums[i][j] += part[i, j].tolist()
    gram = np.empty((n, n))
    for i in range(n):
        for j in range(i, n):
            gram[i, j] = gram[j, i] = _exact(sums[i][j])
    return gram


def _spread(model: NDArray[Any], own: Arrays, work: Any, threads: int | None) -> list[NDArray[Any]]:
    """What `work` makes of the rows of one array and of what is left, in spans of rows."""
    flat = [np.ascontiguousarray(array).reshape(-1) for array in (model, *own)]
    whole = flat[0].size // _ROW
    rows = [array[: whole * _ROW].reshape(whole, _ROW) for array in flat]
    tails = [array[whole * _ROW :].reshape(1, -1) for array in flat]
    parts: list[NDArray[Any]] = [work(tails)]
    threads = min(threads or os.cpu_count() or 1, whole // _SPAN)
    if threads < 2:
        return [*parts, work(rows)] if whole else parts
    cuts = np.linspace(0, whole, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        spans = [[array[a:b] for array in rows] for a, b in pairwise(cuts)]
        return [*parts, *pool.map(work, spans)]


def _norm_rows(rows: list[NDArray[Any]]) -> Array:
    """Σ over each row of each reply, (N, rows)."""
    model, replies = rows[0], rows[1:]
    sums = np.empty((len(replies), len(model)))
    wide, difference = np.empty((2, _PIECE, model.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # inf and nan are an answer here
        for start in range(0, len(model), _PIECE):
            part = slice(start, start + _PIECE)
            size = len(model[part])
            np.copyto(wide[:size], model[part])
            for i, reply in enumerate(replies):
                np.copyto(difference[:size], reply[part])
                difference[:size] -= wide[:size]
                np.vecdot(difference[:size], difference[:size], out=sums[i, part])
    return sums


def _gram_rows(rows: list[NDArray[Any]]) -> Array:
    """Inner products of each row, (N, N, rows), the upper triangle."""
    model, replies = rows[0], rows[1:]
    n = len(replies)
    sums = np.zeros((n, n, len(model)))
    piece = max(1, 8 * _PIECE // max(n, 1))
    differences = np.empty((n, piece, model.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(model), piece):
            part = slice(start, start + piece)
            size = len(model[part])
            wide = model[part].astype(np.float64)
            for i, reply in enumerate(replies):
                np.copyto(differences[i, :size], reply[part])
                differences[i, :size] -= wide
            for i in range(n):
                np.vecdot(differences[i:, :size], differences[i, :size], out=sums[i, i:, part])
    return sums


def _exact(parts: list[float]) -> float:
    try:
        return math.fsum(parts)
    except (OverflowError, ValueError):  # inf − inf, or an overflow on the way
        return float(sum(parts))
