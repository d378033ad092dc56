"""How large an update is: ‖reply − sent‖² over the whole model, for all replies in one pass.

    n_i = Σ_k (r_{i,k} − s_k)²,   G_ij = Σ_k (r_{i,k} − s_k)(r_{j,k} − s_k)

in float64 whatever the model's type (`mechanism.sums`). Every reply's piece is held against a piece
of the model while that is in the cache; no difference is ever stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.mechanism.sums import add_products, exact_sums

__all__ = ["gram_of_updates", "squared_norms"]

Array = NDArray[np.float64]
Arrays = Sequence[NDArray[Any]]


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
    return _products(sent, replies, [(i, i) for i in range(len(replies))], threads)


def gram_of_updates(
    sent: Arrays, replies: Sequence[Arrays], *, threads: int | None = None
) -> Array:
    """G for all replies, (N, N); its diagonal is `squared_norms`, bit for bit."""
    n = len(replies)
    pairs = [(i, j) for i in range(n) for j in range(i, n)]
    gram = np.empty((n, n))
    for (i, j), product in zip(pairs, _products(sent, replies, pairs, threads), strict=True):
        gram[i, j] = gram[j, i] = product
    return gram


def _products(
    sent: Arrays, replies: Sequence[Arrays], pairs: list[tuple[int, int]], threads: int | None
) -> Array:
    """⟨r_i − s, r_j − s⟩ for each pair (i, j)."""
    groups = list(zip(sent, *replies, strict=True))  # the model's array, then the replies'
    which = [(0, 1 + i, 1 + j) for i, j in pairs]
    return np.array(exact_sums(add_products, which, groups, threads))
