"""What a model of a classification task is: parameters from a key, scores from parameters.

The loss is the mean of −log softmax(scores)[label], plus (λ/2)‖θ‖² over all parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from verax.learning.factored import value_and_factored_gradient
from verax.learning.task import Batch

Array = jax.Array
#: (parameters, samples) → scores.
Scores = Callable[[Any, Array], Array]


class Model(NamedTuple):
    """A classifier.

    Attributes:
        init: key → parameters.
        scores: (parameters, samples) → scores, (samples, classes).
        l2: λ.
        fast_scores: the same function with a faster derivative on a CPU; training uses it there.
        fast_evaluation: whether `fast_scores` is the faster one without a derivative, too.
        factored: whether training may keep the gradients of linear layers as factors. Then `scores`
            uses every matrix called "weight" exactly once, in `x @ weight` or `x @ weight.T`, where
            x has one row per sample.
        one_by_one: whether the gradients of several clients are computed one after the other under
            `jax.vmap`. That is faster for loops over time: XLA copies the results of a common loop,
            which lie step by step, into an order in which each client's steps lie together.
    """

    init: Callable[[Array], Any]
    scores: Scores
    l2: float = 0.0
    fast_scores: Scores | None = None
    fast_evaluation: bool = False
    factored: bool = False
    one_by_one: bool = False

    def for_evaluation(self) -> Model:
        """The model whose loss and accuracy are fastest on this machine."""
        if self.fast_evaluation and self.fast_scores is not None and _on_cpu():
            return self._replace(scores=self.fast_scores)
        return self

    def loss(self, params: Any, batch: Batch) -> Array:
        """Mean cross-entropy of a batch (x, labels), with the L2 term."""
        return self._loss(self.scores, params, batch)

    def gradient(self, params: Any, batch: Batch) -> tuple[Array, Any]:
        """The loss of a batch and its gradient, in which matrices may be `Factored`."""
        scores = self.scores
        if self.fast_scores is not None and _on_cpu():
            scores = self.fast_scores

        def loss(params: Any, batch: Batch) -> Array:
            return self._loss(scores, params, batch)

        if self.factored and not self.l2:
            return value_and_factored_gradient(loss, params, batch)
        gradient = jax.value_and_grad(loss)
        return (sequential_vmap(gradient) if self.one_by_one else gradient)(params, batch)

    def accuracy(self, params: Any, batch: Batch) -> Array:
        """The share of samples whose label has the largest score."""
        x, labels = batch
        return jnp.mean(jnp.argmax(self.scores(params, x), axis=-1) == labels)

    def _loss(self, scores: Scores, params: Any, batch: Batch) -> Array:
        x, labels = batch
        value = _cross_entropy(scores(params, x), labels)
        if self.l2:
            squares = sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), jnp.zeros(()))
            value = value + self.l2 / 2 * squares
        return value


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _cross_entropy(scores: Array, labels: Array) -> Array:
    own = jnp.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - own)
