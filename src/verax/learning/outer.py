"""Gradients of linear layers, kept as their factors.

The gradient of a layer z = W x over a batch is a sum of outer products, D = Σ_b δ_b x_bᵀ. Where a
layer is large beside the batches, D need not be written: inner products of clients' gradients are

    ⟨D_i, D_j⟩ = Σ_{b,c} ⟨δ_{i,b}, δ_{j,c}⟩ ⟨x_{i,b}, x_{j,c}⟩,

and the weighed sum Σ_i w_i D_i is one matrix product over all clients' samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from verax.learning.inplace import add_product

__all__ = [
    "CACHE_NUMBERS",
    "FEW",
    "Outer",
    "dense",
    "inner_products",
    "is_outer",
    "pair_by_pair",
    "squared_norms",
]

Array = jax.Array

#: Up to so many clients, inner products pair by pair are faster than a product of all with all.
FEW = 8

#: Numbers that a core's cache holds, about: beyond it, moving them costs more than computing.
CACHE_NUMBERS = 150_000


class Outer(NamedTuple):
    """Σ_b left_b right_bᵀ; all clients' with a leading axis (…, samples, size)."""

    left: Any
    right: Any

    def gram(self) -> Array:
        """⟨D_i, D_j⟩, (N, N)."""
        n, samples = self.left.shape[:2]
        if n <= FEW:
            rows = [self._inner_from(i) for i in range(n)]
            return pair_by_pair(n, lambda i, j: rows[i][j - i])
        left, right = (part.reshape(n * samples, -1) for part in self)
        products = ((left @ left.T) * (right @ right.T)).reshape(n, samples, n, samples)
        return jnp.sum(products, axis=(1, 3))

    def _inner_from(self, i: int) -> Array:
        """⟨D_i, D_j⟩ of all j ≥ i: one product for all is faster than one each."""
        left, right = (part[i:].reshape(-1, part.shape[-1]) @ part[i].T for part in self)
        return jnp.sum((left * right).reshape(self.left.shape[0] - i, -1), axis=1)

    def norms(self) -> Array:
        """‖D_i‖², (N,)."""
        left, right = (jnp.einsum("nbo,nco->nbc", part, part) for part in self)
        return jnp.sum(left * right, axis=(1, 2))

    def weighed(self, weights: Array) -> Array:
        """Σ_i w_i D_i."""
        left = (self.left * weights[:, None, None]).reshape(-1, self.left.shape[-1])
        return left.T @ self.right.reshape(-1, self.right.shape[-1])

    def added(self, matrix: Array, weights: Array) -> Array:
        """M + Σ_i w_i D_i."""
        left = self.left.reshape(-1, self.left.shape[-1])
        right = (self.right * weights[:, None, None]).reshape(-1, self.right.shape[-1])
        return add_product(matrix, left, right)

    def whole(self) -> Array:
        """D itself."""
        if self.right.shape[-1] < self.left.shape[-1]:
            # By its transpose: XLA's loop runs along the columns, and a long one is faster.
            return jnp.einsum("...bi,...bo->...io", self.right, self.left).swapaxes(-1, -2)
        return jnp.einsum("...bo,...bi->...oi", *self)

    def along(self, matrix: Array) -> Array:
        """⟨D_i, M⟩, (N,), of one matrix for all."""
        return jnp.einsum("nbi,nbi->n", self.left @ matrix, self.right)

    @property
    def pays_for_gram(self) -> bool:
        """Whether all inner products take less from the factors than from the matrices.

        N(N + 1)/2 of them are 2 · samples² · (rows + columns) operations each from the factors. The
        matrices are written, one a client, read, two an inner product, and read again to be summed.
        A number moved takes as long as an operation in the processor's cache, as 7 outside
        (measured).
        """
        n, samples, rows = self.left.shape
        columns = self.right.shape[-1]
        operations = n * (n + 1) * samples**2 * (rows + columns)
        moved = n * (n + 3) * rows * columns
        return operations < moved * (1 if n * rows * columns < CACHE_NUMBERS else 7)

    @property
    def pays_for_norms(self) -> bool:
        """Whether each client's norm takes less from its factors than from its matrix."""
        samples, rows = self.left.shape[1:]
        columns = self.right.shape[-1]
        return samples * (rows + columns) < rows * columns


def pair_by_pair(n: int, inner: Callable[[int, int], Array]) -> Array:
    """A symmetric (n, n) matrix from its entries i ≤ j."""
    pair = {(i, j): inner(i, j) for i in range(n) for j in range(i, n)}
    return jnp.stack([jnp.stack([pair[min(i, j), max(i, j)] for j in range(n)]) for i in range(n)])


def is_outer(part: Any) -> bool:
    """For `jax.tree` functions."""
    return isinstance(part, Outer)


def squared_norms(tree: Any) -> Array:
    """‖·‖² of each client's part of a gradient with a leading client axis, (N,)."""

    def norms(part: Any) -> Array:
        if isinstance(part, Outer):
            return part.norms()
        return jnp.sum(part**2, axis=tuple(range(1, part.ndim)))

    parts = jax.tree.leaves(tree, is_leaf=is_outer)
    return sum(map(norms, parts), start=jnp.zeros(()))


def dense(tree: Any, keep: Callable[[Outer], bool] = lambda _: False) -> Any:
    """A gradient with arrays in place of factors, but for those to keep."""

    def one(part: Any) -> Any:
        return part if not isinstance(part, Outer) or keep(part) else part.whole()

    return jax.tree.map(one, tree, is_leaf=is_outer)


def inner_products(tree: Any, other: Any) -> Array:
    """⟨g_i, h⟩, (N,), of each client's part of a gradient and one vector for all."""

    def own(part: Any, common: Array) -> Array:
        if isinstance(part, Outer):
            return part.along(common)
        return part.reshape(part.shape[0], -1) @ common.reshape(-1)

    products = jax.tree.map(own, tree, other, is_leaf=is_outer)
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))
