"""Multi-layer perceptrons; with two sizes, softmax regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from verax.tasks.models.model import Model

Array = jax.Array
Layers = list[dict[str, Array]]


def perceptron(
    sizes: Sequence[int],
    *,
    start: Literal["he", "uniform", "zero"] = "he",
    relu: bool = True,
    l2: float = 0.0,
) -> Model:
    """Layers sizes[0] → … → sizes[-1].

    Args:
        sizes: of the layers.
        start: "he": normal weights of variance 2/inputs, zero biases; "uniform": weights and biases
            uniform in ±1/√inputs, as PyTorch's layers start; "zero", as is usual for softmax
            regression.
        relu: max(·, 0) between the layers; without it the layers are a product of matrices.
        l2: λ.
    """

    def init(key: Array) -> Layers:
        keys = jax.random.split(key, len(sizes) - 1)
        return [layer(k, a, b) for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)]

    def layer(key: Array, inputs: int, outputs: int) -> dict[str, Array]:
        if start == "uniform":
            bound = float(1 / np.sqrt(inputs))
            one, two = jax.random.split(key)
            return {
                "weight": jax.random.uniform(one, (inputs, outputs), minval=-bound, maxval=bound),
                "bias": jax.random.uniform(two, (outputs,), minval=-bound, maxval=bound),
            }
        size = 0.0 if start == "zero" else np.sqrt(2 / inputs)
        weight = jax.random.normal(key, (inputs, outputs)) * size
        return {"weight": weight, "bias": jnp.zeros(outputs)}

    def scores(params: Layers, x: Array) -> Array:
        *hidden, last = params
        for layer in hidden:
            x = x @ layer["weight"] + layer["bias"]
            x = jax.nn.relu(x) if relu else x
        return x @ last["weight"] + last["bias"]

    return Model(init, scores, l2, factored=True)
