"""The search for each member's best policy under a rule, by an evolution strategy (CMA-ES)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from harm.judge import CHOOSE, COMPARED, JUDGE, SET, Recorded, rules_of
from harm.pricing import Array, Evidence, Rule
from harm.runs import HarmRuns, Records, Tried
from verax.audit.search.space import PolicySpace

# Policies of a generation, generations, and setting seeds on which they are run.
POPULATION, GENERATIONS, SEARCHED = 10, 8, 2


def search(known: Recorded, runs: HarmRuns, names: Sequence[str] = COMPARED) -> dict[str, Any]:
    """The best policy of each member that an evolution strategy finds, under each rule.

    It maximises the gain at the others' expense, as `Evidence.contested` counts it.
    """
    rules, choosing = rules_of(known).rules, known.evidence(CHOOSE)
    space = PolicySpace(known.blocks)
    members = known.deviators[:3] if known.clients > 5 else known.deviators
    found: dict[str, Any] = {}
    for name in names:
        rule = rules[name]

        def tried(seeds: range, points: list[list[Array]], rule: Rule = rule) -> Array:
            """Contested gain of each member's points, (members, points)."""
            one = _evidence(runs, members, space, seeds, points)
            return np.maximum(
                one.contested(one.rises(rule)), -1e5
            )  # diverged runs are not the best

        grid = _best_of_grid(choosing, rule, space, known)
        strategies = [_strategy(c, [grid[c], np.zeros(space.dimension)]) for c in members]
        for _ in range(GENERATIONS):
            asked = [strategy.ask() for strategy in strategies]
            values = tried(range(SEARCHED), asked)
            for strategy, points, own in zip(strategies, asked, values, strict=True):
                strategy.tell(points, (-own).tolist())
        finalists = [
            [np.asarray(s.result.xbest), np.asarray(s.result.xfavorite), grid[c]]
            for s, c in zip(strategies, members, strict=True)
        ]
        best = np.argmax(tried(SET, finalists), axis=1)
        points = [[own[k]] for own, k in zip(finalists, best, strict=True)]
        words = [space.policy(own[0]).describe(known.setting.rounds) for own in points]
        judged = _evidence(runs, members, space, JUDGE, points)
        found[name] = judged.judge(judged.rises(rule), ["found"]) | {"policies": words}
    return found


def _evidence(
    runs: HarmRuns,
    members: tuple[int, ...],
    space: PolicySpace,
    seeds: range,
    points: list[list[Array]],
) -> Evidence:
    tried = [
        Tried((client,), space.policy(np.asarray(point)))
        for client, own in zip(members, points, strict=True)
        for point in own
    ]
    honest = [runs.honest(seed) for seed in seeds]
    moved = [runs.run(seed, tried) for seed in seeds]
    joined = (Records(*map(np.stack, zip(*each, strict=True))) for each in (honest, moved))
    return Evidence(*joined, [(client,) for client in members])


def _best_of_grid(
    evidence: Evidence, rule: Rule, space: PolicySpace, known: Recorded
) -> dict[int, Array]:
    """The point of each member's best misreport of the list that is such a policy."""
    gains = evidence.contested(evidence.rises(rule))
    points = [space.point(reporting) for reporting in known.grid]
    best: dict[int, Array] = {}
    for client, own in zip(known.deviators, gains, strict=True):
        best[client] = next(p for d in np.argsort(-own) if (p := points[d]) is not None)
    return best


def _strategy(client: int, first: list[Array]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cma warns about optional packages when it is imported
        import cma
    rng = np.random.default_rng([client, len(first[0])])
    options = {
        "popsize": POPULATION,
        "verbose": -9,
        "seed": np.nan,
        "randn": lambda *shape: rng.standard_normal(shape),
    }
    strategy = cma.CMAEvolutionStrategy(np.zeros(len(first[0])), 0.3, options)
    strategy.inject(first, force=True)
    return strategy
