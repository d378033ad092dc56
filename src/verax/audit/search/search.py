"""The search for a member's best response to a price, by an evolution strategy (CMA-ES).

For each member a population of policies is run on some of the seeds that set the prices, and moved
toward those with the highest utility. All setting seeds choose among the best policy that was met,
the middle of the last population and the best of the grid. The choice is judged on the seeds that
judge prices. The
search needs nothing but runs, so it works for every subject. It finds local optima: what it finds
is a lower bound on what a member can gain.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.candidates import Candidate
from verax.audit.judge.judgement import Judgement
from verax.audit.plan import Plan
from verax.audit.run.record import RunResults
from verax.audit.run.subject import Progress, Runner
from verax.audit.search.space import PolicySpace
from verax.game import Policy
from verax.learning import Behaviour
from verax.mechanism import Price, Rule, balance
from verax.mechanism.rule import measure

Array = NDArray[np.float64]

#: How far the first policies lie from where the search begins.
_STEP = 0.3

#: What a policy whose run diverges counts as gaining, in honest rewards.
_DIVERGED = -1e3


@dataclass(frozen=True)
class Effort:
    """How long a search takes.

    Attributes:
        generations: how often the population moves, at the proposed price.
        compared: how often at no price and at the best constant one.
        population: policies in a generation.
        seeds: setting seeds on which they are run.
    """

    generations: int
    compared: int
    population: int
    seeds: int


#: A quick search is left out if a run computes more numbers than this; runs of the embedded task
#: compute a million under FedAvg and 14 million under FedSGD.
QUICK_WORK = 5e6

#: Of more members than this, those are searched for whom the list found the largest gains.
MOST_MEMBERS = 5

EFFORTS = {"quick": Effort(8, 3, 10, 2), "thorough": Effort(60, 30, 16, 6)}


@dataclass(frozen=True, eq=False)
class FoundResponse:
    """The best policy of a member that the search found at a price.

    Attributes:
        price: "proposed", "constant" or "none".
        client: whose.
        policy: what it does.
        gains: what it gains over honesty on each judging seed, in money, (S,).
        others: what the others gain together, (S,).
        runs: how many runs the search took.
    """

    price: str
    client: int
    policy: Policy
    gains: Array
    others: Array
    runs: int

    def harmful(self, judgement: Judgement) -> bool:
        """Whether the others lose more than their tolerance."""
        k = judgement.plan.deviators.index(self.client)
        return float(self.others.mean()) < -float(judgement.evidence.others_tolerances[k])


def search(judgement: Judgement, runner: Runner, progress: Progress) -> list[FoundResponse]:
    """The best responses of all deviating members at three prices."""
    plan = judgement.plan
    effort = EFFORTS[plan.deviations.search]
    constant = judgement.schedules["constant"]
    prices = [
        ("proposed", judgement.best, judgement.multiplier, effort.generations),
        ("constant", constant, constant.best[0], effort.compared),
        ("none", constant, 0.0, effort.compared),
    ]
    members = _members(judgement)
    found: list[FoundResponse] = []
    for name, candidate, multiple, generations in prices:
        utilities = _Utilities(plan, runner, candidate.rule, candidate.price.times(multiple))
        points = _search(members, utilities, candidate, multiple, effort, generations, progress)
        runs = generations * effort.population * min(effort.seeds, plan.seeds.set)
        policies = [PolicySpace(plan.blocks).policy(point) for point in points]
        behaviours = list(zip(members, policies, strict=True))
        judged = [utilities.gains(seed, behaviours) for seed in plan.seeds.judging]
        for k, (client, policy) in enumerate(behaviours):
            gains, others = np.array([one[k] for one in judged]).T
            found.append(FoundResponse(name, client, policy, gains, others, runs))
    return found


def _members(judgement: Judgement) -> list[int]:
    """The members that are searched, by their numbers."""
    plan, evidence = judgement.plan, judgement.evidence
    best = judgement.best.gains_at(judgement.multiplier).max(axis=1)
    shares = best / evidence.reward_sizes[list(plan.deviators)]
    chosen = np.argsort(-shares, kind="stable")[:MOST_MEMBERS]
    return sorted(plan.deviators[k] for k in chosen)


def search_rounds(plan: Plan) -> int:
    """Run-rounds that the search moves on, without the judgement of what it found."""
    if plan.deviations.search == "off":
        return 0
    effort = EFFORTS[plan.deviations.search]
    generations = effort.generations + 2 * effort.compared
    runs = generations * effort.population * min(len(plan.deviators), MOST_MEMBERS)
    return runs * min(effort.seeds, plan.seeds.set) * plan.rounds


class _Utilities:
    """What policies gain over honesty at a price."""

    def __init__(self, plan: Plan, runner: Runner, rule: Rule, price: Price) -> None:
        self._plan, self._runner, self._rule = plan, runner, rule
        self._prices = price.per_round()
        self._honest: dict[int, tuple[Array, Array]] = {}

    def gains(self, seed: int, policies: Sequence[tuple[int, Policy]]) -> list[tuple[float, float]]:
        """(Own gain, gain of all others together) of each (client, policy), on one seed."""
        if seed not in self._honest:
            rewards, paid = self._outcome(self._runner.run(seed, [Behaviour()]))
            self._honest[seed] = rewards[0], paid[0]
        honest_rewards, honest_paid = self._honest[seed]
        behaviours = [Behaviour(policy, (client,)) for client, policy in policies]
        rewards, paid = self._outcome(self._runner.run(seed, behaviours))
        rises = rewards - honest_rewards - (paid - honest_paid)
        return [
            (float(rise[client]), float(rise.sum() - rise[client]))
            for rise, (client, _) in zip(rises, policies, strict=True)
        ]

    def _outcome(self, results: RunResults) -> tuple[Array, Array]:
        """Rewards and payments of everybody over the run, (R, N) each."""
        statistics, present = results.statistics, results.present
        everybody = np.broadcast_to(present, (len(results.diverged), *present.shape))
        values, here = measure(self._rule, statistics, everybody)
        prices = np.broadcast_to(self._prices, values.shape[1:])
        mask = None if here.all() else here
        paid = balance(values, prices, mask, fewest=self._rule.fewest).amounts.sum(axis=1)
        return self._plan.reward(results.evaluations[-1].loss), paid


def _search(
    members: Sequence[int],
    utilities: _Utilities,
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
        strategies.append(_strategy(client, effort.population, [best_of_grid[-1], honest]))
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
    utilities: _Utilities,
    space: PolicySpace,
    clients: Sequence[int],
    sizes: Array,
    seeds: Sequence[int],
    asked: Sequence[Sequence[Array]],
) -> Array:
    """Mean gain of each member's points over the seeds, in its honest rewards, (C, P)."""
    policies = [
        (client, space.policy(np.asarray(point)))
        for client, points in zip(clients, asked, strict=True)
        for point in points
    ]
    evaluate: Callable[[int], list[tuple[float, float]]] = partial(
        utilities.gains, policies=policies
    )
    with ThreadPoolExecutor(2) as pool:
        by_seed = list(pool.map(evaluate, seeds))
    own = np.array([[gain for gain, _ in one] for one in by_seed]).mean(axis=0)
    own = own.reshape(len(clients), -1) / sizes[list(clients)][:, None]
    return np.where(np.isfinite(own), np.maximum(own, _DIVERGED), _DIVERGED)


def _strategy(client: int, population: int, tried_first: list[Array]) -> Any:
    """An evolution strategy that begins at honesty, and tries some points first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cma warns about optional packages when it is imported
        import cma

    dimension = len(tried_first[0])
    rng = np.random.default_rng([client, dimension])
    options = {
        "popsize": population,
        "verbose": -9,
        "seed": np.nan,  # the global generator of NumPy stays as it is
        "randn": lambda *shape: rng.standard_normal(shape),
    }
    strategy = cma.CMAEvolutionStrategy(np.zeros(dimension), _STEP, options)
    strategy.inject(tried_first, force=True)
    return strategy
