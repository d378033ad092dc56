"""What was tried, by kind, and what the strongest of each kind gains at the proposed price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.judgement import Judgement
from verax.game import Absent, LargerBatch, Policy, Reporting

Array = NDArray[np.float64]

#: The true worth of the model over the entered one, for the table, and the words for it.
WORTH_ERRORS = {
    0.5: "any of these, if the model is worth half as much",
    2.0: "any of these, if the model is worth twice as much",
}


@dataclass(frozen=True, eq=False)
class StrongestMisreport:
    """The misreport of a kind that gains most.

    It is one that costs the others if such a one gains anything, and any other if not.

    Attributes:
        kind: of the misreports.
        tried: how many of them each member tried.
        client: whose gain is the largest share of its honest reward.
        label: what it did.
        gains: on each judging seed, as shares of its honest reward.
        others: what all others gain together, as shares of their honest rewards.
        harmful: whether the others lose more than their tolerance.
    """

    kind: str
    tried: int
    client: int
    label: str
    gains: Array
    others: Array
    harmful: bool


def kind_of(reporting: Reporting, rounds: int) -> str:
    """The kind of a misreport, as tables name it."""
    if isinstance(reporting, Absent):
        return "absence"
    if isinstance(reporting, LargerBatch):
        return "less noise"
    if isinstance(reporting, Policy):
        if any(reporting.aggregate) or set(reporting.layers) != {1.0}:
            return "another direction"
        return "less noise" if reporting.memory and any(reporting.own) else "timing"
    if reporting.constant is not None:
        a, b = reporting.constant
        return "more noise" if b else "constant scale" if a >= 0 else "reversed update"
    if reporting.program is not None:
        return "other"
    return "reversed update" if np.any(reporting.scales(rounds) < 0) else "timing"


def strongest_misreports(judgement: Judgement) -> list[StrongestMisreport]:
    """The strongest misreport of every kind that was tried, the most harmful kind first."""
    plan, evidence = judgement.plan, judgement.evidence
    kinds = [kind_of(deviation, plan.rounds) for deviation in evidence.deviations]
    rows = [
        _strongest(judgement, kind, np.array([own == kind for own in kinds]), 1.0)
        for kind in dict.fromkeys(kinds)
    ]
    everything = np.ones(len(kinds), dtype=np.bool_)
    rows += [
        _strongest(judgement, words, everything, factor) for factor, words in WORTH_ERRORS.items()
    ]
    return sorted(rows, key=lambda row: (not row.harmful, -float(row.gains.mean())))


def _strongest(
    judgement: Judgement, kind: str, which: NDArray[np.bool_], worth: float
) -> StrongestMisreport:
    """The strongest of some misreports.

    The model is worth `worth` times as much to the deviating member as was entered.
    """
    plan, evidence, best = judgement.plan, judgement.evidence, judgement.best
    sizes = worth * evidence.reward_sizes[list(plan.deviators)]
    gains = (worth * evidence.gains - judgement.multiplier * best.rises) / sizes[:, None, None]
    harmful = best.harmful(judgement.multiplier)
    mean = np.where(which, gains.mean(axis=2), -np.inf)
    costly = np.where(harmful, mean, -np.inf)
    chosen = costly if costly.max() > 0 else mean
    k, d = (int(i) for i in np.unravel_index(int(np.argmax(chosen)), chosen.shape))
    client = plan.deviators[k]
    others_size = float(evidence.reward_sizes.sum() - evidence.reward_sizes[client])
    return StrongestMisreport(
        kind,
        int(which.sum()),
        client,
        evidence.labels[d],
        gains[k, d],
        best.others_gains(judgement.multiplier)[k, d] / others_size,
        bool(harmful[k, d]),
    )
