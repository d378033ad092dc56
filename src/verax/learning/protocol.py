"""One round of a protocol, as a pure function.

FedSGD: every client sends the gradient of one batch, g_i = ∇F_i(θ_t; batch), and the server steps
θ_{t+1} = θ_t − γ · aggregate(m). FedAvg: every client takes L local steps of size γ, each on a
fresh batch, and sends θ_t − θ_local; the server steps by the aggregate itself. With L = 1 FedAvg's
message is γ times FedSGD's and both give the same model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from verax.learning.aggregators import Aggregator, Mean, Separate, Weighing
from verax.learning.inplace import add_product
from verax.learning.outer import (
    FEW,
    Outer,
    dense,
    inner_products,
    is_outer,
    pair_by_pair,
    squared_norms,
)
from verax.learning.reporting import Draws, Round, client_norms, messages, per_client, scales
from verax.learning.task import Batch

__all__ = [
    "GRAM_LIMIT",
    "Protocol",
    "Record",
    "Slope",
    "client_updates",
    "federated_round",
    "gram_matrix",
    "weighed",
]

Array = jax.Array
Slope = Callable[[Any, Batch], tuple[Array, Any]]

# Clients with local models larger than this take turns, for a model that a client steps again and
# again stays in the processor's cache.
_OWN = 1 << 16

# Arrays up to this many numbers a client are multiplied all with all, at once: one small product is
# over before the pairs of one array after the other have begun.
_SHORT = 4096

#: Up to this many clients the whole Gram matrix of a round is recorded.
GRAM_LIMIT = 64


@dataclass(frozen=True)
class Protocol:
    """How the federation trains.

    Attributes:
        kind: "fedsgd" or "fedavg".
        step: γ.
        batch: samples per gradient.
        local_steps: L of FedAvg.
        aggregator: what the server makes of the messages.
        participation: the share of clients that take part in a round.
    """

    kind: Literal["fedsgd", "fedavg"] = "fedsgd"
    step: float = 0.06
    batch: int = 32
    local_steps: int = 1
    aggregator: Aggregator = field(default_factory=Mean)
    participation: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("fedsgd", "fedavg"):
            raise ValueError(f"protocol is {self.kind!r}, must be fedsgd or fedavg")
        if not 0 < self.step < float("inf"):
            raise ValueError(f"step is {self.step:g}, must be a finite number > 0")
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}, must be ≥ 1")
        if self.local_steps < 1 or (self.kind == "fedsgd" and self.local_steps != 1):
            raise ValueError(
                f"local steps are {self.local_steps}, must be ≥ 1, and 1 for FedSGD: use fedavg"
            )
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation is {self.participation:g}, must be in (0, 1]")

    def __str__(self) -> str:
        name = "FedSGD" if self.kind == "fedsgd" else f"FedAvg with {self.local_steps} local steps"
        text = f"{name}, step {self.step:g}, batch {self.batch}"
        if not isinstance(self.aggregator, Mean):
            text += f", {self.aggregator}"
        if self.participation < 1:
            text += f", {self.participation:.0%} of the clients a round"
        return text


class Record(NamedTuple):
    """What a round leaves behind.

    `gram` is the (N, N) Gram matrix of the messages, or beyond `GRAM_LIMIT` clients an (N, 2) array
    of ‖m_i‖² and ‖m_i − mean of the others‖², or (N, 1) without the latter where a round is
    streamed and distances are not asked for. Rows of absent clients are zero.
    """

    gram: Any
    misreport: Any  # ‖m_i − g_i‖², (N,)
    loss: Any  # training loss on the round's batch, (N,)


def federated_round(
    slope: Slope,
    protocol: Protocol,
    params: Any,
    batches: Batch,
    present: Array,
    levels: Round,
    history: Array,
    drawn: Draws | None,
) -> tuple[Any, Array, Record]:
    """One round: what the clients compute, what they send, what the server makes of it.

    Args:
        slope: the task's loss and its gradient.
        protocol: how to train.
        params: θ_t.
        batches: each client's samples, arrays of shape (N, L, batch, …).
        present: who takes part, (N,).
        levels: what each client does in this round.
        history: each client's (sum of ‖g‖, count), (N, 2).
        drawn: the round's random numbers, or None where messages are fixed multiples of updates.

    Returns:
        θ_{t+1}, the histories, and the record.
    """
    losses, updates = client_updates(slope, protocol, params, batches)
    server_step = protocol.step if protocol.kind == "fedsgd" else 1.0
    clients = losses.shape[0]
    aggregator = protocol.aggregator
    if drawn is None and isinstance(aggregator, Weighing) and clients <= GRAM_LIMIT:
        # Messages are multiples of the updates: nothing of their size needs to be written again.
        updates = dense(updates, keep=lambda part: part.pays_for_gram)
        true = gram_matrix(updates)
        a = levels.a
        sent = a[:, None] * true * a[None]
        misreport = (a - 1) ** 2 * jnp.diagonal(true)
        weights = aggregator.weights(sent, present) * a * server_step
        # Never so; but now the step waits for all gradients, and XLA steps in place. Otherwise it
        # keeps a copy of the model for whatever may still read it.
        weights = jnp.where(jnp.trace(true) < 0, 0.0, weights)
        params = jax.tree.map(lambda p, u: stepped(p, -weights, u), params, updates)
    elif drawn is None and isinstance(aggregator, Separate):
        # The same of many clients, whose inner products would be more than the updates themselves.
        updates = dense(updates, keep=lambda part: part.pays_for_norms)
        true = squared_norms(updates)
        a = levels.a
        misreport = (a - 1) ** 2 * true
        sent, mean = _norms_and_distances(updates, a, true, present)
        if not isinstance(aggregator, Mean):
            weights = aggregator.shares(present) * aggregator.factor(a**2 * true) * a
            mean = jax.tree.map(lambda p, u: weighed(weights, u), params, updates)
        params = jax.tree.map(lambda p, u: p - server_step * u, params, mean)
    else:
        updates = dense(updates)
        norms = client_norms(updates)
        if drawn is None:
            m = jax.tree.map(lambda u: per_client(levels.a, u) * u, updates)
        else:
            a, history = scales(levels, norms, history)
            m = messages(updates, norms, a, levels, drawn)
        misreport = client_norms(jax.tree.map(jnp.subtract, m, updates))
        aggregate = _aggregated(aggregator, m, present)
        params = jax.tree.map(lambda p, u: p - server_step * u, params, aggregate)
        if clients <= GRAM_LIMIT:
            sent = gram_matrix(m)
        else:
            sent, _ = _norms_and_distances(m, jnp.ones_like(norms), client_norms(m), present)
    if clients <= GRAM_LIMIT:
        sent = jnp.where(present[:, None] & present[None], sent, 0.0)
    return params, history, Record(sent, jnp.where(present, misreport, 0.0), losses)


def _aggregated(aggregator: Aggregator, messages: Any, present: Array) -> Any:
    if not isinstance(aggregator, Weighing):
        return jax.tree.map(lambda leaf: aggregator.combine(leaf, present), messages)
    if isinstance(aggregator, Separate):
        # Of many messages all inner products would be more than the messages themselves.
        weights = aggregator.shares(present) * aggregator.factor(client_norms(messages))
    else:
        weights = aggregator.weights(gram_matrix(messages), present)
    return jax.tree.map(lambda leaf: weighed(weights, leaf), messages)


def gram_matrix(tree: Any) -> Array:
    """⟨m_i, m_j⟩ over all leaves of a tree with a leading client axis."""
    parts = jax.tree.leaves(tree, is_leaf=is_outer)
    factored = sum((part.gram() for part in parts if is_outer(part)), start=jnp.zeros(()))
    leaves = [part.reshape(part.shape[0], -1) for part in parts if not is_outer(part)]
    n = jax.tree.leaves(tree)[0].shape[0]
    if n > FEW:
        return sum((leaf @ leaf.T for leaf in leaves), start=factored)
    short = [leaf for leaf in leaves if leaf.shape[1] <= _SHORT]
    long = [leaf for leaf in leaves if leaf.shape[1] > _SHORT]
    if short:
        joined = jnp.concatenate(short, axis=1)
        factored = factored + joined @ joined.T
    if not long:
        return factored

    def inner(i: int, j: int) -> Array:
        return sum((jnp.vdot(leaf[i], leaf[j]) for leaf in long), start=jnp.zeros(()))

    return factored + pair_by_pair(n, inner)


def client_updates(
    slope: Slope, protocol: Protocol, params: Any, batches: Batch
) -> tuple[Array, Any]:
    """Every client's first training loss and true update."""

    def one(batch: Batch) -> tuple[Array, Any]:
        return client_update(slope, protocol, params, batch)

    numbers = sum(leaf.size for leaf in jax.tree.leaves(params))
    if protocol.kind == "fedavg" and numbers > _OWN:
        return jax.lax.map(one, batches)
    return jax.vmap(one)(batches)


