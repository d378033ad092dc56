"""The aggregate of a round, whatever a member sent: a reply that breaks it is found and rejected.

Replies are checked before they are aggregated, but a strategy, or a function of the operator's for
metrics, may still raise an error, or return a model that is not finite. Then it is tried without
metrics first. If that does not help, each reply is left out in turn, the one with the largest
effective norm first; the one without which the aggregate exists is rejected. If several replies
break it, they are added one by one, the smallest first. The strategy's own state, such as FedAdam's
moments, is reset before each trial.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Strategy

from verax.flower.log import log
from verax.flower.matching import Asked
from verax.flower.replies import rejected
from verax.flower.round import Collected

_Aggregate = tuple[ArrayRecord | None, MetricRecord | None]


def aggregate(strategy: Strategy, round_: int, collected: Collected) -> _Aggregate:
    """The strategy's aggregate of the replies that count; those that break it are rejected."""
    attempt = _Attempt(strategy, round_, collected)
    while ok := collected.ok:
        try:
            return attempt(ok)
        except Exception as error:
            cause = error
        try:
            arrays, _ = attempt(ok, with_metrics=False)
        except Exception as error:
            culprits = attempt.culprits(ok)
            if not culprits:
                raise error from cause
            for one in culprits:
                one.reply = rejected(f"the strategy cannot use it ({type(error).__name__})")
            collected.weigh()
        else:
            log.warning(
                "Verax: the metrics of round %d are left out, because they cannot be averaged: "
                "%s: %s",
                round_,
                type(cause).__name__,
                cause,
            )
            return arrays, None
    return None, None


class _Attempt:
    """Calls a strategy with some of the replies, each time from the same state."""

    def __init__(self, strategy: Strategy, round_: int, collected: Collected) -> None:
        self._strategy, self._round, self._collected = strategy, round_, collected
        self._states: list[tuple[Any, dict[str, Any]]] = []
        inner: Any = strategy
        while isinstance(inner, Strategy):
            self._states.append((inner, _copied(vars(inner))))
            inner = getattr(inner, "strategy", None)

    def __call__(self, chosen: Sequence[Asked], *, with_metrics: bool = True) -> _Aggregate:
        for owner, state in self._states:
            vars(owner).clear()
            vars(owner).update(_copied(state))
        messages = self._collected.to_aggregate(chosen, with_metrics=with_metrics)
        with np.errstate(over="ignore", invalid="ignore"):
            arrays, metrics = self._strategy.aggregate_train(self._round, messages)
        if arrays is not None and not all(_is_finite(array.numpy()) for array in arrays.values()):
            raise ArithmeticError("the aggregate is not finite")
        return arrays, metrics

    def culprits(self, ok: Sequence[Asked]) -> list[Asked]:
        """The replies without which there is an aggregate; none if nothing helps."""
        suspects = sorted(ok, key=lambda one: (-one.effective_norm, one.member.id))
        for suspect in suspects:
            rest = [one for one in ok if one is not suspect]
            if rest and self._works(rest):
                return [suspect]
        kept: list[Asked] = []
        for one in reversed(suspects):
            if self._works([*kept, one]):
                kept.append(one)
        return [one for one in ok if one not in kept] if kept else []

    def _works(self, chosen: Sequence[Asked]) -> bool:
        try:
            self(sorted(chosen, key=lambda one: one.member.id), with_metrics=False)
        except Exception:
            return False
        return True


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of attributes; Flower's strategies replace arrays, and change only lists and dicts."""
    return {
        name: copy.copy(value) if isinstance(value, dict | list) else value
        for name, value in state.items()
    }


def _is_finite(array: Any) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
