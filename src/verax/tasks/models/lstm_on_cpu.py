"""The layers of `lstm.py` with a derivative that is fast on a CPU.

JAX's own derivative of a loop over time adds U's gradient up step by step, which reads and writes a
matrix of U's size in every step. Here the backward loop computes only δ_t, the gradient with
respect to the gates of step t before σ and tanh. U's gradient is then one product over all steps,
Σ_t δ_t h_{t−1}ᵀ. The derivative of the cell itself is JAX's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["Cell", "Outputs", "with_fast_derivative"]

Array = jax.Array

#: (gates before σ and tanh, c_{t−1}) → (h_t, c_t).
Cell = Callable[[Array, Array], tuple[Array, Array]]
#: (U, W x_t + b of all steps) → h_t of all steps.
Outputs = Callable[[Array, Array], Array]


def with_fast_derivative(cell: Cell) -> Outputs:
    """The outputs h_1 … h_T of a layer of such cells, from h_0 = c_0 = 0."""

    def forward(recurrent: Array, projected: Array) -> tuple[Array, Array, Array]:
        """The gates, c and h of all steps."""

        def step(state: tuple[Array, Array], own: Array) -> tuple[tuple[Array, Array], Any]:
            h, c = state
            gates = own + h @ recurrent.T
            h, c = cell(gates, c)
            return (h, c), (gates, c, h)

        zero = jnp.zeros((projected.shape[1], recurrent.shape[1]), projected.dtype)
        return jax.lax.scan(step, (zero, zero), projected)[1]

    def backward(
        recurrent: Array, gates: Array, c: Array, h: Array, gradient: Array
    ) -> tuple[Array, Array]:
        """The gradients with respect to U and to the gates, from that with respect to h."""

        def step(state: tuple[Array, Array], now: Any) -> tuple[tuple[Array, Array], Array]:
            h_gradient, c_gradient = state
            gates, c_before, own_gradient = now
            _, pull_back = jax.vjp(cell, gates, c_before)
            delta, c_gradient = pull_back((h_gradient + own_gradient, c_gradient))
            return (delta @ recurrent, c_gradient), delta

        zero = jnp.zeros_like(c[0])
        steps = (gates, _before(c), gradient)
        _, delta = jax.lax.scan(step, (zero, zero), steps, reverse=True)
        return jnp.einsum("tbg,tbu->gu", delta, _before(h)), delta

    @jax.custom_vjp
    def outputs(recurrent: Array, projected: Array) -> Array:
        return forward(recurrent, projected)[2]

    def outputs_forward(recurrent: Array, projected: Array) -> tuple[Array, Any]:
        gates, c, h = forward(recurrent, projected)
        return h, (recurrent, gates, c, h)

    def outputs_backward(kept: Any, gradient: Array) -> tuple[Array, Array]:
        recurrent, gates, c, h = kept
        return backward(recurrent, gates, c, h, gradient)

    outputs.defvjp(outputs_forward, outputs_backward)
    return outputs


def _before(states: Array) -> Array:
    """The state before each step: 0, s_1, …, s_{T−1}."""
    return jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])
