"""Convolution with 5×5 filters by Winograd's minimal filtering, F(2×2, 5×5).

Two neighbouring outputs of a filter of five numbers are products of polynomials, known by their
values at six points (here 0, 1, −1, 2, −2, ∞): six products instead of ten. In both directions,

    Y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A,

36 products instead of 100 for the 2×2 outputs Y of a filter g on a 6×6 tile d of its input.
Summed over channels, each of the 36 places is one matrix product. The gradients with respect to g
and d are the transposes of the same linear maps. The error in float32 is about 1e-5 of the largest
output.

Maps are (samples, side, side, channels) with an even side, padded by 2 so that they keep it. In
tiles they are (6, 6, samples, side/2, side/2, channels): place in the tile first.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Array = jax.Array

TILE, PAD = 6, 2

#: Values of a filter's polynomial at the points, divided by what B leaves out.
_G = np.array(
    [
        [1 / 4, 0, 0, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6, 1 / 3, 2 / 3],
        [1 / 24, -1 / 12, 1 / 6, -1 / 3, 2 / 3],
        [0, 0, 0, 0, 1],
    ]
)
#: Bᵀ: what a tile's numbers give at each point; row k is Π_{j≠k} (x − point j).
_B = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
#: Powers 0 and 1 of the points.
_A = np.array([[1, 0], [1, 1], [1, -1], [1, 2], [1, -2], [0, 1]])
#: The same in both directions, (36, 4): one matrix product, faster than sums place by place.
_BOTH = np.kron(_A, _A)


def filters_in(filters: Array) -> Array:
    """G g Gᵀ of (out, in, 5, 5), as (6, 6, in, out)."""
    G = jnp.asarray(_G, filters.dtype)
    return jnp.einsum("ki,lj,ocij->klco", G, G, filters)


def filters_out(gradient: Array) -> Array:
    """The gradient of filters (…, out, in, 5, 5) from that of G g Gᵀ, (6, 6, …, in, out)."""
    G = jnp.asarray(_G, gradient.dtype)
    return jnp.einsum("ki,lj,kl...co->...ocij", G, G, gradient)


def tiles(maps: Array) -> Array:
    """Bᵀ d B of every tile."""
    side = maps.shape[1]
    maps = jnp.pad(maps, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
    rows = [maps[:, i : i + side : 2] for i in range(TILE)]
    values = [
        [_sum(B, [row[:, :, j : j + side : 2] for j in range(TILE)]) for B in _B]
        for row in (_sum(B, rows) for B in _B)
    ]
    return jnp.stack([jnp.stack(line) for line in values])


def tiles_back(gradient: Array) -> Array:
    """The gradient of the maps from that of their tiles, which overlap and are added up."""
    n, half, channels = gradient.shape[2], gradient.shape[3], gradient.shape[5]
    edges = ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (0, 0))
    # The barriers keep XLA from fusing the stages, which would compute every number many times.
    gradient = jax.lax.optimization_barrier(jnp.pad(gradient, edges))
    across = jnp.stack([jnp.stack(_overlapped(list(line), axis=2)) for line in gradient])
    across = jax.lax.optimization_barrier(across)
    columns = [jnp.stack(_overlapped(list(across[:, q]), axis=1), axis=2) for q in range(2)]
    return jnp.stack(columns, axis=4).reshape(n, 2 * half, 2 * half, channels)


def _overlapped(pieces: list[Array], axis: int) -> list[Array]:
    """Gradients at even and at odd places along an axis, from those of the tiles' six points.

    Place 2t + i of the padded map is number i of tile t; padded here are the tiles, by one.
    """
    half = pieces[0].shape[axis] - 2

    def at(parity: int) -> Array:
        total = [
            _sum(_B[:, 2 * k + parity], [_slice(p, 2 - k, half, axis) for p in pieces])
            for k in range(TILE // 2)
        ]
        return sum(total[1:], start=total[0])

    return [at(0), at(1)]


def outputs(values: Array) -> Array:
    """Aᵀ m A: the 2×2 outputs of every tile, (4, samples, side/2, side/2, channels)."""
    flat = values.reshape(TILE**2, -1)
    return (jnp.asarray(_BOTH.T, values.dtype) @ flat).reshape(4, *values.shape[2:])


def outputs_back(gradient: Array) -> Array:
    """The gradient of m from those of the 2×2 outputs."""
    flat = gradient.reshape(4, -1)
    return (jnp.asarray(_BOTH, gradient.dtype) @ flat).reshape(TILE, TILE, *gradient.shape[1:])


def _sum(coefficients: NDArray[np.generic], pieces: Sequence[Array]) -> Array:
    """Σ c_k p_k without the products by 0 and 1."""
    terms = [
        piece if c == 1 else float(c) * piece
        for c, piece in zip(coefficients, pieces, strict=True)
        if c != 0
    ]
    return sum(terms[1:], start=terms[0])


def _slice(array: Array, begin: int, length: int, axis: int) -> Array:
    return jax.lax.slice_in_dim(array, begin, begin + length, axis=axis)
