"""How the server makes one update of N messages.

An aggregator is a frozen value with one method, `aggregate`. Three kinds of base class leave only
one small function to write:

- `NormWeighted`: the aggregate is Σ w_i m_i and w_i depends on who is present and on the norm of
  message i alone (mean, clipping). Messages can be added up one after the other.
- `GramWeighted`: the aggregate is Σ w_i m_i with weights from the Gram matrix ⟨m_i, m_j⟩.
  Distances, and so Krum and the geometric median, need nothing else.
- `CoordinateWise`: each coordinate of the aggregate comes from that coordinate of all messages.

Absent clients get no weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from verax.learning.factored import dense
from verax.learning.vectors import Messages, gram_matrix, per_client, weighted_sum
from verax.mechanism import Statistics
from verax.plugins import is_reference, load, reference

Array = jax.Array

#: How a round of many clients is streamed: messages are added up one after the other, or all
#: messages are seen in blocks of coordinates, for their Gram matrix or coordinate by coordinate.
#: Empty: not at all.
Streaming = Literal["", "message", "gram", "coordinate"]

# XLA sorts one coordinate at a time. Up to so many values, exchanging neighbours is faster.
_FEW_VALUES = 16


@dataclass(frozen=True)
class Aggregator:
    """Base of all aggregators."""

    streamed_by: ClassVar[Streaming] = ""

    def aggregate(self, messages: Messages, statistics: Statistics[Array], present: Array) -> Any:
        """One tree like the model, from the messages and their statistics."""
        raise NotImplementedError

    def check(self, clients: int) -> None:
        """Refuse numbers of the aggregator that do not fit the number of clients."""

    @property
    def name(self) -> str:
        """The aggregator's text in a plan; `aggregator_of` reads it back."""
        return reference(self, "aggregator")


@dataclass(frozen=True)
class NormWeighted(Aggregator):
    """Base: w_i is a share that is known before, times a factor of the message's own norm."""

    streamed_by: ClassVar[Streaming] = "message"

    def shares(self, present: Array) -> Array:
        """(N,), from who is present."""
        raise NotImplementedError

    def factor(self, norms: Array) -> Array:
        """By what messages with these ‖m‖² are multiplied."""
        return jnp.ones_like(norms)

    def aggregate(self, messages: Messages, statistics: Statistics[Array], present: Array) -> Any:
        weights = self.shares(present) * self.factor(jnp.asarray(statistics.norms))
        return weighted_sum(weights * messages.scales, messages.vectors)


@dataclass(frozen=True)
class GramWeighted(Aggregator):
    """Base: weights from the inner products of the messages."""

    streamed_by: ClassVar[Streaming] = "gram"

    def weights(self, gram: Array, present: Array) -> Array:
        """w, shape (N,), from the Gram matrix of the messages and who is present."""
        raise NotImplementedError

    def aggregate(self, messages: Messages, statistics: Statistics[Array], present: Array) -> Any:
        scales = messages.scales
        gram = statistics.gram
        if gram is None:
            gram = scales[:, None] * gram_matrix(messages.vectors) * scales[None]
        return weighted_sum(self.weights(gram, present) * scales, messages.vectors)


@dataclass(frozen=True)
class CoordinateWise(Aggregator):
    """Base: the aggregate is computed coordinate by coordinate."""

    streamed_by: ClassVar[Streaming] = "coordinate"

    def combine(self, values: Array, present: Array) -> Array:
        """(N, …) → (…)."""
        raise NotImplementedError

    def aggregate(self, messages: Messages, statistics: Statistics[Array], present: Array) -> Any:
        return jax.tree.map(
            lambda leaf: self.combine(per_client(messages.scales, leaf) * leaf, present),
            dense(messages.vectors),
        )


@dataclass(frozen=True)
class Mean(NormWeighted):
    """(1/N) Σ m_i over those present."""

    def shares(self, present: Array) -> Array:
        return present / jnp.maximum(jnp.sum(present), 1)

    @property
    def name(self) -> str:
        return "mean"


@dataclass(frozen=True)
class WeightedMean(NormWeighted):
    """Σ w_i m_i / Σ w_i over those present, with fixed weights."""

    table: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.table or min(self.table) < 0 or sum(self.table) <= 0:
            raise ValueError(f"weights must be ≥ 0 and not all zero, got {self.table}")

    def check(self, clients: int) -> None:
        if len(self.table) != clients:
            raise ValueError(f"{len(self.table)} weights for {clients} clients")

    def shares(self, present: Array) -> Array:
        self.check(present.shape[0])
        here = jnp.asarray(self.table, dtype=jnp.result_type(float)) * present
        return here / jnp.maximum(jnp.sum(here), jnp.finfo(here.dtype).tiny)

    @property
    def name(self) -> str:
        return "weighted-mean:" + ",".join(f"{weight:g}" for weight in self.table)


@dataclass(frozen=True)
class Clipped(NormWeighted):
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

    @property
    def name(self) -> str:
        return f"clipped:{self.bound:g}"


