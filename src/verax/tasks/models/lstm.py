"""Next-character prediction: embedding, LSTM layers, and a linear layer on the last output.

Each layer, from inputs x_1 … x_T and h_0 = c_0 = 0, with PyTorch's order of gates:

    (i, f, g, o)_t = W x_t + U h_{t−1} + b        i, f, o through σ, g through tanh
    c_t = f_t c_{t−1} + i_t g_t                   h_t = o_t tanh c_t

PyTorch has two biases per layer that only ever act as their sum; here they are one, drawn as the
sum of two. Initialisation is PyTorch's: N(0, 1) for the embedding, uniform ±1/√units else.

Only U h_{t−1} has to wait for the step before. So W x is one product over all steps, and backward
δ_t, the slope in the gates, is all that the loop over time computes; the slopes in the weights are
products over all steps at once, Σ_t δ_t x_tᵀ and Σ_t δ_t h_{t−1}ᵀ. The first layer reads
characters, so that its W x_t is a row of a small table.

A loop writes into arrays of all steps that it carries. With several clients at once each client's
steps then lie together, as the products over all steps want them; the results of a scan would be
step by step, and would have to be copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from verax.tasks.models.model import Model
from verax.tasks.models.start import uniform

__all__ = ["lstm"]

Array = jax.Array
Layer = dict[str, Array]

# Rows of a power of two fall on the same few places of the processor's cache; a little more than
# that, and the steps' products take a fifth less time.
_PAD = 16


def lstm(classes: int = 80, embedding: int = 8, units: int = 256, layers: int = 2) -> Model:
    """Samples are rows of token ids in [0, classes), of any integer type.

    Args:
        classes: characters, both read and predicted.
        embedding: numbers per character read.
        units: of each layer's state.
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

    def forward(params: Any, tokens: Array) -> list[_Trail]:
        first, *others = params["layers"]
        table = params["embedding"] @ first["input"].T
        trails = [_forward(first, tokens.T, lambda token: table[token])]
        for layer in others:
            trails.append(_forward(layer, trails[-1].h @ layer["input"].T))
        return trails

    def scores(params: Any, tokens: Array) -> Array:
        return _linear(params["linear"], forward(params, tokens)[-1].h[-1])

    def pullback(params: Any, tokens: Array) -> tuple[Array, Any]:
        trails = forward(params, tokens)
        first, *others = params["layers"]
        last, linear = trails[-1].h[-1], params["linear"]

        def pull(slope: Array) -> Any:
            ends = jnp.zeros_like(trails[-1].h).at[-1].set(slope @ linear["weight"])
            found: list[Layer] = []
            for layer, trail, below in zip(
                others[::-1], trails[:0:-1], trails[-2::-1], strict=True
            ):
                delta = _backward(layer, trail, ends)
                found.insert(
                    0,
                    {
                        "input": _over_steps(delta, below.h),
                        "recurrent": _over_steps(delta, _shifted(trail.h)),
                        "bias": jnp.sum(delta, axis=(0, 1)),
                    },
                )
                ends = delta @ layer["input"]
            delta = _backward(first, trails[0], ends)
            read = params["embedding"][tokens.T]
            # The bias is the slope in a one; eight of them, so that rows fill vector registers.
            ones = jnp.ones((*read.shape[:-1], 8), read.dtype)
            joined = _over_steps(
                delta, jnp.concatenate([_shifted(trails[0].h), read, ones], axis=-1)
            )
            own = {
                "recurrent": joined[:, :units],
                "input": joined[:, units : units + embedding],
                "bias": joined[:, -1],
            }
            # A product with indicators: adding up rows one by one would be slower.
            which = (tokens.T[..., None] == jnp.arange(classes)).astype(delta.dtype)
            return {
                "embedding": _over_steps(which, delta @ first["input"]),
                "layers": [own, *found],
                "linear": {"weight": slope.T @ last, "bias": jnp.sum(slope, axis=0)},
            }

        return _linear(linear, last), pull

    return Model(init, scores, pullback=pullback)


class _Trail(NamedTuple):
    """What a layer computed, over all steps, arrays of (T, batch, units)."""

    gates: tuple[Array, ...]  # i, f, g, o after σ and tanh; apart, as joining them costs a copy
    c: Array
    h: Array


def _linear(layer: Layer, x: Array) -> Array:
    return x @ layer["weight"].T + layer["bias"]


def _forward(
    layer: Layer, steps: Array, projected: Callable[[Array], Array] = lambda x: x
) -> _Trail:
    """All steps; `projected` makes W x_t of what stands for a step."""
    recurrent, bias = jnp.pad(layer["recurrent"].T, ((0, 0), (0, _PAD))), layer["bias"]
    zero = jnp.zeros((steps.shape[1], recurrent.shape[0]), recurrent.dtype)
    room = jnp.zeros((steps.shape[0], *zero.shape), zero.dtype)

    def step(t: Array, state: tuple[Array, Array, _Trail]) -> tuple[Array, Array, _Trail]:
        h, c, trail = state
        waited = (h @ recurrent)[..., : bias.size]
        i, f, g, o = jnp.split(projected(steps[t]) + bias + waited, 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        now = _Trail((i, f, g, o), c, h)
        return h, c, jax.tree.map(lambda steps, own: steps.at[t].set(own), trail, now)

    trail = _Trail((room, room, room, room), room, room)
    return jax.lax.fori_loop(0, steps.shape[0], step, (zero, zero, trail))[2]


def _backward(layer: Layer, trail: _Trail, ends: Array) -> Array:
    """δ of all steps, from the slope `ends` in h."""
    recurrent, before = layer["recurrent"], _shifted(trail.c)
    steps, batch, _ = trail.c.shape
    zero = jnp.zeros_like(trail.c[0])
    room = jnp.zeros((steps, batch, recurrent.shape[0]), zero.dtype)

    def step(k: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        t = steps - 1 - k
        dh, dc, deltas = state
        (i, f, g, o), c, earlier = jax.tree.map(lambda x: x[t], (trail.gates, trail.c, before))
        dh = dh + ends[t]
        bent = jnp.tanh(c)
        dc = dc + dh * o * (1 - bent**2)
        delta = jnp.concatenate(
            [
                dc * g * i * (1 - i),
                dc * earlier * f * (1 - f),
                dc * i * (1 - g**2),
                dh * bent * o * (1 - o),
            ],
            axis=-1,
        )
        return delta @ recurrent, dc * f, deltas.at[t].set(delta)

    return jax.lax.fori_loop(0, steps, step, (zero, zero, room))[2]


def _over_steps(left: Array, right: Array) -> Array:
    """Σ_t left_t right_tᵀ, summed over the samples, too."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


def _shifted(states: Array) -> Array:
    """States before each step: 0, s_1, …, s_{T−1}."""
    return jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])
