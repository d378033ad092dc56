"""How the server makes one update of N messages.

Two kinds, each one small function. A *weighing* aggregator returns weights w(G) from the Gram
matrix G_ij = ⟨m_i, m_j⟩ and the aggregate is Σ w_i m_i: distances, and so Krum, the geometric
median and clipping, need nothing but G. A *coordinate-wise* aggregator works on each coordinate of
the stacked messages. Absent clients get no weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

__all__ = [
    "Aggregator",
    "Clipped",
    "CoordinateWise",
    "GeometricMedian",
    "Krum",
    "Mean",
    "Median",
    "MultiKrum",
    "Separate",
    "TrimmedMean",
    "Weighing",
    "WeightedMean",
]

Array = jax.Array

_FEW = 16  # values that are sorted by comparing neighbours


@dataclass(frozen=True)
class Weighing:
    """Base: the aggregate is Σ_i w_i m_i."""

    def weights(self, gram: Array, present: Array) -> Array:
        """w, shape (N,), from the Gram matrix of the messages and who is present."""
        raise NotImplementedError


@dataclass(frozen=True)
class Separate(Weighing):
    """Base: w_i is a share that is known before, times a factor of the message's own norm.

    So messages can be weighed one by one, and need not be held all at once.
    """

    def shares(self, present: Array) -> Array:
        """(N,), from who is present."""
        raise NotImplementedError

    def factor(self, norms: Array) -> Array:
        """Of messages with these ‖m‖²."""
        return jnp.ones_like(norms)

    def weights(self, gram: Array, present: Array) -> Array:
        return self.shares(present) * self.factor(jnp.diagonal(gram))


@dataclass(frozen=True)
class CoordinateWise:
    """Base: the aggregate is computed coordinate by coordinate."""

    def combine(self, messages: Array, present: Array) -> Array:
        """(N, …) → (…)."""
        raise NotImplementedError


Aggregator = Weighing | CoordinateWise


@dataclass(frozen=True)
class Mean(Separate):
    """(1/N) Σ m_i over those present."""

    def shares(self, present: Array) -> Array:
        return present / jnp.maximum(jnp.sum(present), 1)


@dataclass(frozen=True)
class WeightedMean(Separate):
    """Σ w_i m_i / Σ w_i over those present, with fixed weights."""

    table: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.table or min(self.table) < 0 or sum(self.table) <= 0:
            raise ValueError(f"weights must be ≥ 0 and not all zero, got {self.table}")

    def shares(self, present: Array) -> Array:
        if len(self.table) != present.shape[0]:
            raise ValueError(f"{len(self.table)} weights for {present.shape[0]} clients")
        here = jnp.asarray(self.table, dtype=jnp.result_type(float)) * present
        return here / jnp.maximum(jnp.sum(here), jnp.finfo(here.dtype).tiny)


@dataclass(frozen=True)
class Clipped(Separate):
    """The mean of messages shortened to at most `bound`: m_i · min(1, bound/‖m_i‖)."""

    bound: float

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise ValueError(f"bound is {self.bound:g}, must be > 0")

    def shares(self, present: Array) -> Array:
        return Mean().shares(present)

    def factor(self, norms: Array) -> Array:
        length = jnp.sqrt(jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))
        return jnp.minimum(1.0, self.bound / length)


@dataclass(frozen=True)
class MultiKrum(Weighing):
    """The mean of the `keep` messages that lie closest to their N − f − 2 nearest neighbours."""

    liars: int
    keep: int

    def __post_init__(self) -> None:
        if self.liars < 0 or self.keep < 1:
            raise ValueError(f"liars {self.liars} must be ≥ 0 and keep {self.keep} ≥ 1")

    def weights(self, gram: Array, present: Array) -> Array:
        n = gram.shape[0]
        norms = jnp.diagonal(gram)
        far = jnp.maximum(norms[:, None] + norms[None] - 2 * gram, 0.0)
        off = present[:, None] & present[None] & ~jnp.eye(n, dtype=bool)
        sorted_ = jnp.sort(jnp.where(off, far, jnp.inf), axis=1)
        near = jnp.maximum(jnp.sum(present) - self.liars - 2, 1)
        counted = (jnp.arange(n) < near) & jnp.isfinite(sorted_)
        score = jnp.where(present, jnp.sum(jnp.where(counted, sorted_, 0.0), axis=1), jnp.inf)
        rank = jnp.argsort(jnp.argsort(score))
        chosen = (rank < self.keep) & present
        return chosen / jnp.maximum(jnp.sum(chosen), 1)


def Krum(liars: int) -> MultiKrum:
    """The one message closest to its N − f − 2 nearest neighbours."""
    return MultiKrum(liars, keep=1)


@dataclass(frozen=True)
class GeometricMedian(Weighing):
    """argmin_z Σ ‖z − m_i‖ by smoothed Weiszfeld steps, carried out on the weights alone.

    With z = Σ w_j m_j the distance is ‖z − m_i‖² = wᵀGw − 2(Gw)_i + G_ii.
    """

    iterations: int = 32
    smoothing: float = 1e-6

    def weights(self, gram: Array, present: Array) -> Array:
        floor = self.smoothing * jnp.sqrt(jnp.max(jnp.diagonal(gram)) + jnp.finfo(gram.dtype).tiny)

        def step(w: Array, _: None) -> tuple[Array, None]:
            inner = gram @ w
            far = jnp.sqrt(jnp.maximum(w @ inner - 2 * inner + jnp.diagonal(gram), 0.0))
            pull = present / jnp.maximum(far, floor)
            return pull / jnp.sum(pull), None

        first = Mean().weights(gram, present).astype(gram.dtype)
        return jax.lax.scan(step, first, None, length=self.iterations)[0]


@dataclass(frozen=True)
class Median(CoordinateWise):
    """The median of each coordinate over those present (the mean of the middle two if even)."""

    def combine(self, messages: Array, present: Array) -> Array:
        return _middle(messages, present, lambda n: jnp.maximum(n - 1, 0) // 2)


@dataclass(frozen=True)
class TrimmedMean(CoordinateWise):
    """The mean of each coordinate without the `share` largest and smallest values."""

    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise ValueError(f"share is {self.share:g}, must be in [0, 0.5)")

    def combine(self, messages: Array, present: Array) -> Array:
        return _middle(messages, present, lambda n: jnp.floor(self.share * n).astype(int))


def _middle(messages: Array, present: Array, cut: Callable[[Any], Any]) -> Array:
    """The mean of what is left of each coordinate after `cut(n)` values at either end."""
    shape = (-1, *[1] * (messages.ndim - 1))
    n = jnp.sum(present)
    ordered = _ordered(jnp.where(present.reshape(shape), messages, jnp.inf))
    drop = cut(n)
    place = jnp.arange(messages.shape[0])
    kept = ((place >= drop) & (place < n - drop)).reshape(shape)
    total = jnp.sum(jnp.where(kept, ordered, 0.0), axis=0)
    return total / jnp.maximum(n - 2 * drop, 1)


def _ordered(values: Array) -> Array:
    """Sorted along the first axis.

    XLA sorts one coordinate at a time; of few values, comparing neighbours in turn (odd-even
    transposition) is arithmetic on whole arrays.
    """
    n = values.shape[0]
    if n > _FEW:
        return jnp.sort(values, axis=0)
    rows = list(values)
    for turn in range(n):
        for k in range(turn % 2, n - 1, 2):
            low, high = jnp.minimum(rows[k], rows[k + 1]), jnp.maximum(rows[k], rows[k + 1])
            rows[k], rows[k + 1] = low, high
    return jnp.stack(rows)
