"""Multi-layer perceptrons; with two sizes, softmax regression."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from verax.tasks.models.model import Model

__all__ = ["perceptron"]

Array = jax.Array
Layers = list[dict[str, Array]]


def perceptron(
    sizes: Sequence[int], *, zero: bool = False, relu: bool = True, l2: float = 0.0
) -> Model:
    """Layers sizes[0] → … → sizes[-1], He-normal weights and zero biases.

    Args:
        sizes: of the layers.
        zero: start with all weights at zero, as is usual for softmax regression.
        relu: max(·, 0) between the layers; without it the layers are a product of matrices.
        l2: λ.
    """

    def init(key: Array) -> Layers:
        keys = jax.random.split(key, len(sizes) - 1)
        return [
            {
                "weight": jax.random.normal(k, (a, b)) * (0.0 if zero else np.sqrt(2 / a)),
                "bias": jnp.zeros(b),
            }
            for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]

    def scores(params: Layers, x: Array) -> Array:
        for layer in params[:-1]:
            x = x @ layer["weight"] + layer["bias"]
            x = jax.nn.relu(x) if relu else x
        return x @ params[-1]["weight"] + params[-1]["bias"]

    return Model(init, scores, l2)
