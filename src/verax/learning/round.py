"""One round of a federation: updates → messages → statistics → aggregate → step.

Each step is a small function, in this order, and `federated_round` calls them. Everything is a pure
function of arrays, so that many runs can be computed at once (`jax.vmap`) and many rounds compiled
into one loop (`jax.lax.scan`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from verax.game.reporting import Layers, Reporting, Seen
from verax.learning.factored import dense, keep_factors
from verax.learning.protocol import Protocol
from verax.learning.task import Batch, Gradient
from verax.learning.vectors import (
    Messages,
    gram_matrix,
    inner_products,
    per_client,
    size_of,
    squared_norms,
    weighted_sum,
)
from verax.mechanism import Statistics

Array = jax.Array

#: Up to this many clients the whole Gram matrix of a round is recorded.
GRAM_LIMIT = 64

# A local model that is larger than this stays in the processor's cache only if clients take turns.
_TAKE_TURNS = 1 << 16


class RoundMeasurements(NamedTuple):
    """What is recorded of a round."""

    statistics: Statistics[Array]
    loss: Array  # each client's training loss on its (first) batch, (N,)


class Memory(NamedTuple):
    """What a deviating client remembers from round to round, beside the model."""

    last_aggregate: Any
    own: Any  # the reporting's own memory


class Smoothing(NamedTuple):
    """Moving averages of the clients' messages, whose norms are recorded.

    Attributes:
        averages: of every client, before the round; leading axis N.
        memory: β of this round.
    """

    averages: Any
    memory: Array


class RoundResult(NamedTuple):
    """A round's outcome.

    Attributes:
        params: the model after the round.
        memory: the deviator's; None without one.
        record: what is recorded.
        averages: the clients' moving averages after the round; None if they are not kept.
    """

    params: Any
    memory: Memory | None
    record: RoundMeasurements
    averages: Any = None


class LocalWork(NamedTuple):
    """What clients train on in a round; for one client without the leading axis.

    Attributes:
        samples: of every local step, arrays of shape (N, L, batch, …).
        steps: how many of the L steps each client takes, (N,); None: all of them.
    """

    samples: Batch
    steps: Array | None = None

    def of(self, client: int) -> LocalWork:
        """The work of one client."""
        return jax.tree.map(lambda array: array[client], self)


class MessageMaker(NamedTuple):
    """How one client makes its message of its true update, where it does more than scale it.

    Attributes:
        client: its number.
        make: true update → the message before scaling, and the client's memory.
    """

    client: Array
    make: Callable[[Any], tuple[Any, Any]]


class Deviation(NamedTuple):
    """What one client does in a round beyond scaling its update.

    Attributes:
        client: its number.
        parameters: this round's numbers of the reporting.
        work: what it trains on; None if that is not changed.
        key: of its random numbers in this round.
        round: t, from 1.
    """

    client: Array
    parameters: dict[str, Array]
    work: LocalWork | None
    key: Array
    round: Array


def federated_round(
    gradient: Gradient,
    protocol: Protocol,
    params: Any,
    work: LocalWork,
    present: Array,
    scales: Array,
    maker: MessageMaker | None = None,
    smoothing: Smoothing | None = None,
) -> RoundResult:
    """One round of all clients at once.

    Args:
        gradient: (model, batch) → loss and gradient.
        protocol: how to train.
        params: the model before the round.
        work: what each client trains on.
        present: who takes part, booleans (N,).
        scales: by what each client multiplies its update, (N,).
        maker: of the client that does more than scale its update, if there is one.
        smoothing: moving averages of the messages, if they are to be recorded.
    """
    losses, updates = client_updates(gradient, protocol, params, work)
    messages, own_memory = messages_of(updates, scales, maker)
    statistics = measured(messages, updates, present, maker)
    aggregate = protocol.aggregator.aggregate(messages, statistics, present)
    memory, averages = None, None
    if smoothing is not None:
        averages = smoothed(messages, present, smoothing)
        norms = jnp.where(present, squared_norms(averages), 0.0)
        statistics = statistics._replace(smoothed=norms)
    if maker is not None:
        memory = Memory(server_move(protocol, aggregate), own_memory)
    after = server_step(protocol, params, aggregate)
    return RoundResult(after, memory, RoundMeasurements(statistics, losses), averages)


def client_updates(
    gradient: Gradient, protocol: Protocol, params: Any, work: LocalWork
) -> tuple[Array, Any]:
    """Every client's first training loss, (N,), and its true update."""

    def one(own: LocalWork) -> tuple[Array, Any]:
        return client_update(gradient, protocol, params, own)

    if protocol.kind == "fedavg" and size_of(params) > _TAKE_TURNS:
        return jax.lax.map(one, work)
    losses, updates = jax.vmap(one)(work)
    return losses, keep_factors(updates, gram=len(losses) <= GRAM_LIMIT)


def client_update(
    gradient: Gradient, protocol: Protocol, params: Any, work: LocalWork
) -> tuple[Array, Any]:
    """One client's first training loss and its true update."""
    if protocol.kind == "fedsgd":
        return gradient(params, tuple(array[0] for array in work.samples))

    def local_step(model: Any, now: tuple[Array, Batch]) -> tuple[Any, Array]:
        number, batch = now
        loss, direction = gradient(model, batch)
        step = protocol.step if work.steps is None else protocol.step * (number < work.steps)
        return jax.tree.map(lambda p, g: p - step * g, model, dense(direction)), loss

    numbers = jnp.arange(work.samples[0].shape[0])
    local, losses = jax.lax.scan(local_step, params, (numbers, work.samples))
    return losses[0], jax.tree.map(jnp.subtract, params, local)


