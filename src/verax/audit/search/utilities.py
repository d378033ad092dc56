"""What behaviours gain over honesty at a price, for everybody."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from verax.audit.plan import Plan
from verax.audit.run.record import RunResults
from verax.audit.run.subject import Runner
from verax.learning import Behaviour
from verax.mechanism import Price, Rule, Statistics, balance
from verax.mechanism.rule import measure

Array = NDArray[np.float64]


class Utilities:
    """Utilities at a price, less those of the honest run of the same seed.

    Args:
        plan: gives the rewards.
        runner: runs behaviours.
        rule: what is charged.
        price: over the rounds.
        allowances: κ of every round and client, (T, N); default: none.
    """

    def __init__(
        self,
        plan: Plan,
        runner: Runner,
        rule: Rule,
        price: Price,
        allowances: Array | None = None,
    ) -> None:
        self._plan, self._runner, self._rule = plan, runner, rule
        self._prices, self._allowances = price.per_round(), allowances
        self._honest: dict[int, Array] = {}

    def on_seeds(self, seeds: Sequence[int], behaviours: Sequence[Behaviour]) -> Array:
        """Everybody's gains under each behaviour on each seed, (S, R, N)."""
        with ThreadPoolExecutor(2) as pool:
            return np.stack(list(pool.map(partial(self.on_seed, behaviours=behaviours), seeds)))

    def on_seed(self, seed: int, behaviours: Sequence[Behaviour]) -> Array:
        """Everybody's gains under each behaviour on one seed, (R, N)."""
        if seed not in self._honest:
            self._honest[seed] = self._utilities(self._runner.run(seed, [Behaviour()]))[0]
        by_program: dict[object, list[int]] = {}  # runs with one program are computed together
        for k, behaviour in enumerate(behaviours):
            by_program.setdefault(behaviour.program, []).append(k)
        found = np.zeros((len(behaviours), len(self._honest[seed])))
        width = self._runner.width
        for group in by_program.values():
            for k in range(0, len(group), width):
                some = group[k : k + width]
                results = self._runner.run(seed, [behaviours[i] for i in some])
                found[some] = self._utilities(results)
        return found - self._honest[seed]

    def _utilities(self, results: RunResults) -> Array:
        """Rewards less payments of everybody over the run, (R, N); −∞ where numbers diverged."""
        fine = np.flatnonzero(results.diverged == 0)
        known = {
            name: values[fine]
            for name, values in results.statistics._asdict().items()
            if values is not None
        }
        utilities = np.full(results.evaluations[-1].loss.shape, -np.inf)
        if not fine.size:
            return utilities
        values, here = measure(self._rule, Statistics(**known), results.present[fine])
        prices = np.broadcast_to(self._prices, values.shape[1:])
        paid = balance(
            values,
            prices,
            None if here.all() else here,
            fewest=self._rule.fewest,
            allowances=self._allowances,
        )
        rewards = self._plan.reward(results.evaluations[-1].loss[fine])
        utilities[fine] = rewards - paid.amounts.sum(axis=1)
        return utilities
