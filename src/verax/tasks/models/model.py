"""What a model of a classification task is: parameters from a key, scores from parameters.

The loss is the mean of −log softmax(scores)[label], plus (λ/2)‖θ‖² over all parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from verax.learning.task import Batch

__all__ = ["Model", "Pullback"]

Array = jax.Array

#: (parameters, samples) → scores, and the map from a slope in the scores to that in parameters.
Pullback = Callable[[Any, Array], tuple[Array, Callable[[Array], Any]]]


class Model(NamedTuple):
    """A classifier.

    Attributes:
        init: key → parameters.
        scores: (parameters, samples) → scores, (samples, classes).
        l2: λ.
        pullback: scores with their derivative written out, where that is faster than what
            differentiating `scores` gives. It is made of plain JAX operations, so that it can
            itself be differentiated forward (which a `jax.custom_vjp` cannot).
    """

    init: Callable[[Array], Any]
    scores: Callable[[Any, Array], Array]
    l2: float = 0.0
    pullback: Pullback | None = None

    def loss(self, params: Any, batch: Batch) -> Array:
        """Mean cross-entropy of a batch (x, labels), with the L2 term."""
        x, labels = batch
        value = _cross_entropy(self.scores(params, x), labels)
        if self.l2:
            squares = sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), jnp.zeros(()))
            value = value + self.l2 / 2 * squares
        return value

    fast_gradient = None

    def accuracy(self, params: Any, batch: Batch) -> Array:
        """Mean of label = argmax of the scores."""
        x, labels = batch
        return jnp.mean(jnp.argmax(self.scores(params, x), axis=-1) == labels)


def _cross_entropy(scores: Array, labels: Array) -> Array:
    own = jnp.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - own)