def client_update(
    slope: Slope, protocol: Protocol, params: Any, batches: Batch
) -> tuple[Array, Any]:
    """A client's first training loss and its true update."""
    if protocol.kind == "fedsgd":
        return slope(params, tuple(array[0] for array in batches))

    def local(p: Any, batch: Batch) -> tuple[Any, Array]:
        value, gradient = slope(p, batch)
        whole = jax.tree.leaves(gradient)

        def step(q: Array, g: Any) -> Array:
            if isinstance(g, Outer):
                return add_product(q, g.left, -protocol.step * g.right, after=whole)
            return q - protocol.step * g

        return jax.tree.map(step, p, gradient), value

    after, values = jax.lax.scan(local, params, batches)
    return values[0], jax.tree.map(jnp.subtract, params, after)


def stepped(matrix: Array, weights: Array, updates: Any) -> Array:
    """M + Σ_i w_i u_i, in place where it can be."""
    if isinstance(updates, Outer):
        return updates.added(matrix, weights)
    return matrix + weighed(weights, updates)


def weighed(weights: Array, updates: Any) -> Array:
    """Σ_i w_i u_i of an array or of factors with a leading client axis."""
    if isinstance(updates, Outer):
        return updates.weighed(weights)
    n = updates.shape[0]
    if n > FEW:
        return jnp.tensordot(weights, updates, 1)
    return sum((weights[i] * updates[i] for i in range(n)), start=jnp.zeros((), updates.dtype))


def _norms_and_distances(updates: Any, a: Array, norms: Array, present: Array) -> tuple[Array, Any]:
    """‖m_i‖² and ‖m_i − mean of the others‖² of those present, (N, 2), with m_i = a_i g_i; and m̄.

    ‖m_i − m̄‖² = ‖m_i‖² − 2⟨m_i, m̄⟩ + ‖m̄‖², and m_i − mean of the others = (m_i − m̄) · n/(n − 1).
    """
    n = jnp.sum(present)
    weights = Mean().shares(present) * a
    mean = jax.tree.map(lambda u: weighed(weights, u), updates, is_leaf=is_outer)
    whole = sum((jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(mean)), start=jnp.zeros(()))
    sent = a**2 * norms
    far = sent - 2 * a * inner_products(updates, mean) + whole
    both = jnp.stack([sent, jnp.maximum(far, 0.0) * (n / jnp.maximum(n - 1, 1)) ** 2], axis=1)
    return jnp.where(present[:, None], both, 0.0), mean
