"""The search for a member's best response to a price, by an evolution strategy (CMA-ES).

For each member a population of policies is run on some of the seeds that set the prices, and moved
toward those with the highest utility. All setting seeds choose among the best policy that was met,
the middle of the last population and the best of the grid. The choice is judged on the seeds that
judge prices. The search needs nothing but runs, so it works for every subject. It finds local
optima: what it finds is a lower bound on what a member can gain.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.candidates import Candidate
from verax.audit.judge.judgement import Judgement
from verax.audit.plan import Plan
from verax.audit.run.subject import Progress, Runner
from verax.audit.search.effort import MOST_MEMBERS, Effort
from verax.audit.search.space import PolicySpace
from verax.audit.search.utilities import Utilities
from verax.game import Reporting
from verax.learning import Behaviour

Array = NDArray[np.float64]

#: How far the first policies lie from where the search begins.
_STEP = 0.3

#: What a policy whose run diverges counts as gaining, in honest rewards.
DIVERGED = -1e3


@dataclass(frozen=True, eq=False)
class FoundResponse:
    """The best policy of a member that the search found at a price.

    Attributes:
        price: "proposed", "constant" or "none".
        client: whose.
        reporting: what it does.
        rises: what everybody gains by it over honesty on each judging seed, in money, (S, N).
        runs: how many runs the search took.
    """

    price: str
    client: int
    reporting: Reporting
    rises: Array
    runs: int

    @property
    def gains(self) -> Array:
        """What the member itself gains on each judging seed, (S,)."""
        return self.rises[:, self.client]

    @property
    def others(self) -> Array:
        """What the others gain together on each judging seed, (S,)."""
        return self.rises.sum(axis=1) - self.gains

    @property
    def most_hurt(self) -> int:
        """The other member that gains least."""
        mean = self.rises.mean(axis=0)
        mean[self.client] = np.inf
        return int(np.argmin(mean))

    def harmful(self, judgement: Judgement) -> bool:
        """Whether the others lose more than their tolerance."""
        k = judgement.plan.deviators.index(self.client)
        return float(self.others.mean()) < -float(judgement.evidence.others_tolerances[k])

    def undeterred(self, judgement: Judgement) -> bool:
        """Whether it gains more than the tolerance at the others' expense."""
        tolerance = float(judgement.evidence.tolerances[self.client])
        return self.harmful(judgement) and float(self.gains.mean()) > tolerance


def search(
    judgement: Judgement, runner: Runner, effort: Effort, progress: Progress
) -> list[FoundResponse]:
    """The best responses of all deviating members, at the proposed price and at two others."""
    plan = judgement.plan
    constant = judgement.main.chosen_by["constant"]
    prices = [
        ("proposed", judgement.choice, judgement.multiplier, effort.generations),
        ("constant", constant, constant.best[0], effort.compared),
        ("none", constant, 0.0, effort.compared),
    ]
    prices = [one for one in prices if one[-1]]
    members = _members(judgement)
    found: list[FoundResponse] = []
    for name, candidate, multiple, generations in prices:
        utilities = Utilities(plan, runner, candidate.rule, candidate.price.times(multiple))
        points = _search(members, utilities, candidate, multiple, effort, generations, progress)
        runs = generations * effort.population * min(effort.seeds, plan.seeds.set)
        policies = [PolicySpace(plan.blocks).policy(point) for point in points]
        found += judged(name, members, policies, utilities, plan, runs)
    return found


def judged(
    price: str,
    members: Sequence[int],
    reportings: Sequence[Reporting],
    utilities: Utilities,
    plan: Plan,
    runs: int,
) -> list[FoundResponse]:
    """What members gain on the judging seeds, each by its own reporting."""
    pairs = list(zip(members, reportings, strict=True))
    behaviours = [Behaviour(reporting, (client,)) for client, reporting in pairs]
    rises = utilities.on_seeds(plan.seeds.judging, behaviours)  # (S, R, N)
    return [
        FoundResponse(price, client, reporting, rises[:, k], runs)
        for k, (client, reporting) in enumerate(pairs)
    ]


