"""How long searches take."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from verax.audit.plan import Plan


@dataclass(frozen=True)
class Effort:
    """How long a search takes.

    Attributes:
        generations: how often the population moves, at the proposed price.
        compared: how often at no price and at the best constant one, and for pairs of members; 0:
            only single members are searched, at the proposed price.
        population: policies in a generation.
        seeds: setting seeds on which they are run.
        steps: how often all members move at most, where everybody is strategic.
        parts: of the run, for which members then choose a scale.
        equilibrium_seeds: setting seeds on which everybody is strategic.
    """

    generations: int
    compared: int
    population: int
    seeds: int
    steps: int
    parts: int
    equilibrium_seeds: int


EFFORTS = {
    "quick": Effort(8, 3, 10, 2, steps=6, parts=3, equilibrium_seeds=1),
    "thorough": Effort(60, 30, 16, 6, steps=25, parts=100, equilibrium_seeds=3),
}

#: What is left of a quick search where a run takes long.
_BRIEF = Effort(6, 0, 10, 2, steps=0, parts=0, equilibrium_seeds=0)

#: A run takes long if it computes more numbers than this; runs of the embedded task compute a
#: million under FedAvg and 14 million under FedSGD.
_LONG = 5e6

#: Nothing is searched by a quick search if a run computes more numbers than this.
_TOO_LONG = 3e7

#: At most so many members are searched: those for whom the list found the largest gains. In larger
#: federations neither pairs nor everybody together are searched.
MOST_MEMBERS = 5


def effort_of(plan: Plan, work: float) -> Effort | None:
    """How long to search, for runs that compute so many numbers; None: not at all."""
    if plan.deviations.search == "quick" and work > _LONG:
        return _BRIEF if work <= _TOO_LONG else None
    return EFFORTS.get(plan.deviations.search)


def search_rounds(plan: Plan, work: float = 0.0) -> int:
    """Run-rounds that the search takes at most, without the judgement of what it found.

    Args:
        plan: what to search.
        work: how many numbers a run computes; 0 if that is not known.
    """
    effort, members = effort_of(plan, work), len(plan.deviators)
    if effort is None:
        return 0
    seeds = min(effort.seeds, plan.seeds.set)
    generations = effort.generations + 2 * effort.compared
    runs = generations * effort.population * min(members, MOST_MEMBERS) * seeds
    if searches_together(plan) and effort.compared:
        runs += comb(members, 2) * effort.compared * effort.population * seeds
        factors = min(effort.parts, len(plan.blocks)) * plan.task.clients
        plays = 6 * effort.steps * min(effort.equilibrium_seeds, plan.seeds.set)
        runs += plays * (1 + 2 * factors)
    return runs * plan.rounds


def searches_together(plan: Plan) -> bool:
    """Whether pairs and everybody together are searched."""
    everybody = len(plan.deviators) == plan.task.clients
    return plan.deviations.coalitions > 1 and everybody and plan.task.clients <= MOST_MEMBERS
