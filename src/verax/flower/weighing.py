"""The weight that a strategy gives each reply, and therefore the update that is charged.

FedAvg and its variants weigh by `num-examples`, which the client reports itself: w_i = c_i / Σ c_j.
The *effective* update is charged, (1 + E_i) w_i (reply_i − sent) (`verax.mechanism.weights`).

Medians, trimmed means, Krum and Bulyan give all replies the same weight; example counts affect only
their metrics. q-FedAvg weighs by the reported loss, w_i ∝ F_i^q. Strategies that exchange trees
have no model updates, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    Bulyan,
    FedMedian,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    Krum,
    QFedAvg,
    Strategy,
)

from verax.flower.metrics import the_metrics
from verax.flower.replies import Reply
from verax.mechanism import Terms
from verax.text import shown

_MAX_LOSS_WEIGHT = 1e150


@dataclass(frozen=True)
class ReplyWeights:
    """What decides the weight of a reply.

    Attributes:
        count_key: the metric that must be a valid example count in every reply, or None.
        by_count: whether that count is the weight.
        loss_key: for q-FedAvg, the metric from which the weight is computed.
        q: for q-FedAvg, the exponent.
    """

    count_key: str | None
    by_count: bool
    loss_key: str | None = None
    q: float = 0.0

    @property
    def required(self) -> tuple[str, ...]:
        """The metrics that the strategy cannot do without."""
        return tuple(key for key in (self.count_key, self.loss_key) if key is not None)


def innermost(strategy: Strategy) -> Any:
    """The strategy inside all wrappers, such as those for differential privacy."""
    inner: Any = strategy
    while isinstance(getattr(inner, "strategy", None), Strategy):
        inner = inner.strategy
    return inner


def reply_weights(strategy: Strategy, terms: Terms) -> ReplyWeights:
    """How a strategy weighs its replies; refuses terms that say otherwise."""
    inner = innermost(strategy)
    name = type(inner).__name__
    if isinstance(inner, FedXgbBagging | FedXgbCyclic):
        raise ValueError(
            f"{name} exchanges trees, not updates of a model: their distance from the model that "
            "was sent has no meaning and cannot be charged"
        )
    key: str | None = getattr(inner, "weighted_by_key", "num-examples")
    kind = terms.weights.kind
    if isinstance(inner, QFedAvg):
        if kind != "reported":
            raise ValueError(
                f'weights.kind is "{kind}", but QFedAvg weighs by the reported loss; '
                'write weights.kind = "reported"'
            )
        return ReplyWeights(key, False, inner.train_loss_key, inner.q)
    if isinstance(inner, FedMedian | FedTrimmedAvg | Bulyan | Krum):
        if kind == "fixed" and len(set(terms.weights.values)) > 1:
            raise ValueError(
                f'weights.kind is "fixed" with different values, but {name} gives all replies the '
                'same weight; write weights.kind = "equal"'
            )
        return ReplyWeights(key, False)
    return ReplyWeights(key, True)


def fixed_weights(terms: Terms, names: Sequence[tuple[str, str]]) -> list[float]:
    """The weights that the terms fix, for members given by id and label."""
    if terms.weights.kind != "fixed":
        return [1.0] * len(names)
    table = dict(zip(terms.members, terms.weights.values, strict=True))
    return [table[member] if member in table else table[label] for member, label in names]


def reply_counts(
    weights: ReplyWeights,
    terms: Terms,
    names: Sequence[tuple[str, str]],
    replies: Sequence[Reply],
) -> list[float]:
    """c_i of the replies that count, to which their weights are proportional.

    Args:
        weights: how the strategy weighs.
        terms: equal, fixed or reported weights.
        names: id and label of each member.
        replies: the checked reply of each member, all of them ok.
    """
    if terms.weights.kind == "fixed":
        return fixed_weights(terms, names)
    if terms.weights.kind == "reported" and weights.loss_key is not None:
        return [loss_weight(weights, reply.content) for reply in replies]
    if terms.weights.kind == "reported" and weights.by_count:
        return [float(reply.examples) for reply in replies]
    return [1.0] * len(replies)


def loss_weight(weights: ReplyWeights, content: RecordDict | None) -> float:
    """F^q of q-FedAvg; a ValueError says what is wrong with the loss."""
    loss = None if content is None else the_metrics(content).get(weights.loss_key or "")
    if not isinstance(loss, int | float) or not 0 <= loss < math.inf:
        raise ValueError(
            f"metric {weights.loss_key!r} is {shown(loss)}, must be a finite number ≥ 0"
        )
    try:
        weight = float((loss + 1e-10) ** weights.q)
    except OverflowError:
        weight = math.inf
    if not 1 / _MAX_LOSS_WEIGHT < weight < _MAX_LOSS_WEIGHT:
        raise ValueError(
            f"metric {weights.loss_key!r} is {shown(loss)}, too extreme a weight with q = "
            f"{weights.q:g}"
        )
    return weight


def with_examples(content: RecordDict, key: str, value: float) -> RecordDict:
    """A reply whose example count is replaced by the weight that the terms fix."""
    (name,) = content.metric_records
    return RecordDict({**content, name: MetricRecord({**the_metrics(content), key: value})})
