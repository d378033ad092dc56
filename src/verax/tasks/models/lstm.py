"""Next-character prediction: embedding, LSTM layers, and a linear layer on the last output.

Each layer, from inputs x_1 … x_T and h_0 = c_0 = 0, with PyTorch's order of gates:

    (i, f, g, o)_t = W x_t + U h_{t−1} + b        i, f, o through σ, g through tanh
    c_t = f_t c_{t−1} + i_t g_t                   h_t = o_t tanh c_t

PyTorch has two biases per layer that only ever act as their sum; here they are one, which is drawn
as the sum of two. The initialisation is PyTorch's: N(0, 1) for the embedding, uniform in ±1/√units
for everything else.

On a CPU training takes the derivative of a layer from `lstm_on_cpu.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from verax.tasks.models.lstm_on_cpu import outputs_on_cpu
from verax.tasks.models.model import Model
from verax.tasks.models.start import uniform

Array = jax.Array
#: (U, W x_t + b of all steps) → h_t of all steps.
Outputs = Callable[[Array, Array], Array]


def lstm(classes: int = 80, embedding: int = 8, units: int = 256, layers: int = 2) -> Model:
    """Samples are rows of token ids in [0, classes), of any integer type.

    Args:
        classes: the number of characters, both read and predicted.
        embedding: numbers per character read.
        units: numbers in each layer's state.
        layers: stacked LSTM layers.
    """

    def init(key: Array) -> dict[str, Any]:
        normal, rest = jax.random.split(key)
        gates = 4 * units
        shapes: list[tuple[int, ...]] = [(classes, units), (classes,)]
        for width in [embedding] + [units] * (layers - 1):
            shapes += [(gates, width), (gates, units), (gates,), (gates,)]
        weight, bias, *drawn = uniform(rest, [(shape, units) for shape in shapes])
        return {
            "embedding": jax.random.normal(normal, (classes, embedding)),
            "layers": [
                {
                    "input": drawn[k],
                    "recurrent": drawn[k + 1],
                    "bias": drawn[k + 2] + drawn[k + 3],
                }
                for k in range(0, 4 * layers, 4)
            ],
            "linear": {"weight": weight, "bias": bias},
        }

    def scores(params: Any, tokens: Array, layer_outputs: Outputs = outputs) -> Array:
        x = params["embedding"][tokens.T]  # (steps, samples, embedding)
        for layer in params["layers"]:
            x = layer_outputs(layer["recurrent"], x @ layer["input"].T + layer["bias"])
        return x[-1] @ params["linear"]["weight"].T + params["linear"]["bias"]

    def fast_scores(params: Any, tokens: Array) -> Array:
        return scores(params, tokens, outputs_on_cpu)

    return Model(init, scores, fast_scores=fast_scores, one_by_one=True)


def outputs(recurrent: Array, projected: Array) -> Array:
    """h_1 … h_T of a layer from U and W x_t + b of all steps, (T, samples, 4 · units)."""

    def step(state: tuple[Array, Array], own: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        i, f, g, o = jnp.split(own + h @ recurrent.T, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((projected.shape[1], recurrent.shape[1]), projected.dtype)
    return jax.lax.scan(step, (zero, zero), projected)[1]
