"""Sums and inner products of models and messages.

A model is a tree of arrays; the updates of N clients are such a tree with a leading axis of
length N. Every function here treats all arrays of a tree together as one vector per client.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = [
    "Messages",
    "gram_matrix",
    "inner_products",
    "per_client",
    "size_of",
    "squared_norms",
    "weighted_sum",
]

Array = jax.Array

# XLA multiplies few long rows slowly on a CPU; up to so many clients, loops over pairs are faster.
_FEW_CLIENTS = 8
# Inner products of arrays up to this size are computed from one concatenated array.
_SHORT = 4096


class Messages(NamedTuple):
    """What the clients send: message i is scales[i] times vector i.

    Most misreports only scale the update. The product is never written to memory: norms, inner
    products and the aggregate are computed from the two factors.
    """

    vectors: Any  # a tree like the model, with a leading client axis
    scales: Array  # (N,)


def size_of(tree: Any) -> int:
    """How many numbers a model has."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def per_client(values: Array, leaf: Array) -> Array:
    """One number per client, shaped to multiply an array with a leading client axis."""
    return values.reshape(-1, *[1] * (leaf.ndim - 1))


def squared_norms(tree: Any) -> Array:
    """‖v_i‖² of each client's vector, (N,)."""
    rows = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)]
    return sum((jnp.sum(row * row, axis=1) for row in rows), start=jnp.zeros(()))


def inner_products(tree: Any, common: Any) -> Array:
    """⟨v_i, u⟩ of each client's vector with one vector u, (N,)."""
    products = jax.tree.map(
        lambda leaf, one: leaf.reshape(leaf.shape[0], -1) @ one.reshape(-1), tree, common
    )
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))


def gram_matrix(tree: Any) -> Array:
    """⟨v_i, v_j⟩ of the clients' vectors, (N, N)."""
    rows = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)]
    n = rows[0].shape[0]
    if n > _FEW_CLIENTS:
        return sum((row @ row.T for row in rows), start=jnp.zeros(()))
    short = [row for row in rows if row.shape[1] <= _SHORT]
    long = [row for row in rows if row.shape[1] > _SHORT]
    gram = jnp.zeros((n, n), rows[0].dtype)
    if short:
        joined = jnp.concatenate(short, axis=1)
        gram = gram + joined @ joined.T
    for row in long:
        pairs = {(i, j): jnp.vdot(row[i], row[j]) for i in range(n) for j in range(i, n)}
        gram = gram + jnp.array([[pairs[min(i, j), max(i, j)] for j in range(n)] for i in range(n)])
    return gram


def weighted_sum(weights: Array, tree: Any) -> Any:
    """Σ_i w_i v_i, a tree like one model."""

    def of_leaf(leaf: Array) -> Array:
        if leaf.shape[0] > _FEW_CLIENTS:
            return jnp.tensordot(weights, leaf, 1)
        return sum((w * part for w, part in zip(weights, leaf, strict=True)), jnp.zeros(()))

    return jax.tree.map(of_leaf, tree)
