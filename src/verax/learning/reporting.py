"""Reportings, compiled: what each client sends, as JAX arithmetic on the whole round.

The description is `verax.game.reporting`; its `Levels` are laid out per round and client here.
Noise and directions depend on (seed, round, client) alone: every run of a seed sees the same draws,
so that differences between reportings are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from verax.game.reporting import Levels

__all__ = ["Behaviour", "Round", "behaviour", "client_norms", "messages", "scales"]

Array = jax.Array


class Behaviour(NamedTuple):
    """The levels of R runs × N clients, laid out over T rounds."""

    a: NDArray[np.float32]  # (R, T, N)
    b: NDArray[np.float32]  # (R, T, N)
    angle: NDArray[np.float32]  # (R, N)
    feedback: NDArray[np.float32]  # (R, N)
    low: NDArray[np.float32]  # (R, N)
    high: NDArray[np.float32]  # (R, N)

    @property
    def plain(self) -> bool:
        """Whether all messages are multiples of the true updates, fixed in advance."""
        return not (np.any(self.b) or np.any(self.angle) or np.any(self.feedback))


class Round(NamedTuple):
    """The levels of one run in one round, each of shape (N,)."""

    a: Any
    b: Any
    angle: Any
    feedback: Any
    low: Any
    high: Any


def behaviour(runs: Sequence[Sequence[Levels]], dtype: Any = np.float32) -> Behaviour:
    """Stack the levels of R runs with N clients each."""

    def per_round(name: str) -> Any:
        rows = [np.stack([getattr(level, name) for level in run], axis=-1) for run in runs]
        return np.stack(rows).astype(dtype)

    def per_client(name: str) -> Any:
        return np.array([[getattr(level, name) for level in run] for run in runs], dtype=dtype)

    names = ("angle", "feedback", "low", "high")
    return Behaviour(per_round("a"), per_round("b"), *(per_client(name) for name in names))


def client_norms(tree: Any) -> Array:
    """‖·‖² of each client's part of a tree with a leading client axis, shape (N,)."""
    return sum(
        (jnp.sum(leaf.reshape(leaf.shape[0], -1) ** 2, axis=1) for leaf in jax.tree.leaves(tree)),
        start=jnp.zeros(()),
    )


def scales(levels: Round, norms: Array, history: Array) -> tuple[Array, Array]:
    """The scale of each client, and its history (sum of ‖g‖, count) brought up to date."""
    length = jnp.sqrt(norms)
    total, count = history[..., 0], history[..., 1]
    known = (count > 0) & (total > 0) & (length > 0)
    ratio = jnp.where(known, length * count / jnp.where(known, total, 1.0), 1.0)
    a = jnp.clip(levels.a + levels.feedback * jnp.log(ratio), levels.low, levels.high)
    return a, jnp.stack([total + length, count + 1], axis=-1)


def messages(updates: Any, norms: Array, a: Array, levels: Round, key: Array) -> Any:
    """m_i = a_i h_i + b_i ξ_i for every client; `key` belongs to (seed, round)."""
    leaves, tree = jax.tree.flatten(updates)
    clients = leaves[0].shape[0]
    size = sum(leaf[0].size for leaf in leaves)
    directions, noises = jax.random.split(key)
    length = jnp.sqrt(norms)
    unit = [leaf / _per_client(jnp.maximum(length, 1e-30), leaf) for leaf in leaves]
    aside = _normals(directions, leaves, clients)
    along = sum(
        (jnp.sum((d * u).reshape(clients, -1), axis=1) for d, u in zip(aside, unit, strict=True)),
        start=jnp.zeros(()),
    )
    aside = [d - _per_client(along, d) * u for d, u in zip(aside, unit, strict=True)]
    reach = jnp.maximum(jnp.sqrt(client_norms(aside)), 1e-30)
    # In one dimension there is no direction aside, and a zero update cannot be turned.
    turn = jnp.where((length > 0) & (size > 1), levels.angle, 0.0)
    result = [
        _per_client(a * jnp.cos(turn), g) * g
        + _per_client(a * jnp.sin(turn) * length / reach, g) * d
        + _per_client(levels.b / np.sqrt(size), g) * x
        for g, d, x in zip(leaves, aside, _normals(noises, leaves, clients), strict=True)
    ]
    return jax.tree.unflatten(tree, result)


def _normals(key: Array, leaves: list[Array], clients: int) -> list[Array]:
    """Standard normals shaped like the leaves, a stream per client."""
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(clients))
    return [
        jax.vmap(
            lambda k, n=n, leaf=leaf: jax.random.normal(
                jax.random.fold_in(k, n), leaf.shape[1:], leaf.dtype
            )
        )(keys)
        for n, leaf in enumerate(leaves)
    ]


def _per_client(values: Array, leaf: Array) -> Array:
    return values.reshape(-1, *[1] * (leaf.ndim - 1))