@dataclass(frozen=True)
class MultiKrum(GramWeighted):
    """The mean of the `keep` messages that lie closest to their N − f − 2 nearest neighbours."""

    liars: int
    keep: int

    def __post_init__(self) -> None:
        if self.liars < 0 or self.keep < 1:
            raise ValueError(f"liars {self.liars} must be ≥ 0 and keep {self.keep} ≥ 1")

    def check(self, clients: int) -> None:
        if self.liars > clients - 2:
            raise ValueError(
                f"{self.name} expects {self.liars} liars, of {clients} clients at most "
                f"{clients - 2} can be: Krum looks at the N − {self.liars} − 2 nearest messages"
            )
        if self.keep > clients:
            raise ValueError(f"{self.name} keeps {self.keep} messages of {clients} clients")

    def weights(self, gram: Array, present: Array) -> Array:
        n = gram.shape[0]
        norms = jnp.diagonal(gram)
        far = jnp.maximum(norms[:, None] + norms[None] - 2 * gram, 0.0)
        off = present[:, None] & present[None] & ~jnp.eye(n, dtype=bool)
        ordered = jnp.sort(jnp.where(off, far, jnp.inf), axis=1)
        near = jnp.maximum(jnp.sum(present) - self.liars - 2, 1)
        counted = (jnp.arange(n) < near) & jnp.isfinite(ordered)
        score = jnp.where(present, jnp.sum(jnp.where(counted, ordered, 0.0), axis=1), jnp.inf)
        rank = jnp.argsort(jnp.argsort(score))
        chosen = (rank < self.keep) & present
        return chosen / jnp.maximum(jnp.sum(chosen), 1)

    @property
    def name(self) -> str:
        return f"krum:{self.liars}" if self.keep == 1 else f"multi-krum:{self.liars},{self.keep}"


def Krum(liars: int) -> MultiKrum:
    """The one message closest to its N − f − 2 nearest neighbours."""
    return MultiKrum(liars, keep=1)


@dataclass(frozen=True)
class GeometricMedian(GramWeighted):
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

        first = Mean().shares(present).astype(gram.dtype)
        return jax.lax.scan(step, first, None, length=self.iterations)[0]

    @property
    def name(self) -> str:
        return "geometric-median"


@dataclass(frozen=True)
class Median(CoordinateWise):
    """The median of each coordinate over those present (the mean of the middle two if even)."""

    def combine(self, values: Array, present: Array) -> Array:
        return _middle(values, present, lambda n: jnp.maximum(n - 1, 0) // 2)

    @property
    def name(self) -> str:
        return "median"


@dataclass(frozen=True)
class TrimmedMean(CoordinateWise):
    """The mean of each coordinate without the `share` largest and smallest values."""

    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise ValueError(f"share is {self.share:g}, must be in [0, 0.5)")

    def combine(self, values: Array, present: Array) -> Array:
        return _middle(values, present, lambda n: jnp.floor(self.share * n).astype(int))

    @property
    def name(self) -> str:
        return f"trimmed-mean:{self.share:g}"


def _middle(values: Array, present: Array, cut: Callable[[Any], Any]) -> Array:
    """The mean of what is left of each coordinate after `cut(n)` values at either end."""
    shape = (-1, *[1] * (values.ndim - 1))
    n = jnp.sum(present)
    ordered = _sorted(jnp.where(present.reshape(shape), values, jnp.inf))
    drop = cut(n)
    place = jnp.arange(values.shape[0])
    kept = ((place >= drop) & (place < n - drop)).reshape(shape)
    total = jnp.sum(jnp.where(kept, ordered, 0.0), axis=0)
    return total / jnp.maximum(n - 2 * drop, 1)


def _sorted(values: Array) -> Array:
    """Sorted along the first axis; few values by odd-even transposition."""
    n = values.shape[0]
    if n > _FEW_VALUES:
        return jnp.sort(values, axis=0)
    rows = list(values)
    for turn in range(n):
        for k in range(turn % 2, n - 1, 2):
            low, high = jnp.minimum(rows[k], rows[k + 1]), jnp.maximum(rows[k], rows[k + 1])
            rows[k], rows[k + 1] = low, high
    return jnp.stack(rows)


#: How plans and command lines write the aggregators.
AGGREGATORS = (
    "mean",
    "weighted-mean:W1,W2,…",
    "median",
    "trimmed-mean:SHARE",
    "krum:LIARS",
    "multi-krum:LIARS,KEEP",
    "geometric-median",
    "clipped:BOUND",
    "module:name",
)


def aggregator_of(text: str) -> Aggregator:
    """An aggregator from its text: a name with its numbers behind a colon, or `module:name`."""
    name, _, rest = text.partition(":")
    if name not in {usual.partition(":")[0] for usual in AGGREGATORS} and is_reference(text):
        return load(text, "aggregator", "aggregate", "check", "name")
    try:
        numbers = [float(part) for part in rest.split(",")] if rest else []
        match name:
            case "mean":
                return Mean()
            case "weighted-mean":
                return WeightedMean(tuple(numbers))
            case "median":
                return Median()
            case "trimmed-mean":
                return TrimmedMean(*numbers)
            case "krum":
                return Krum(*map(int, numbers))
            case "multi-krum":
                return MultiKrum(*map(int, numbers))
            case "geometric-median":
                return GeometricMedian()
            case "clipped":
                return Clipped(*numbers)
            case _:
                raise ValueError
    except (ValueError, TypeError) as error:
        why = f" ({error})" if str(error) else ""
        raise ValueError(
            f"aggregator is {text!r}{why}, must be one of {', '.join(AGGREGATORS)}"
        ) from None
