"""Sums and inner products of models and messages.

A model is a tree of arrays; the updates of N clients are such a tree with a leading axis of
length N. Every function here treats all arrays of a tree together as one vector per client.
Matrices may be kept as factors (`verax.learning.factored`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from verax.learning.factored import Factored, is_factored

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
    rows, factored = _parts(tree)
    norms = [jnp.sum(row * row, axis=1) for row in rows]
    return _sum(norms + [part.squared_norms() for part in factored])


def inner_products(tree: Any, common: Any) -> Array:
    """⟨v_i, u⟩ of each client's vector with one vector u, (N,)."""

    def of_part(part: Any, one: Array) -> Array:
        if isinstance(part, Factored):
            return part.inner_products(one)
        return part.reshape(part.shape[0], -1) @ one.reshape(-1)

    return _sum(jax.tree.leaves(jax.tree.map(of_part, tree, common, is_leaf=is_factored)))


def gram_matrix(tree: Any) -> Array:
    """⟨v_i, v_j⟩ of the clients' vectors, (N, N)."""
    rows, factored = _parts(tree)
    grams = [part.gram() for part in factored]
    n = jax.tree.leaves(tree)[0].shape[0]
    if n > _FEW_CLIENTS:
        return _sum(grams + [row @ row.T for row in rows])
    short = [row for row in rows if row.shape[1] <= _SHORT]
    if short:
        joined = jnp.concatenate(short, axis=1)
        grams.append(joined @ joined.T)
    for row in (row for row in rows if row.shape[1] > _SHORT):
        pairs = {(i, j): jnp.vdot(row[i], row[j]) for i in range(n) for j in range(i, n)}
        products = [[pairs[min(i, j), max(i, j)] for j in range(n)] for i in range(n)]
        grams.append(jnp.array(products))
    return _sum(grams)


def weighted_sum(weights: Array, tree: Any) -> Any:
    """Σ_i w_i v_i, a tree like one model."""

    def of_part(part: Any) -> Array:
        if isinstance(part, Factored):
            return part.weighted_sum(weights)
        if part.shape[0] > _FEW_CLIENTS:
            return jnp.tensordot(weights, part, 1)
        return _sum([w * own for w, own in zip(weights, part, strict=True)])

    return jax.tree.map(of_part, tree, is_leaf=is_factored)


def _parts(tree: Any) -> tuple[list[Array], list[Factored]]:
    """The arrays of a tree as one row per client, and the matrices that are kept as factors."""
    parts = jax.tree.leaves(tree, is_leaf=is_factored)
    rows = [part.reshape(part.shape[0], -1) for part in parts if not is_factored(part)]
    return rows, [part for part in parts if is_factored(part)]


def _sum(terms: list[Array]) -> Array:
    return sum(terms[1:], start=terms[0])
