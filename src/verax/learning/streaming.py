"""A round of many clients, a chunk of them at a time.

Where the messages of all clients together would not fit the memory, a chunk of clients is computed,
measured, added to the running sum and forgotten:

    aggregate = Σ_i w_i f(‖m_i‖) m_i,

with shares w_i that are known before (mean, weighted mean) and a factor f that depends on the
message alone (clipping). The distance of a message from the mean is known only after all are
summed; where it is wanted, every update is computed a second time. Aggregators that must see all
messages at once are computed block by block of coordinates, and every block computes the messages
anew: memory holds one block, time grows with the number of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from verax.learning.factored import dense
from verax.learning.protocol import Protocol
from verax.learning.round import (
    LocalWork,
    Memory,
    MessageMaker,
    RoundMeasurements,
    RoundResult,
    client_update,
    client_updates,
    server_move,
    server_step,
)
from verax.learning.task import Gradient
from verax.learning.vectors import per_client, size_of, squared_norms, weighted_sum
from verax.mechanism import Statistics

Array = jax.Array

_LARGEST_CHUNK = 256


@dataclass(frozen=True)
class MemoryLimits:
    """How many numbers are held in memory at once; a number takes four bytes.

    Attributes:
        held: of the messages of all clients; rounds with more are streamed.
        chunk: about so many in the updates of a chunk of clients.
        block: about so many in a block of coordinates of all messages.
    """

    held: int = 1 << 26
    chunk: int = 1 << 26
    block: int = 1 << 28


class _Chunk(NamedTuple):
    """The messages of a chunk of clients: scales[i] times vector i."""

    vectors: Any
    scales: Array
    losses: Array
    misreport: Array


def chunk_size(parameters: int, participants: int, numbers: int) -> int:
    """How many clients are computed at a time, for chunks of about so many numbers.

    Chunks have nearly equal sizes.
    """
    wanted = max(1, min(_LARGEST_CHUNK, numbers // parameters, participants))
    pieces = -(-participants // wanted)
    return -(-participants // pieces)


def streamed_round(
    gradient: Gradient,
    protocol: Protocol,
    params: Any,
    gather: Callable[[Array], LocalWork],
    participants: Array,
    scales: Array,
    maker: MessageMaker | None = None,
    *,
    limits: MemoryLimits,
    distances: bool = False,
) -> RoundResult:
    """One round of those who take part; see `verax.learning.round.federated_round`.

    Args:
        gradient: (model, batch) → loss and gradient.
        protocol: how to train.
        params: the model before the round.
        gather: numbers of clients → what they train on.
        participants: numbers of the clients that take part.
        scales: by what each of all N clients multiplies its update, (N,).
        maker: of the client that does more than scale its update, if there is one.
        limits: how much is held at once.
        distances: also record ‖m_i − m̄‖², by a second pass over the chunks.
    """
    N, count = scales.shape[0], participants.shape[0]
    size = chunk_size(size_of(params), count, limits.chunk)
    # The last chunk is padded with a client N, which does not exist: its weight is zero and what
    # would be recorded of it is dropped.
    padded = jnp.full(-(-count // size) * size, N).at[:count].set(participants)
    chunks = padded.reshape(-1, size)
    message, memory = None, None
    if maker is not None:
        own = gather(maker.client[None]).of(0)
        update = dense(client_update(gradient, protocol, params, own)[1])
        message, memory = maker.make(update)

    def chunk_of(own: Array) -> _Chunk:
        who = jnp.minimum(own, N - 1)
        a = jnp.where(own < N, scales[who], 0.0)
        losses, updates = client_updates(gradient, protocol, params, gather(who))
        if maker is None:
            return _Chunk(updates, a, losses, (a - 1) ** 2 * squared_norms(updates))
        updates = dense(updates)
        vectors = jax.tree.map(
            lambda leaf, m, mine=own == maker.client: jnp.where(per_client(mine, leaf), m, leaf),
            updates,
            message,
        )
        differences = jax.tree.map(lambda m, g: per_client(a, m) * m - g, vectors, updates)
        return _Chunk(vectors, a, losses, squared_norms(differences))

    statistics, losses, total = _summed(protocol, params, chunks, chunk_of, participants, N)
    if distances:
        statistics = statistics._replace(distances=_distances(params, chunks, chunk_of, count, N))
    if protocol.aggregator.streamed_by != "message":
        total = _block_by_block(protocol.aggregator, params, chunks, chunk_of, count, limits)
    if maker is not None:
        memory = Memory(server_move(protocol, total), memory)
    record = RoundMeasurements(statistics, losses)
    return RoundResult(server_step(protocol, params, total), memory, record)


def _summed(
    protocol: Protocol,
    params: Any,
    chunks: Array,
    chunk_of: Callable[[Array], _Chunk],
    participants: Array,
    N: int,
) -> tuple[Statistics[Array], Array, Any]:
    """Statistics and losses of all, and the aggregate of messages that can be added up."""
    aggregator: Any = protocol.aggregator
    present = jnp.zeros(N, bool).at[participants].set(True)

    def step(carry: tuple[Any, Any], own: Array) -> tuple[tuple[Any, Any], None]:
        total, record = carry
        chunk = chunk_of(own)
        norms = chunk.scales**2 * squared_norms(chunk.vectors)
        if aggregator.streamed_by == "message":
            shares = aggregator.shares(present)[jnp.minimum(own, N - 1)]
            weights = shares * aggregator.factor(norms) * chunk.scales
            total = jax.tree.map(jnp.add, total, weighted_sum(weights, chunk.vectors))
        values = (norms, chunk.misreport, chunk.losses)
        record = tuple(
            all_.at[own].set(new, mode="drop") for all_, new in zip(record, values, strict=True)
        )
        return (total, record), None

    dtype = jax.tree.leaves(params)[0].dtype
    start = (jax.tree.map(jnp.zeros_like, params), (jnp.zeros(N, dtype),) * 3)
    (total, (norms, misreport, losses)), _ = jax.lax.scan(step, start, chunks)
    return Statistics(norms=norms, misreport=misreport), losses, total


def _distances(
    params: Any, chunks: Array, chunk_of: Callable[[Array], _Chunk], count: int, N: int
) -> Array:
    """‖m_i − m̄‖² by one pass for the mean and one for the distances."""

    def add(mean: Any, own: Array) -> tuple[Any, None]:
        chunk = chunk_of(own)
        part = weighted_sum(chunk.scales / count, chunk.vectors)
        return jax.tree.map(jnp.add, mean, part), None

    mean, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), chunks)

    def measure(far: Array, own: Array) -> tuple[Array, None]:
        chunk = chunk_of(own)
        differences = jax.tree.map(
            lambda leaf, mid: per_client(chunk.scales, leaf) * leaf - mid,
            dense(chunk.vectors),
            mean,
        )
        return far.at[own].set(squared_norms(differences), mode="drop"), None

    dtype = jax.tree.leaves(params)[0].dtype
    return jax.lax.scan(measure, jnp.zeros(N, dtype), chunks)[0]


def _block_by_block(
    aggregator: Any,
    params: Any,
    chunks: Array,
    chunk_of: Callable[[Array], _Chunk],
    count: int,
    limits: MemoryLimits,
) -> Any:
    """The aggregate of `count` messages from blocks of coordinates of all of them."""
    flat, unflatten = ravel_pytree(params)
    size, dtype = flat.size, flat.dtype
    blocks = -(-count * size // limits.block)
    width = -(-size // blocks)
    everybody = jnp.ones(count, bool)

    def rows(own: Array) -> Array:
        chunk = chunk_of(own)
        leaves = [leaf.reshape(own.size, -1) for leaf in jax.tree.leaves(dense(chunk.vectors))]
        return chunk.scales[:, None] * jnp.concatenate(leaves, axis=1)

    def block(number: Array) -> Array:
        def part(own: Array) -> Array:
            filled = jnp.pad(rows(own), ((0, 0), (0, blocks * width - size)))
            return jax.lax.dynamic_slice_in_dim(filled, number * width, width, axis=1)

        return jax.lax.map(part, chunks).reshape(-1, width)[:count]

    numbers = jnp.arange(blocks)
    if aggregator.streamed_by == "coordinate":
        parts = jax.lax.map(lambda b: aggregator.combine(block(b), everybody), numbers)
        return unflatten(parts.reshape(-1)[:size])

    def products(gram: Array, number: Array) -> tuple[Array, None]:
        held = block(number)
        return gram + held @ held.T, None

    gram, _ = jax.lax.scan(products, jnp.zeros((count, count), dtype), numbers)
    weights = jnp.pad(aggregator.weights(gram, everybody), (0, chunks.size - count))

    def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        own, here = chunk
        return total + here @ rows(own), None

    total, _ = jax.lax.scan(add, jnp.zeros(size, dtype), (chunks, weights.reshape(chunks.shape)))
    return unflatten(total)
