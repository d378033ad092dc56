"""Multi-layer perceptrons; with two sizes, softmax regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from verax.learning.outer import Outer
from verax.tasks.models.model import Model

__all__ = ["perceptron"]

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
        for layer in params[:-1]:
            x = x @ layer["weight"] + layer["bias"]
            x = jax.nn.relu(x) if relu else x
        return x @ params[-1]["weight"] + params[-1]["bias"]

    def pullback(params: Layers, x: Array) -> tuple[Array, Callable[[Array], Any]]:
        inputs = [x]
        for layer in params[:-1]:
            x = x @ layer["weight"] + layer["bias"]
            inputs.append(jax.nn.relu(x) if relu else x)

        def pull(slope: Array) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            for k in reversed(range(len(params))):
                found.insert(0, {"weight": Outer(inputs[k], slope), "bias": jnp.sum(slope, axis=0)})
                if k > 0:
                    slope = slope @ params[k]["weight"].T
                    slope = jnp.where(inputs[k] > 0, slope, 0.0) if relu else slope
            return found

        return inputs[-1] @ params[-1]["weight"] + params[-1]["bias"], pull

    return Model(init, scores, l2, pullback)
