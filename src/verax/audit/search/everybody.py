"""Everybody strategic: where play ends without a price, at a constant one and at the proposed one.

Members choose a scale for each part of the run. In a quick search the run has three parts, in a
thorough one the blocks of the prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.judgement import Judgement
from verax.audit.run.subject import Progress, Runner
from verax.audit.search.coalitions import joint
from verax.audit.search.effort import Effort
from verax.audit.search.equilibrium import play
from verax.audit.search.utilities import Utilities
from verax.mechanism import Blocks, Price, Rule

Array = NDArray[np.float64]

#: From where play begins, as the scale of everybody: honesty, and three times the update.
STARTS = (1.0, 3.0)


@dataclass(frozen=True, eq=False)
class FoundEquilibrium:
    """Where play of all members ended at a price.

    Attributes:
        price: "proposed", "constant" or "none".
        start: the scale of everybody at the beginning.
        scales: of every part of the run and member at the end, (K, N).
        settled: whether nobody moved any more.
        rewards: by how much everybody's reward rose over honesty, on each judging seed, (S, N).
    """

    price: str
    start: float
    scales: Array
    settled: bool
    rewards: Array


def search_equilibria(
    judgement: Judgement, runner: Runner, effort: Effort, progress: Progress
) -> list[FoundEquilibrium]:
    """Where play ends at each price, from each start."""
    plan = judgement.plan
    parts, everybody = parts_of(plan.blocks, effort.parts), tuple(range(plan.task.clients))
    seeds = list(plan.seeds.setting)[: effort.equilibrium_seeds]
    free = Utilities(plan, runner, *price_of(judgement, "none"))
    found: list[FoundEquilibrium] = []
    for name in ("none", "constant", "proposed"):
        at_price = Utilities(plan, runner, *price_of(judgement, name))

        def utilities(tables: Array, at_price: Utilities = at_price) -> Array:
            progress(len(tables) * len(seeds) * plan.rounds)
            behaviours = [joint(everybody, table.T, parts) for table in tables]
            return at_price.on_seeds(seeds, behaviours).mean(axis=0)

        for start in STARTS:
            ended = play(utilities, np.full((len(parts), len(everybody)), start), effort.steps)
            last = joint(everybody, ended.scales.T, parts)
            rewards = free.on_seeds(list(plan.seeds.judging), [last])[:, 0]
            found.append(FoundEquilibrium(name, start, ended.scales, ended.settled, rewards))
    return found


def price_of(judgement: Judgement, name: str) -> tuple[Rule, Price]:
    """The rule and price that a search calls proposed, constant or none."""
    constant = judgement.main.chosen_by["constant"]
    if name == "proposed":
        return judgement.best.rule, judgement.best.price.times(judgement.multiplier)
    return constant.rule, constant.price.times(constant.best[0] if name == "constant" else 0.0)


def parts_of(blocks: Blocks, most: int) -> Blocks:
    """At most so many parts of the run, each a number of neighbouring blocks."""
    groups = np.array_split(np.array(blocks.starts), min(most, len(blocks)))
    return Blocks(tuple(int(group[0]) for group in groups), blocks.rounds)