def messages_of(updates: Any, scales: Array, maker: MessageMaker | None) -> tuple[Messages, Any]:
    """What all clients send, and the memory of the client that does more than scale its update."""
    if maker is None:
        return Messages(updates, scales), None
    updates = dense(updates)
    own = jax.tree.map(lambda leaf: leaf[maker.client], updates)
    message, memory = maker.make(own)
    vectors = jax.tree.map(lambda all_, new: all_.at[maker.client].set(new), updates, message)
    return Messages(vectors, scales), memory


def measured(
    messages: Messages, updates: Any, present: Array, maker: MessageMaker | None
) -> Statistics[Array]:
    """The statistics of a round; those of absent clients are zero."""
    statistics = _of_scaled_updates(messages, present)
    if maker is None:
        return statistics
    client, scale = maker.client, messages.scales[maker.client]
    difference = jax.tree.map(
        lambda m, g: (scale * m[client] - g[client])[None], messages.vectors, dense(updates)
    )
    distance = jnp.where(present[client], squared_norms(difference)[0], 0.0)
    return statistics._replace(misreport=jnp.asarray(statistics.misreport).at[client].set(distance))


def _of_scaled_updates(messages: Messages, present: Array) -> Statistics[Array]:
    """The statistics of messages that are scaled updates."""
    vectors, scales = messages
    if len(scales) <= GRAM_LIMIT:
        products = gram_matrix(vectors)
        pairs = present[:, None] & present[None]
        gram = jnp.where(pairs, scales[:, None] * products * scales[None], 0.0)
        misreport = jnp.where(present, (scales - 1) ** 2 * jnp.diagonal(products), 0.0)
        return Statistics(norms=jnp.diagonal(gram), gram=gram, misreport=misreport)
    squares = squared_norms(vectors)
    mean = weighted_sum(scales * present / jnp.maximum(jnp.sum(present), 1), vectors)
    whole = squared_norms(jax.tree.map(lambda leaf: leaf[None], mean))[0]
    # ‖m_i − m̄‖² = ‖m_i‖² − 2⟨m_i, m̄⟩ + ‖m̄‖²
    distances = scales**2 * squares - 2 * scales * inner_products(vectors, mean) + whole
    return Statistics(
        norms=jnp.where(present, scales**2 * squares, 0.0),
        distances=jnp.where(present, jnp.maximum(distances, 0.0), 0.0),
        misreport=jnp.where(present, (scales - 1) ** 2 * squares, 0.0),
    )


def smoothed(messages: Messages, present: Array, smoothing: Smoothing) -> Any:
    """The clients' moving averages after a round; that of an absent client stays as it is."""
    beta = smoothing.memory

    def one(average: Array, vectors: Array) -> Array:
        sent = per_client(messages.scales, vectors) * vectors
        here = per_client(present, vectors)
        return jnp.where(here, beta * average + (1 - beta) * sent, average)

    return jax.tree.map(one, smoothing.averages, dense(messages.vectors))


def server_move(protocol: Protocol, aggregate: Any) -> Any:
    """By how much the server moves the model."""
    return jax.tree.map(lambda update: protocol.server_step * update, aggregate)


def server_step(protocol: Protocol, params: Any, aggregate: Any) -> Any:
    """The model after the server's step.

    The step waits until the whole aggregate is known. Then no gradient still reads the model, and
    XLA updates it in place instead of copying it.
    """
    move = jax.lax.optimization_barrier(server_move(protocol, aggregate))
    return jax.tree.map(jnp.subtract, params, move)


def maker_of(
    reporting: Reporting,
    rounds: int,
    gradient: Gradient,
    protocol: Protocol,
    params: Any,
    memory: Memory,
    deviation: Deviation,
) -> MessageMaker:
    """How the deviating client makes its message in this round."""

    def make(update: Any) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten(update)

        def normals(k: int) -> Layers:
            keys = jax.random.split(jax.random.fold_in(deviation.key, k), len(leaves))
            draws = zip(keys, leaves, strict=True)
            return [jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in draws]

        seen = Seen(
            deviation.round,
            rounds,
            deviation.parameters,
            jax.tree.leaves(memory.last_aggregate),
            memory.own,
            normals,
        )
        if deviation.work is not None:
            samples, steps = deviation.work
            samples = jax.vmap(lambda *batch: reporting.batch(batch, seen))(*samples)
            own = LocalWork(samples, steps)
            leaves = jax.tree.leaves(dense(client_update(gradient, protocol, params, own)[1]))
        message, own = reporting.message(leaves, seen)
        return jax.tree.unflatten(tree, list(message)), own

    return MessageMaker(deviation.client, make)


def first_memory(reporting: Reporting, params: Any) -> Memory:
    """A deviating client's memory before its first round."""
    nothing = jax.tree.map(jnp.zeros_like, params)
    return Memory(nothing, reporting.start(jax.tree.leaves(nothing)))
