"""Gradients of linear layers, kept as factors.

The gradient of a layer z = x W over a batch is a sum of outer products, D = Σ_b x_b δ_bᵀ, where δ_b
is the gradient with respect to z_b. Where a layer is large beside the batches, D need not be
computed: the inner products of the clients' gradients are

    ⟨D_i, D_j⟩ = Σ_{b,c} ⟨x_{i,b}, x_{j,c}⟩ ⟨δ_{i,b}, δ_{j,c}⟩,

and the weighted sum Σ_i w_i D_i is one matrix product over all clients' samples. On a CPU a round
of FedSGD with the paper's CNN or Sent140 head is more than 1.3 times as fast this way
(`docs/performance.md`). `verax.learning.vectors` treats both forms alike; tests hold them equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

# About how many numbers a core's cache holds; moving more of them costs more than computing.
_CACHE_NUMBERS = 150_000
# Beyond the cache, moving a number takes as long as so many operations (measured).
_MOVING = 7


class Factored(NamedTuple):
    """The matrices Σ_b left_b right_bᵀ of N clients; factors have the shape (N, samples, size)."""

    left: Any
    right: Any

    def gram(self) -> Array:
        """⟨D_i, D_j⟩, (N, N)."""
        n, samples = self.left.shape[:2]
        left, right = (part.reshape(n * samples, -1) for part in self)
        products = ((left @ left.T) * (right @ right.T)).reshape(n, samples, n, samples)
        return jnp.sum(products, axis=(1, 3))

    def squared_norms(self) -> Array:
        """‖D_i‖², (N,)."""
        left, right = (jnp.einsum("nbo,nco->nbc", part, part) for part in self)
        return jnp.sum(left * right, axis=(1, 2))

    def inner_products(self, matrix: Array) -> Array:
        """⟨D_i, M⟩ with one matrix for all clients, (N,)."""
        return jnp.einsum("nbi,nbi->n", self.left @ matrix, self.right)

    def weighted_sum(self, weights: Array) -> Array:
        """Σ_i w_i D_i."""
        left = (self.left * weights[:, None, None]).reshape(-1, self.left.shape[-1])
        return left.T @ self.right.reshape(-1, self.right.shape[-1])

    def matrices(self) -> Array:
        """The matrices themselves; also of one client, without the leading axis."""
        if self.right.shape[-1] < self.left.shape[-1]:
            # XLA's loop over a batch of products is faster if the columns are many.
            return jnp.einsum("...bi,...bo->...io", self.right, self.left).swapaxes(-1, -2)
        return jnp.einsum("...bo,...bi->...oi", *self)

    @property
    def pays_for_gram(self) -> bool:
        """Whether all inner products take less time from the factors than from the matrices.

        Each of N(N + 1)/2 inner products takes 2 · samples² · (rows + columns) operations from the
        factors. The matrices are written once per client, read twice per inner product, and read
        again for their sum.
        """
        n, samples, rows = self.left.shape
        columns = self.right.shape[-1]
        operations = n * (n + 1) * samples**2 * (rows + columns)
        moved = n * (n + 3) * rows * columns
        return operations < moved * (1 if n * rows * columns < _CACHE_NUMBERS else _MOVING)

    @property
    def pays_for_norms(self) -> bool:
        """Whether each client's norm takes less time from its factors than from its matrix."""
        samples, rows = self.left.shape[1:]
        columns = self.right.shape[-1]
        return samples * (rows + columns) < rows * columns


def is_factored(part: Any) -> bool:
    """Whether a part of a gradient is kept as factors; for `is_leaf` of `jax.tree` functions."""
    return isinstance(part, Factored)


def dense(tree: Any) -> Any:
    """A gradient with matrices in place of factors."""
    return jax.tree.map(
        lambda part: part.matrices() if is_factored(part) else part, tree, is_leaf=is_factored
    )


def keep_factors(tree: Any, *, gram: bool) -> Any:
    """The clients' gradients with factors only where they pay, for the Gram matrix or for norms."""

    def one(part: Any) -> Any:
        if not isinstance(part, Factored):
            return part
        return part if (part.pays_for_gram if gram else part.pays_for_norms) else part.matrices()

    return jax.tree.map(one, tree, is_leaf=is_factored)


def value_and_factored_gradient(
    loss: Callable[[Any, Any], Array], params: Any, batch: tuple[Any, ...]
) -> tuple[Array, Any]:
    """Value and gradient of a loss, in which the gradients of linear layers are `Factored`.

    Args:
        loss: (parameters, batch) → scalar. It must use every matrix that is called "weight" exactly
            once, in `x @ weight` or `x @ weight.T`, where x has one row per sample of the batch.
        params: the parameters; dictionaries hold the matrices called "weight".
        batch: arrays with one row per sample.
    """
    samples = len(batch[0])
    leaves, structure = jax.tree.flatten_with_path(params)
    linear = [path[-1] == _WEIGHT and leaf.ndim == 2 for path, leaf in leaves]

    def start(leaf: Array, factored: bool) -> Any:
        if not factored:
            return leaf
        return Factored(*(jnp.zeros((samples, size), leaf.dtype) for size in leaf.shape))

    def of_parts(parts: list[Any]) -> Array:
        whole = [
            _Weight(leaf, *part) if factored else part
            for (_, leaf), part, factored in zip(leaves, parts, linear, strict=True)
        ]
        return loss(structure.unflatten(whole), batch)

    parts = [start(leaf, factored) for (_, leaf), factored in zip(leaves, linear, strict=True)]
    value, gradient = jax.value_and_grad(of_parts)(parts)
    return value, structure.unflatten(gradient)


_WEIGHT = jax.tree_util.DictKey("weight")


@dataclass(frozen=True)
class _Weight:
    """Stands for a weight matrix in `x @ weight` and `x @ weight.T`.

    The product does not depend on `left` and `right`. They are there to be differentiated: their
    gradients are defined as the factors of the matrix's gradient.
    """

    matrix: Any
    left: Any
    right: Any

    #: Tells NumPy to leave `x @ weight` to this class.
    __array_ufunc__ = None

    @property
    def T(self) -> _Weight:
        return _Weight(self.matrix.T, self.right, self.left)

    def __rmatmul__(self, x: Array) -> Array:
        return _product(x, self.matrix, self.left, self.right)


@jax.custom_vjp
def _product(x: Array, matrix: Array, left: Array, right: Array) -> Array:
    return x @ matrix


def _product_forward(x: Array, matrix: Array, left: Array, right: Array) -> tuple[Array, Any]:
    return x @ matrix, (x, matrix)


def _product_backward(kept: Any, gradient: Array) -> tuple[Array, None, Array, Array]:
    x, matrix = kept
    return gradient @ matrix.T, None, x, gradient


_product.defvjp(_product_forward, _product_backward)
