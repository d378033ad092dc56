"""By how much a strategy will weigh each reply, and so what an update is charged as.

FedAvg and its kin weigh by `num-examples`, the client's own word: w_i = c_i / Σ c_j. What such a
client sends counts N·w_i times, and the *effective* update is what it is charged for:

    n_i = (N w_i)² ‖reply_i − sent‖².

Medians, trimmed means, Krum and Bulyan weigh all alike (their example counts touch metrics only).
q-FedAvg weighs by the reported loss, w_i ∝ F_i^q. Trees are not updates of a model, and refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, MetricRecord, RecordDict
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

from verax.mechanism import Terms

__all__ = ["Weighing", "set_examples", "shares", "weighing"]


@dataclass(frozen=True)
class Weighing:
    """What decides a reply's weight.

    Attributes:
        count_key: the metric that must be a valid example count in every reply, or None.
        counts: whether that count weighs the arrays.
        loss_key: of q-FedAvg, the metric that weighs instead.
        q: of q-FedAvg.
    """

    count_key: str | None
    counts: bool
    loss_key: str | None = None
    q: float = 0.0


def weighing(strategy: Strategy, terms: Terms) -> Weighing:
    """How a strategy (or the one inside its wrappers) weighs, checked against the terms."""
    inner: Any = strategy
    while isinstance(getattr(inner, "strategy", None), Strategy):
        inner = inner.strategy
    if isinstance(inner, FedXgbBagging | FedXgbCyclic):
        raise ValueError(
            f"{type(inner).__name__} exchanges trees, not updates of a model: their distance from "
            "what was sent means nothing, and cannot be charged for"
        )
    key: str | None = getattr(inner, "weighted_by_key", "num-examples")
    kind = terms.weights.kind
    if isinstance(inner, QFedAvg):
        if kind != "reported":
            raise ValueError(
                f'weights.kind is "{kind}", but QFedAvg weighs by the reported loss; '
                'write weights.kind = "reported"'
            )
        return Weighing(key, False, inner.train_loss_key, inner.q)
    if isinstance(inner, FedMedian | FedTrimmedAvg | Bulyan | Krum):
        if kind == "fixed" and len(set(terms.weights.values)) > 1:
            raise ValueError(
                f'weights.kind is "fixed" with different values, but {type(inner).__name__} weighs '
                'all alike; write weights.kind = "equal"'
            )
        return Weighing(key, False)
    return Weighing(key, True)


def shares(
    how: Weighing, terms: Terms, names: Sequence[tuple[str, str]], replies: Sequence[Any]
) -> list[float]:
    """N·w_i of the replies that count; their mean is 1.

    Args:
        how: what the strategy weighs by.
        terms: equal, fixed or reported weights.
        names: id and label of each member.
        replies: (checked reply, content) of each.
    """
    if terms.weights.kind == "equal" or not replies:
        return [1.0] * len(replies)
    if terms.weights.kind == "fixed":
        table = dict(zip(terms.members, terms.weights.values, strict=True))
        raw = [table[member] if member in table else table[label] for member, label in names]
    elif how.loss_key is not None:
        raw = [loss_weight(how, content) for _, content in replies]
    elif how.counts:
        raw = [reply.examples for reply, _ in replies]
    else:
        return [1.0] * len(replies)
    total = math.fsum(raw)
    return [value / total * len(raw) for value in raw]


def loss_weight(how: Weighing, content: RecordDict) -> float:
    """F^q of q-FedAvg; a ValueError says what is wrong with the loss."""
    metrics = next(iter(content.metric_records.values()))
    loss = metrics.get(how.loss_key or "")
    if not isinstance(loss, int | float) or not 0 <= loss < math.inf:
        raise ValueError(f"metric {how.loss_key!r} is {loss}, must be a finite number ≥ 0")
    try:
        weight = float((loss + 1e-10) ** how.q)
    except OverflowError:
        weight = math.inf
    if not 0 < weight < _LARGEST:
        raise ValueError(f"metric {how.loss_key!r} is {loss:g}, too large a weight for q {how.q:g}")
    return weight


_LARGEST = 1e150


def set_examples(message: Message, key: str, value: float) -> None:
    """Write the weight that the terms fixed into the reply that is handed on."""
    name, metrics = next(iter(message.content.metric_records.items()))
    message.content[name] = MetricRecord({**metrics, key: value})
