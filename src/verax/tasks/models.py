"""Small models as pure functions: softmax regression and multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from verax.learning.task import Batch

__all__ = ["accuracy", "cross_entropy", "perceptron"]

Array = jax.Array
Layers = list[dict[str, Array]]


def perceptron(sizes: Sequence[int], *, zero: bool = False) -> Callable[[Array], Layers]:
    """An initialiser of layers sizes[0] → … → sizes[-1], He-normal weights and zero biases.

    With two sizes this is softmax regression, which usually starts at zero.
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

    return init


def cross_entropy(regularisation: float = 0.0) -> Callable[[Any, Batch], Array]:
    """Mean −log p(label), plus (λ/2)‖θ‖² over all parameters."""

    def loss(params: Layers, batch: Batch) -> Array:
        x, labels = batch
        scores = _scores(params, x)
        own = jnp.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        value = jnp.mean(jax.nn.logsumexp(scores, axis=-1) - own)
        if regularisation:
            squares = sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), jnp.zeros(()))
            value = value + regularisation / 2 * squares
        return value

    return loss


def accuracy(params: Layers, batch: Batch) -> Array:
    """Mean of label = argmax of the scores."""
    x, labels = batch
    return jnp.mean(jnp.argmax(_scores(params, x), axis=-1) == labels)


def _scores(params: Layers, x: Array) -> Array:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
    return x @ params[-1]["weight"] + params[-1]["bias"]
