"""Where PyTorch's layers start: weights and biases uniform in ±1/√fan-in."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def uniform(key: Array, leaves: Sequence[tuple[tuple[int, ...], int]]) -> list[Array]:
    """One array per (shape, fan-in), all drawn at once: compiling a draw for each takes seconds."""
    sizes = [int(np.prod(shape)) for shape, _ in leaves]
    whole = jax.random.uniform(key, (sum(sizes),), minval=-1.0, maxval=1.0)
    parts = jnp.split(whole, np.cumsum(sizes)[:-1])
    return [
        part.reshape(shape) / float(np.sqrt(fan_in))
        for part, (shape, fan_in) in zip(parts, leaves, strict=True)
    ]
