"""Aggregators that must see all messages, for more messages than can be held.

Messages are made again for every block of coordinates, and only that block of them is kept: a
coordinate-wise aggregator then has all it needs of these coordinates; for a weighing one the block
adds to the Gram matrix,

    G = Σ_b M_b M_bᵀ,

whose weights meet the messages in one more pass. Memory holds one block; time grows with their
number.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from verax.learning.aggregators import Aggregator, Weighing

__all__ = ["BLOCK_NUMBERS", "block_by_block"]

Array = jax.Array

#: Numbers of a block of all messages: a gigabyte in float32.
BLOCK_NUMBERS = 1 << 28


def block_by_block(
    aggregator: Aggregator, rows: Callable[[Array], Array], chunks: Array, count: int, size: int
) -> Array:
    """The aggregate of `count` messages of `size` numbers, (size,).

    Args:
        aggregator: how they are aggregated.
        rows: numbers of a chunk's clients → their messages, (chunk, size).
        chunks: numbers of all who take part, (chunks, chunk); what fills the last up comes last.
        count: how many take part.
        size: of a message.
    """
    blocks = -(-count * size // BLOCK_NUMBERS)
    width = -(-size // blocks)
    everybody = jnp.ones(count, bool)

    def block(number: Array) -> Array:
        def part(own: Array) -> Array:
            filled = jnp.pad(rows(own), ((0, 0), (0, blocks * width - size)))
            return jax.lax.dynamic_slice_in_dim(filled, number * width, width, axis=1)

        return jax.lax.map(part, chunks).reshape(-1, width)[:count]

    numbers = jnp.arange(blocks)
    if not isinstance(aggregator, Weighing):
        parts = jax.lax.map(lambda b: aggregator.combine(block(b), everybody), numbers)
        return parts.reshape(-1)[:size]

    def products(gram: Array, number: Array) -> tuple[Array, None]:
        held = block(number)
        return gram + held @ held.T, None

    dtype = jax.eval_shape(rows, chunks[0]).dtype
    gram, _ = jax.lax.scan(products, jnp.zeros((count, count), dtype), numbers)
    weights = aggregator.weights(gram, everybody)
    weights = jnp.pad(weights, (0, chunks.size - count)).reshape(chunks.shape)

    def step(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        own, here = chunk
        return total + here @ rows(own), None

    return jax.lax.scan(step, jnp.zeros(size, dtype), (chunks, weights))[0]
