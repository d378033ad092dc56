"""Squared norms of updates, ‖m‖² = Σ_k m_k², accumulated in float64 (`mechanism.sums`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.mechanism.sums import add_squares, exact_sums, is_bfloat16

__all__ = ["squared_norm"]


def squared_norm(update: Any, *, threads: int | None = None) -> float:
    """‖m‖² over all arrays of an update (an array, or any nesting of mappings and sequences).

    Args:
        update: float32, float64, float16, bfloat16 or integer arrays.
        threads: how many threads share a large update (default: all cores). It changes the time
            taken, never the result; nor do memory layout and the order of the arrays.

    Returns:
        The sum of squares in float64; `inf` or `nan` if an entry is not finite.

    Example:
        >>> squared_norm({"weights": [[3.0, 4.0]], "bias": [12.0]})
        169.0
    """
    (found,) = exact_sums(add_squares, [(0,)], [[array] for array in _leaves(update)], threads)
    return found


def _leaves(tree: Any) -> Iterator[NDArray[Any]]:
    if isinstance(tree, Mapping):
        for value in tree.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(value)
    elif isinstance(tree, list | tuple) and not _is_numeric(tree):
        for value in tree:  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(value)
    else:
        array = np.asarray(tree)
        if array.dtype.kind not in "fiub" and not is_bfloat16(array):
            raise ValueError(f"an update holds real numbers, not {array.dtype} ({tree!r:.60})")
        yield array


def _is_numeric(values: Any) -> bool:
    """Whether a list is itself an array written out, as in [[3.0, 4.0]]."""
    while isinstance(values, list | tuple):
        if not values:
            return True
        values = values[0]  # pyright: ignore[reportUnknownVariableType]
    return isinstance(values, int | float)
