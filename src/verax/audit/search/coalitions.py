"""The best joint policy of every pair of members that the search finds.

Both scale their messages, each in its own way in every block of rounds, and look at the sum of
their utilities. They may move money between them, so that only the sum counts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.judgement import Judgement
from verax.audit.run.subject import Progress
from verax.audit.search.effort import Effort
from verax.audit.search.responses import DIVERGED, strategy_of
from verax.audit.search.utilities import Utilities
from verax.game import Piecewise
from verax.learning import JointBehaviour
from verax.mechanism import Blocks

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FoundPair:
    """The best joint policy of two members that the search found at the proposed price.

    Attributes:
        members: both.
        scales: of each in every block of rounds, (2, K).
        gains: what they gain together on each judging seed, in money, (S,).
        others: what all others gain together, (S,).
        runs: how many runs the search took.
    """

    members: tuple[int, int]
    scales: Array
    gains: Array
    others: Array
    runs: int


def search_pairs(
    judgement: Judgement, utilities: Utilities, effort: Effort, progress: Progress
) -> list[FoundPair]:
    """The best joint policy of every pair of deviating members."""
    plan, blocks = judgement.plan, judgement.plan.blocks
    sizes = judgement.evidence.reward_sizes
    seeds = list(plan.seeds.setting)[: effort.seeds]
    pairs = list(itertools.combinations(plan.deviators, 2))
    honest = np.zeros(2 * len(blocks))
    late = np.repeat([1.0, 1.0], len(blocks))
    late.reshape(2, -1)[:, :-1] = 0.0  # twice the update in the last block
    strategies: list[Any] = [
        strategy_of(k, effort.population, [late, honest]) for k in range(len(pairs))
    ]

    def rises(points: list[list[Any]], on: list[int]) -> Array:
        """Everybody's gains, (S, pairs, points, N)."""
        behaviours = [
            joint(pair, 1 + np.asarray(point).reshape(2, -1), blocks)
            for pair, own in zip(pairs, points, strict=True)
            for point in own
        ]
        found = utilities.on_seeds(on, behaviours)
        return found.reshape(len(on), len(pairs), -1, found.shape[-1])

    for _ in range(effort.compared):
        asked = [strategy.ask() for strategy in strategies]
        found = rises(asked, seeds).mean(axis=0)
        for strategy, pair, points, own in zip(strategies, pairs, asked, found, strict=True):
            together = own[:, list(pair)].sum(axis=1) / sizes[list(pair)].sum()
            strategy.tell(points, (-np.maximum(together, DIVERGED)).tolist())
        progress(len(seeds) * len(pairs) * effort.population * plan.rounds)
    best = [[np.asarray(strategy.result.xbest)] for strategy in strategies]
    judged = rises(best, list(plan.seeds.judging))[:, :, 0]  # (S, pairs, N)
    runs = effort.compared * effort.population * len(seeds)
    results: list[FoundPair] = []
    for k, pair in enumerate(pairs):
        gains = judged[:, k][:, list(pair)].sum(axis=1)
        scales = 1 + best[k][0].reshape(2, -1)
        results.append(FoundPair(pair, scales, gains, judged[:, k].sum(axis=1) - gains, runs))
    return results


def joint(members: tuple[int, ...], scales: Array, blocks: Blocks) -> JointBehaviour:
    """Members that scale their messages by (members, K) numbers, one per block of rounds."""
    each = tuple(Piecewise(tuple(own.tolist()), blocks.starts) for own in scales)
    return JointBehaviour(deviators=members, each=each)
