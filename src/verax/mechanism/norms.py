"""Squared norms and inner products of updates, summed in float64.

    ‖m‖² = Σ_k m_k²,   ⟨m_i, m_j⟩ = Σ_k (r_{i,k} − s_k)(r_{j,k} − s_k)

for a model s that was sent and the models r that came back. A norm becomes a charge, so the result
must not depend on accidents: every array is cut into chunks of a fixed size that stay in the cache,
each chunk is summed by NumPy, and the chunks' sums are added exactly (`math.fsum`). Memory layout
and the order of the arrays change no bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Arrays = Sequence[NDArray[Any]]

_CHUNK = 1 << 14


def squared_norm(update: Any) -> float:
    """‖m‖² over all arrays of an update (an array, or any nesting of mappings and sequences).

    Args:
        update: float32, float64, float16, bfloat16 or integer arrays.

    Returns:
        The sum of squares in float64; `inf` or `nan` if an entry is not finite.

    Example:
        >>> squared_norm({"weights": [[3.0, 4.0]], "bias": [12.0]})
        169.0
    """
    return _sums([[array] for array in _leaves(update)], [(0, 0)], has_base=False)[0]


def squared_norms(sent: Arrays, replies: Sequence[Arrays]) -> Array:
    """‖reply − sent‖² of every reply; `inf` or `nan` where an entry is not finite.

    Args:
        sent: the model's arrays.
        replies: the same arrays as each member returned them, in the same order and shapes.

    Example:
        >>> squared_norms([np.zeros(2)], [[np.array([3.0, 4.0])], [np.ones(2)]])
        array([25.,  2.])
    """
    pairs = [(i, i) for i in range(len(replies))]
    return np.array(_sums(list(zip(sent, *replies, strict=True)), pairs, has_base=True))


def gram_of_updates(sent: Arrays, replies: Sequence[Arrays]) -> Array:
    """⟨m_i, m_j⟩ of all replies, (N, N); its diagonal equals `squared_norms`, bit for bit."""
    n = len(replies)
    pairs = [(i, j) for i in range(n) for j in range(i, n)]
    sums = _sums(list(zip(sent, *replies, strict=True)), pairs, has_base=True)
    gram = np.empty((n, n))
    for (i, j), value in zip(pairs, sums, strict=True):
        gram[i, j] = gram[j, i] = value
    return gram


def _sums(
    groups: Sequence[Arrays], pairs: Sequence[tuple[int, int]], *, has_base: bool
) -> list[float]:
    """Σ_k x_{i,k} x_{j,k} for each pair (i, j) over all groups of arrays of one shape.

    With `has_base` the first array of a group is subtracted from the others.
    """
    parts: list[list[float]] = [[] for _ in pairs]
    for group in groups:
        flat = [_flat(array) for array in group]
        vectors = np.empty((len(flat) - has_base, _CHUNK))
        product = np.empty(_CHUNK)
        for start in range(0, flat[0].size, _CHUNK):
            chunks = [array[start : start + _CHUNK] for array in flat]
            size = chunks[0].size
            rows = vectors[:, :size]
            with np.errstate(all="ignore"):  # infinities and NaN are the caller's to judge
                for row, chunk in zip(rows, chunks[has_base:], strict=True):
                    if has_base:
                        np.subtract(chunk, chunks[0], out=row, dtype=np.float64)
                    else:
                        row[:] = chunk
                for sums, (i, j) in zip(parts, pairs, strict=True):
                    np.multiply(rows[i], rows[j], out=product[:size])
                    sums.append(float(np.add.reduce(product[:size])))
    return [_exact(sums) for sums in parts]


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return np.ascontiguousarray(array).reshape(-1)


def _exact(parts: list[float]) -> float:
    # fsum raises on overflow of intermediate sums and on inf − inf; a plain sum says inf or nan.
    try:
        return math.fsum(parts)
    except (OverflowError, ValueError):
        return float(sum(parts))


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
