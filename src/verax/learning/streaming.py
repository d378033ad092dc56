"""A round of many clients, a chunk of them at a time.

What the server needs of a message is its weight and its sum with the others, so a chunk's messages
are made, measured, weighed into a running sum and forgotten:

    aggregate = Σ_i w_i f(‖m_i‖) m_i,

with shares w_i that are known before (mean, weighted mean) and a factor f that depends on the
message alone (clipping). Memory holds one chunk; time grows with those who take part. Aggregators
that must see all messages at once go block by block of coordinates (`blocks.py`). How far a message
lies from the others' mean is known only when all are summed; where that is wanted, every update is
computed a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from verax.learning.aggregators import Separate
from verax.learning.blocks import block_by_block
from verax.learning.outer import dense, squared_norms
from verax.learning.protocol import Protocol, Record, Slope, client_updates, weighed
from verax.learning.reporting import (
    Draws,
    Needs,
    Round,
    client_norms,
    draws,
    messages,
    per_client,
    scales,
)
from verax.learning.task import Batch

__all__ = ["CHUNK_NUMBERS", "chunk_size", "streamed_round"]

Array = jax.Array

#: Numbers in the updates of a chunk, about: enough for large matrix products, little to hold.
CHUNK_NUMBERS = 1 << 26
_MOST = 256


def chunk_size(parameters: int, participants: int) -> int:
    """How many clients are worked on at a time."""
    wanted = max(1, min(_MOST, CHUNK_NUMBERS // parameters, participants))
    pieces = -(-participants // wanted)
    return -(-participants // pieces)  # all chunks alike, with little to fill up


def streamed_round(
    slope: Slope,
    protocol: Protocol,
    params: Any,
    gather: Callable[[Array], Batch],
    taking_part: Array,
    levels: Round,
    history: Array,
    key: Array,
    needs: Needs,
    distances: bool = False,
) -> tuple[Any, Array, Record]:
    """One round of those who take part.

    Args:
        slope: the task's loss and its gradient.
        protocol: how to train.
        params: θ_t.
        gather: numbers of clients → their samples, (chunk, L, batch, …).
        taking_part: numbers of the clients that take part, (participants,).
        levels: what each of all N clients does in this round.
        history: each client's (sum of ‖g‖, count), (N, 2).
        key: of the round's random numbers; each client's are drawn from its number.
        needs: which of them are needed.
        distances: also record ‖m_i − mean of the others‖², by a second pass over the chunks.
    """
    aggregator = protocol.aggregator
    N = levels.a.shape[0]
    count = taking_part.shape[0]
    chunk = chunk_size(sum(leaf.size for leaf in jax.tree.leaves(params)), count)
    # Filled up with a client N, who does not exist: its weight is zero and its record is dropped.
    filled = jnp.full(-(-count // chunk) * chunk, N).at[:count].set(taking_part)
    present = jnp.zeros(N, bool).at[taking_part].set(True)

    chunks = filled.reshape(-1, chunk)
    dtype = levels.a.dtype

    def sent_by(own: Array) -> tuple[Array, Sent]:
        who = jnp.minimum(own, N - 1)
        here = Round(*(level[who] for level in levels))
        losses, updates = client_updates(slope, protocol, params, gather(who))
        return losses, _messages(updates, here, history[who], key, who, needs)

    def step(
        carry: tuple[Any, Any, Array, Record], own: Array
    ) -> tuple[tuple[Any, Any, Array, Record], None]:
        total, mean, past, record = carry
        losses, sent = sent_by(own)
        there = jnp.where(own < N, sent.a, 0.0)
        if isinstance(aggregator, Separate):
            shares = aggregator.shares(present)[jnp.minimum(own, N - 1)]
            weights = shares * aggregator.factor(sent.norms) * there
            total = _added(total, weights, sent.vectors)
        if distances:
            mean = _added(mean, there / count, sent.vectors)
        past = past.at[own].set(sent.history, mode="drop")
        found = Record(sent.norms[:, None], sent.misreport, losses)
        record = jax.tree.map(lambda all_, new: all_.at[own].set(new, mode="drop"), record, found)
        return (total, mean, past, record), None

    nothing = jax.tree.map(jnp.zeros_like, params)
    empty = Record(jnp.zeros((N, 1), dtype), jnp.zeros(N, dtype), jnp.zeros(N, dtype))
    start = (nothing, nothing if distances else None, history, empty)
    (total, mean, past, record), _ = jax.lax.scan(step, start, chunks)
    if distances:

        def measure(far: Array, own: Array) -> tuple[Array, None]:
            sent = sent_by(own)[1]
            gone = jax.tree.map(
                lambda m, mid: per_client(sent.a, m) * m - mid, dense(sent.vectors), mean
            )
            return far.at[own].set(client_norms(gone), mode="drop"), None

        far, _ = jax.lax.scan(measure, jnp.zeros(N, dtype), chunks)
        # m_i − mean of the others = (m_i − mean of all) · n/(n − 1)
        far = far * (count / max(count - 1, 1)) ** 2
        record = record._replace(gram=jnp.concatenate([record.gram, far[:, None]], axis=1))
    if not isinstance(aggregator, Separate):

        def rows(own: Array) -> Array:
            sent = sent_by(own)[1]
            leaves = jax.tree.leaves(dense(sent.vectors))
            return sent.a[:, None] * jnp.concatenate(
                [leaf.reshape(chunk, -1) for leaf in leaves], axis=1
            )

        flat, shaped = ravel_pytree(params)
        total = shaped(block_by_block(aggregator, rows, chunks, count, flat.size))
    server_step = protocol.step if protocol.kind == "fedsgd" else 1.0
    params = jax.tree.map(lambda p, u: p - server_step * u, params, total)
    return params, past, record


class Sent(NamedTuple):
    """The messages of a chunk: a_i times vector i; and what is recorded of them."""

    vectors: Any
    a: Array
    history: Array
    norms: Array  # ‖m‖²
    misreport: Array  # ‖m − g‖²


def _added(total: Any, weights: Array, vectors: Any) -> Any:
    return jax.tree.map(lambda t, u: t + weighed(weights, u), total, vectors)


def _messages(
    updates: Any, levels: Round, history: Array, key: Array, who: Array, needs: Needs
) -> Sent:
    if not any(needs):
        updates = dense(updates, keep=lambda part: part.pays_for_norms)
        norms = squared_norms(updates)
        a = levels.a
        return Sent(updates, a, history, a**2 * norms, (a - 1) ** 2 * norms)
    updates = dense(updates)
    norms = client_norms(updates)
    a, history = scales(levels, norms, history)
    like = jax.tree.map(lambda leaf: leaf[0], updates)

    def own(number: Array) -> Draws:
        drawn = draws(jax.random.fold_in(key, number), needs, like, 1)
        return jax.tree.map(lambda leaf: leaf[0], drawn)

    sent = messages(updates, norms, a, levels, jax.vmap(own)(who))
    gone = client_norms(jax.tree.map(jnp.subtract, sent, updates))
    return Sent(sent, jnp.ones_like(a), history, client_norms(sent), gone)
