"""A round of many clients, a chunk of them at a time.

What the server needs of a message is its weight and its sum with the others, so a chunk's messages
are made, measured, weighed into a running sum and forgotten:

    aggregate = Σ_i w_i f(‖m_i‖) m_i,

with shares w_i that are known before (mean, weighted mean) and a factor f that depends on the
message alone (clipping). Memory holds one chunk; time grows with those who take part. Aggregators
that must see all messages at once cannot be streamed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from verax.learning.aggregators import Separate
from verax.learning.outer import dense, squared_norms
from verax.learning.protocol import Protocol, Record, Slope, client_update, weighed
from verax.learning.reporting import (
    Draws,
    Needs,
    Round,
    client_norms,
    draws,
    messages,
    scales,
)
from verax.learning.task import Batch

__all__ = ["chunk_size", "streamed_round"]

Array = jax.Array

#: Numbers in the updates of a chunk, about: enough for large matrix products, little to hold.
_CHUNK_NUMBERS = 1 << 26
_MOST = 256


def chunk_size(parameters: int, participants: int) -> int:
    """How many clients are worked on at a time."""
    wanted = max(1, min(_MOST, _CHUNK_NUMBERS // parameters, participants))
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
) -> tuple[Any, Array, Record]:
    """One round of those who take part.

    Args:
        slope: the task's loss and its gradient.
        protocol: how to train; its aggregator is `Separate`.
        params: θ_t.
        gather: numbers of clients → their samples, (chunk, L, batch, …).
        taking_part: numbers of the clients that take part, (participants,).
        levels: what each of all N clients does in this round.
        history: each client's (sum of ‖g‖, count), (N, 2).
        key: of the round's random numbers; each client's are drawn from its number.
        needs: which of them are needed.
    """
    aggregator = protocol.aggregator
    assert isinstance(aggregator, Separate)
    N = levels.a.shape[0]
    count = taking_part.shape[0]
    chunk = chunk_size(sum(leaf.size for leaf in jax.tree.leaves(params)), count)
    # Filled up with a client N, who does not exist: its weight is zero and its record is dropped.
    filled = jnp.full(-(-count // chunk) * chunk, N).at[:count].set(taking_part)
    present = jnp.zeros(N, bool).at[taking_part].set(True)
    shares = aggregator.shares(present)

    def step(
        carry: tuple[Any, Array, Record], own: Array
    ) -> tuple[tuple[Any, Array, Record], None]:
        total, past, record = carry
        who = jnp.minimum(own, N - 1)
        here = Round(*(level[who] for level in levels))
        losses, updates = jax.vmap(lambda batch: client_update(slope, protocol, params, batch))(
            gather(who)
        )
        sent, a, after, norms, misreport = _messages(updates, here, past[who], key, who, needs)
        weights = jnp.where(own < N, shares[who] * aggregator.factor(norms) * a, 0.0)
        total = jax.tree.map(lambda t, u: t + weighed(weights, u), total, sent)
        past = past.at[own].set(after, mode="drop")
        found = Record(norms[:, None], misreport, losses)
        record = jax.tree.map(lambda all_, new: all_.at[own].set(new, mode="drop"), record, found)
        return (total, past, record), None

    dtype = levels.a.dtype
    empty = Record(jnp.zeros((N, 1), dtype), jnp.zeros(N, dtype), jnp.zeros(N, dtype))
    start = (jax.tree.map(jnp.zeros_like, params), history, empty)
    (total, history, record), _ = jax.lax.scan(step, start, filled.reshape(-1, chunk))
    server_step = protocol.step if protocol.kind == "fedsgd" else 1.0
    params = jax.tree.map(lambda p, u: p - server_step * u, params, total)
    return params, history, record


def _messages(
    updates: Any, levels: Round, history: Array, key: Array, who: Array, needs: Needs
) -> tuple[Any, Array, Array, Array, Array]:
    """Of a chunk: vectors and scales whose product is the messages, histories, ‖m‖², ‖m − g‖²."""
    if not any(needs):
        norms = squared_norms(updates)
        a = levels.a
        return updates, a, history, a**2 * norms, (a - 1) ** 2 * norms
    updates = dense(updates)
    norms = client_norms(updates)
    a, history = scales(levels, norms, history)
    like = jax.tree.map(lambda leaf: leaf[0], updates)

    def own(number: Array) -> Draws:
        drawn = draws(jax.random.fold_in(key, number), needs, like, 1)
        return jax.tree.map(lambda leaf: leaf[0], drawn)

    sent = messages(updates, norms, a, levels, jax.vmap(own)(who))
    gone = client_norms(jax.tree.map(jnp.subtract, sent, updates))
    return sent, jnp.ones_like(a), history, client_norms(sent), gone
