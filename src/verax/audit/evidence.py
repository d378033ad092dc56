"""What the recorded runs say, before any price: gains, harm, and payments per unit of price.

Everything is paired by seed: a deviation's gain is its reward less that of the honest run of the
same seed. Payments are computed by `verax.mechanism` from the recorded statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verax.audit.plan import Plan
from verax.audit.record import Recorded
from verax.game import Reporting, ScaleAndNoise, Timed
from verax.mechanism import GrovesLedyard, Rule, SquaredDistance, SquaredNorm, balance, pay

__all__ = ["Evidence"]

Array = NDArray[np.float64]

#: Recorded numbers that are priced at a time: many short runs together, a long one alone.
_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class Evidence:
    """The runs of one aggregator, indexed.

    Arrays are (C, D, S, …): deviating client, deviation, seed.
    """

    plan: Plan
    runs: list[Recorded]
    aggregator: str = ""

    @cached_property
    def deviations(self) -> list[Reporting]:
        """What was tried, without what diverged in any seed."""
        return [d for d in self.plan.deviations() if d not in self.diverged]

    @cached_property
    def diverged(self) -> dict[Reporting, int]:
        """Deviations in whose runs the numbers stopped being finite, and the first such round."""
        found: dict[Reporting, int] = {}
        for recorded in self._mine:
            if recorded.diverged and recorded.run.role == "honest":
                raise ValueError(
                    f"honest training diverged in round {recorded.diverged} (seed "
                    f"{recorded.run.seed}); lower the step, now {self.plan.step:g}"
                )
            if recorded.diverged and recorded.run.role == "deviation":
                seen = found.get(recorded.run.reporting, recorded.diverged)
                found[recorded.run.reporting] = min(seen, recorded.diverged)
        return found

    @cached_property
    def labels(self) -> list[str]:
        """Short words for each deviation."""
        return [_label(d, self.plan.rounds) for d in self.deviations]

    @cached_property
    def constant(self) -> NDArray[np.bool_]:
        """Which deviations are constant scales or noise, as in the paper, (D,)."""
        return np.array([isinstance(d, ScaleAndNoise) for d in self.deviations], dtype=np.bool_)

    @cached_property
    def honest_losses(self) -> Array:
        """(S, N)."""
        return np.stack([run.loss for run in self._honest])

    @cached_property
    def honest_accuracy(self) -> Array:
        """(S, N)."""
        return np.stack([run.accuracy for run in self._honest])

    @cached_property
    def honest_rewards(self) -> Array:
        """(S, N)."""
        return self._reward(self.honest_losses)

    @cached_property
    def tolerances(self) -> Array:
        """ε_i in units of reward, (N,)."""
        return self.plan.tolerance * np.abs(self.honest_rewards.mean(axis=0))

    @cached_property
    def losses(self) -> Array:
        """Every client's loss under each deviation, (C, D, S, N)."""
        return np.stack(
            [
                np.stack(
                    [
                        np.stack([run.loss for run in self._by_deviation[c, d]])
                        for d in self.deviations
                    ]
                )
                for c in self.plan.deviators
            ]
        )

    @cached_property
    def gains(self) -> Array:
        """ΔR of the deviating client, (C, D, S)."""
        rise = self._reward(self.losses) - self.honest_rewards
        return np.stack([rise[k, ..., c] for k, c in enumerate(self.plan.deviators)])

    @cached_property
    def harm(self) -> Array:
        """How much every client's loss rises, (C, D, S, N)."""
        return self.losses - self.honest_losses

    @cached_property
    def control_gains(self) -> dict[Reporting, Array]:
        """ΔR of everybody when all steps are enlarged alike, by deviation, (S, N)."""
        found: dict[Reporting, dict[int, Array]] = {}
        for recorded in self._mine:
            if recorded.run.role == "control" and not recorded.diverged:
                found.setdefault(recorded.run.reporting, {})[recorded.run.seed] = recorded.loss
        return {
            d: self._reward(np.stack([by_seed[s] for s in self._seeds])) - self.honest_rewards
            for d, by_seed in found.items()
            if len(by_seed) == len(self._seeds)
        }

    def steering(self, k: int, d: int) -> Array | None:
        """The part of a gain that is not faster learning, (S,); None without a control run."""
        control = self.control_gains.get(self.deviations[d])
        if control is None:
            return None
        return self.gains[k, d] - control[:, self.plan.deviators[k]]

    def honest_payments(self, rule: Rule, prices: Array) -> Array:
        """What honest clients pay in every round, mean over seeds, (T, N)."""
        return _paid(self._honest, rule, prices).mean(axis=0)

    def series(self, rule: Rule, prices: Array | float = 1.0) -> Array:
        """What a deviator pays more in each round, (C, D, S, T), at prices per round and client."""
        T, N = self.plan.rounds, self.plan.clients
        price = np.broadcast_to(np.asarray(prices, dtype=np.float64), (T, N))

        result = np.zeros((len(self.plan.deviators), len(self.deviations), len(self._seeds), T))
        truth = _paid(self._honest, rule, price)
        for k, c in enumerate(self.plan.deviators):
            for d, deviation in enumerate(self.deviations):
                runs = self._by_deviation[c, deviation]
                begin = runs[0].run.branch
                paid = _paid(runs, rule, price[begin:])
                result[k, d, :, begin:] = paid[..., c] - truth[:, begin:, c]
        return result

    @cached_property
    def norm_series(self) -> Array:
        """`series` of the paper's rule, on which all schedules are judged."""
        return self.series(SquaredNorm())

    def rises(self, prices: Array) -> Array:
        """ΔP under the paper's rule at prices per round and client, (T, N), → (C, D, S)."""
        return self.series(SquaredNorm(), prices).sum(axis=-1)

    @cached_property
    def _mine(self) -> list[Recorded]:
        return [run for run in self.runs if run.run.aggregator == self.aggregator]

    @cached_property
    def _seeds(self) -> list[int]:
        return list(self.plan.seeds_to_judge)

    @cached_property
    def _honest(self) -> list[Recorded]:
        return sorted(
            (run for run in self._mine if run.run.role == "honest"), key=lambda run: run.run.seed
        )

    @cached_property
    def _by_deviation(self) -> dict[tuple[int, Reporting], list[Recorded]]:
        found: dict[tuple[int, Reporting], list[Recorded]] = {}
        for run in sorted(self._mine, key=lambda run: run.run.seed):
            if run.run.role == "deviation":
                found.setdefault((run.run.client, run.run.reporting), []).append(run)
        return found

    def _reward(self, losses: Array) -> Array:
        return self.plan.make_reward()(losses)


