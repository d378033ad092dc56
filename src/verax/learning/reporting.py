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

__all__ = [
    "Behaviour",
    "Draws",
    "Needs",
    "Round",
    "behaviour",
    "client_norms",
    "draws",
    "messages",
    "per_client",
    "scales",
]

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
    def needs(self) -> Needs:
        """What has to be drawn or followed for these runs; what none needs is not compiled."""
        return Needs(bool(np.any(self.b)), bool(np.any(self.angle)), bool(np.any(self.feedback)))


class Needs(NamedTuple):
    """Whether any message is more than a fixed multiple of the true update."""

    noise: bool
    turn: bool
    history: bool


class Draws(NamedTuple):
    """What is random in a round, trees like the updates of all clients, or None if not needed."""

    noise: Any
    aside: Any


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
    return _inner(tree, tree)


def scales(levels: Round, norms: Array, history: Array) -> tuple[Array, Array]:
    """The scale of each client, and its history (sum of ‖g‖, count) brought up to date."""
    length = jnp.sqrt(norms)
    total, count = history[..., 0], history[..., 1]
    known = (count > 0) & (total > 0) & (length > 0)
    ratio = jnp.where(known, length * count / jnp.where(known, total, 1.0), 1.0)
    a = jnp.clip(levels.a + levels.feedback * jnp.log(ratio), levels.low, levels.high)
    return a, jnp.stack([total + length, count + 1], axis=-1)


def draws(key: Array, needs: Needs, like: Any, clients: int) -> Draws:
    """The random numbers of one round, the same for all runs of a seed."""
    noises, directions = jax.random.split(key)
    return Draws(
        _normals(noises, like, clients) if needs.noise else None,
        _normals(directions, like, clients) if needs.turn else None,
    )


def messages(updates: Any, norms: Array, a: Array, levels: Round, drawn: Draws) -> Any:
    """m_i = a_i h_i + b_i ξ_i for every client."""
    sent = updates
    if drawn.aside is not None:
        sent = _turned(updates, norms, levels.angle, drawn.aside)
    sent = jax.tree.map(lambda leaf: per_client(a, leaf) * leaf, sent)
    if drawn.noise is None:
        return sent
    size = sum(leaf[0].size for leaf in jax.tree.leaves(updates))
    share = levels.b / np.sqrt(size)
    return jax.tree.map(lambda leaf, xi: leaf + per_client(share, leaf) * xi, sent, drawn.noise)


def per_client(values: Array, leaf: Array) -> Array:
    """Numbers per client, shaped to multiply a leaf with a leading client axis."""
    return values.reshape(-1, *[1] * (leaf.ndim - 1))


def _turned(updates: Any, norms: Array, angle: Array, aside: Any) -> Any:
    """Each update turned by its angle toward a direction orthogonal to it, its length kept."""
    length = jnp.sqrt(norms)
    unit = jax.tree.map(lambda g: g / per_client(jnp.maximum(length, 1e-30), g), updates)
    along = _inner(aside, unit)
    aside = jax.tree.map(lambda d, u: d - per_client(along, d) * u, aside, unit)
    reach = jnp.maximum(jnp.sqrt(_inner(aside, aside)), 1e-30)
    # In one dimension there is no direction aside, and a zero update cannot be turned.
    size = sum(leaf[0].size for leaf in jax.tree.leaves(updates))
    turn = jnp.where((length > 0) & (size > 1), angle, 0.0)
    return jax.tree.map(
        lambda g, d: (
            per_client(jnp.cos(turn), g) * g + per_client(jnp.sin(turn) * length / reach, g) * d
        ),
        updates,
        aside,
    )


def _inner(one: Any, other: Any) -> Array:
    """⟨·, ·⟩ of each client's parts, (N,)."""
    products = jax.tree.map(lambda x, y: jnp.sum((x * y).reshape(x.shape[0], -1), 1), one, other)
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))


def _normals(key: Array, like: Any, clients: int) -> Any:
    """Standard normals shaped like one model per client, drawn at once (quick to compile)."""
    leaves, tree = jax.tree.flatten(like)
    sizes = [leaf.size for leaf in leaves]
    whole = jax.random.normal(key, (clients, sum(sizes)), leaves[0].dtype)
    parts = jnp.split(whole, np.cumsum(sizes)[:-1], axis=1)
    shaped = [part.reshape(clients, *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(tree, shaped)