def _members(judgement: Judgement) -> list[int]:
    """The members that are searched, by their numbers."""
    plan, evidence = judgement.plan, judgement.evidence
    best = judgement.best.gains_at(judgement.multiplier).max(axis=1)
    shares = best / evidence.reward_sizes[list(plan.deviators)]
    chosen = np.argsort(-shares, kind="stable")[:MOST_MEMBERS]
    return sorted(plan.deviators[k] for k in chosen)


def _search(
    members: Sequence[int],
    utilities: Utilities,
    candidate: Candidate,
    multiple: float,
    effort: Effort,
    generations: int,
    progress: Progress,
) -> list[Array]:
    """The best point of each member on the setting seeds."""
    plan = candidate.evidence.plan
    space = PolicySpace(plan.blocks)
    seeds = list(plan.seeds.setting)[: effort.seeds]
    sizes = candidate.evidence.reward_sizes
    gains = candidate.gains_at(multiple)
    strategies: list[Any] = []
    best_of_grid: list[Array] = []
    grid = [space.point(reporting) for reporting in candidate.evidence.deviations]
    for client in members:
        best_first = [grid[d] for d in np.argsort(-gains[plan.deviators.index(client)])]
        honest = np.zeros(space.dimension)
        best_of_grid.append(next((point for point in best_first if point is not None), honest))
        strategies.append(strategy_of(client, effort.population, [best_of_grid[-1], honest]))
    evaluate = partial(_mean_gains, utilities, space, members, sizes)
    for _ in range(generations):
        asked = [strategy.ask() for strategy in strategies]
        found = evaluate(seeds, asked)
        for strategy, points, values in zip(strategies, asked, found, strict=True):
            strategy.tell(points, (-values).tolist())
        progress(len(seeds) * len(strategies) * effort.population * plan.rounds)
    # The best point of few seeds may be luck, so that all setting seeds choose among three.
    finalists = [
        [np.asarray(strategy.result.xbest), np.asarray(strategy.result.xfavorite), known]
        for strategy, known in zip(strategies, best_of_grid, strict=True)
    ]
    values = evaluate(list(plan.seeds.setting), finalists)
    return [points[int(np.argmax(own))] for points, own in zip(finalists, values, strict=True)]


def _mean_gains(
    utilities: Utilities,
    space: PolicySpace,
    clients: Sequence[int],
    sizes: Array,
    seeds: Sequence[int],
    asked: Sequence[Sequence[Array]],
) -> Array:
    """Mean gain of each member's points over the seeds, in its honest rewards, (C, P)."""
    who = [client for client, points in zip(clients, asked, strict=True) for _ in points]
    points = [np.asarray(point) for points in asked for point in points]
    behaviours = [
        Behaviour(space.policy(point), (client,)) for client, point in zip(who, points, strict=True)
    ]
    rises = utilities.on_seeds(seeds, behaviours).mean(axis=0)
    own = (rises[np.arange(len(who)), who] / sizes[who]).reshape(len(clients), -1)
    return np.maximum(own, DIVERGED)


def strategy_of(number: int, population: int, tried_first: list[Array]) -> Any:
    """An evolution strategy that begins at honesty, and tries some points first.

    Args:
        number: seeds it.
        population: points in a generation.
        tried_first: points of the first generation.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cma warns about optional packages when it is imported
        import cma

    dimension = len(tried_first[0])
    rng = np.random.default_rng([number, dimension])
    options = {
        "popsize": population,
        "verbose": -9,
        "seed": np.nan,  # the global generator of NumPy stays as it is
        "randn": lambda *shape: rng.standard_normal(shape),
    }
    strategy = cma.CMAEvolutionStrategy(np.zeros(dimension), _STEP, options)
    strategy.inject(tried_first, force=True)
    return strategy
