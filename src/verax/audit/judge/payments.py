"""What the recorded runs would pay under a rule, at any price.

The statistics are measured once per rule; payments at every price follow from the measures by
`verax.mechanism.balance`, since training does not depend on the price.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.audit.judge.evidence import Evidence
from verax.audit.run.record import RecordedRun
from verax.mechanism import Rule, Statistics, balance
from verax.mechanism.rule import measure

Array = NDArray[np.float64]

#: How many recorded numbers are measured at a time.
_AT_ONCE = 2**20


class RulePayments:
    """Payments of the runs under one rule.

    Args:
        rule: what is measured.
        evidence: the runs.
    """

    def __init__(self, rule: Rule, evidence: Evidence) -> None:
        self.rule, self.evidence = rule, evidence
        self._honest = measured(evidence.honest_runs, rule)
        self._deviations = {
            (k, d): measured(evidence.deviation_runs(k, d), rule)
            for k in range(len(evidence.plan.deviators))
            for d in range(len(evidence.deviations))
        }

    def honest(self, prices: ArrayLike) -> Array:
        """What honest clients pay in every round, mean over seeds, (T, N)."""
        return self._paid(*self._honest, prices).mean(axis=0)

    def rises(self, prices: ArrayLike = 1.0) -> Array:
        """What a deviator pays more in each round than an honest client, (C, D, S, T).

        `prices` are those of every round and client and are broadcast to (T, N).
        """
        evidence = self.evidence
        deviators, T = evidence.plan.deviators, evidence.plan.rounds
        honest = self._paid(*self._honest, prices)
        rises = np.zeros((len(deviators), len(evidence.deviations), len(honest), T))
        for (k, d), (measures, present) in self._deviations.items():
            client, begin = deviators[k], T - measures.shape[1]
            paid = self._paid(measures, present, prices)
            rises[k, d, :, begin:] = paid[..., client] - honest[:, begin:, client]
        return rises

    def _paid(self, measures: Array, present: NDArray[np.bool_], prices: ArrayLike) -> Array:
        """What everybody pays in the last rounds; the measures are those of these rounds alone."""
        T, N = self.evidence.plan.rounds, measures.shape[-1]
        price = np.broadcast_to(np.asarray(prices, dtype=np.float64), (T, N))
        own = price[T - measures.shape[1] :]
        everybody = None if present.all() else present
        return balance(measures, own, everybody, fewest=self.rule.fewest).amounts


def measured(runs: Sequence[RecordedRun], rule: Rule) -> tuple[Array, NDArray[np.bool_]]:
    """What a rule measures on runs with the same branch, (runs, rounds, N), and who took part."""
    numbers = runs[0].present.size * runs[0].present.shape[-1]
    step = max(1, _AT_ONCE // max(numbers, 1))
    parts = [measure(rule, *_stacked(runs[k : k + step], rule)) for k in range(0, len(runs), step)]
    values, present = zip(*parts, strict=True)
    return np.concatenate(values), np.concatenate(present)


def _stacked(runs: Sequence[RecordedRun], rule: Rule) -> tuple[Statistics[Any], NDArray[np.bool_]]:
    """What a rule reads of runs with the same branch, (runs, rounds, …), and who took part."""
    name = rule.reads
    if name == "distances" and runs[0].statistics.distances is None:
        name = "gram"
    values = np.stack([getattr(run.statistics, name) for run in runs]).astype(np.float64)
    if name == "gram":  # float32 products are symmetric only up to rounding
        values = (values + np.swapaxes(values, -2, -1)) / 2
    return Statistics(**{name: values}), np.stack([run.present for run in runs])