def _paid(runs: Sequence[Recorded], rule: Rule, prices: Array) -> Array:
    """What everybody pays in each round of like runs, from what the record has, (S, T, N)."""
    most = max(1, _AT_ONCE // max(runs[0].gram.size, 1))
    parts = [runs[i : i + most] for i in range(0, len(runs), most)]
    return np.concatenate([_paid_at_once(part, rule, prices) for part in parts])


def _paid_at_once(runs: Sequence[Recorded], rule: Rule, prices: Array) -> Array:
    here = np.stack([run.present for run in runs])
    if rule.statistic == "misreport":
        statistics = np.stack([run.misreport for run in runs])
        return pay(rule, statistics, prices, present=here).amounts
    gram = np.stack([run.gram for run in runs]).astype(np.float64)
    square = gram.shape[-2] == gram.shape[-1]
    if rule.statistic == "norms":
        statistics = np.diagonal(gram, axis1=-2, axis2=-1) if square else gram[..., 0]
    elif square:
        statistics = (gram + np.swapaxes(gram, -2, -1)) / 2
    else:
        assert isinstance(rule, SquaredDistance | GrovesLedyard)
        n = np.maximum(np.count_nonzero(here, axis=-1), 2)[..., None]
        measures = rule.of_distances(gram[..., 1] * ((n - 1) / n) ** 2, here)
        measures = np.where(here, measures, 0.0)
        return balance(measures, prices, here, fewest=rule.fewest).amounts
    return pay(rule, statistics, prices, present=here).amounts


def _label(deviation: Reporting, rounds: int) -> str:
    if isinstance(deviation, Timed):
        early, late = deviation.a_early, deviation.a_late
        last = rounds - deviation.first_late(rounds)
        if early == 1:
            return f"scale {late:g} in the last {f'{last} rounds' if last > 1 else 'round'}"
        return f"scale {early:g}, then {late:g} in the last {last} rounds"
    return deviation.words
