"""What the recorded runs say before any price: gains, steering and harm.

Everything is paired by seed: a deviation's gain is its reward less that of the honest run of the
same seed.

Payments are balanced: what a deviator pays more, the others receive. So if a misreport changes the
rewards of all clients together by W and gains its sender G after payments, the others gain W − G,
whatever the price. It is *harmful* if the others lose more than their tolerance ε_o, that is if
G > W + ε_o. A gain that is not harmful is a fault of the protocol (the step or the batch is too
small) and not of the member; a price has to stop those gains only that exceed both the member's
tolerance ε and W + ε_o.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verax.audit.plan import Plan
from verax.audit.run.record import RecordedRun
from verax.game import Reporting
from verax.mechanism import Rule

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The runs of one aggregator on some seeds, indexed.

    Arrays are (C, D, S, …): deviating client, deviation, seed.
    """

    plan: Plan
    runs: Sequence[RecordedRun]
    seeds: range
    lower_step: str = "lower the step"  # what to do when training diverges
    aggregator: str = ""

    @cached_property
    def deviations(self) -> list[Reporting]:
        """What was tried, without what diverged in any seed."""
        return [d for d in self.plan.tried if d not in self.diverged]

    @cached_property
    def diverged(self) -> dict[Reporting, int]:
        """Deviations in whose runs the numbers stopped being finite, and the first such round."""
        first: dict[Reporting, int] = {}
        for recorded in self._mine:
            if recorded.diverged and recorded.run.role == "honest":
                raise ValueError(
                    f"honest training diverged in round {recorded.diverged} (seed "
                    f"{recorded.run.seed}); {self.lower_step}"
                )
            if recorded.diverged and recorded.run.role == "deviation":
                known = first.get(recorded.run.reporting, recorded.diverged)
                first[recorded.run.reporting] = min(known, recorded.diverged)
        return first

    @cached_property
    def labels(self) -> list[str]:
        """Short words for each deviation."""
        return [d.describe(self.plan.rounds) for d in self.deviations]

    @cached_property
    def constant(self) -> NDArray[np.bool_]:
        """Which deviations are constant scales or noise, as in the paper, (D,)."""
        return np.array([d.constant is not None for d in self.deviations], dtype=np.bool_)

    @cached_property
    def honest_losses(self) -> Array:
        """(S, N)."""
        return np.stack([run.loss for run in self.honest_runs])

    @cached_property
    def honest_accuracy(self) -> Array:
        """(S, N)."""
        return np.stack([run.accuracy for run in self.honest_runs])

    @cached_property
    def honest_rewards(self) -> Array:
        """In money, (S, N)."""
        return self.plan.reward(self.honest_losses)

    @cached_property
    def reward_sizes(self) -> Array:
        """The size of each client's mean honest reward, of which gains are given in per cent."""
        return np.abs(self.honest_rewards.mean(axis=0))

    @cached_property
    def tolerances(self) -> Array:
        """ε_i in money, (N,)."""
        return self.plan.prices.tolerance * self.reward_sizes

    @cached_property
    def losses(self) -> Array:
        """Every client's loss under each deviation, (C, D, S, N)."""
        return np.array(
            [
                [[run.loss for run in self._by_deviation[c, d]] for d in self.deviations]
                for c in self.plan.deviators
            ]
        )

    @cached_property
    def reward_rises(self) -> Array:
        """ΔR of every client under each deviation, in money, (C, D, S, N)."""
        return self.plan.reward(self.losses) - self.honest_rewards

    @cached_property
    def gains(self) -> Array:
        """ΔR of the deviating client, in money, (C, D, S)."""
        rises = self.reward_rises
        return np.stack([rises[k, ..., c] for k, c in enumerate(self.plan.deviators)])

    @cached_property
    def others_rises(self) -> Array:
        """ΔR of all other clients together, in money, (C, D, S)."""
        return self.reward_rises.sum(axis=3) - self.gains

    @cached_property
    def others_tolerances(self) -> Array:
        """ε_o: by how much the others together may lose, in money, (C,)."""
        own = self.tolerances[list(self.plan.deviators)]
        return float(self.tolerances.sum()) - own

    @cached_property
    def contested_gains(self) -> Array:
        """Gains less the part that is at nobody's expense, max(0, W + ε_o − ε), (C, D, S).

        A misreport gains more than ε and is harmful exactly if its contested gain, less what it
        pays, is more than ε.
        """
        welfare = (self.gains + self.others_rises).mean(axis=2)
        own = self.tolerances[list(self.plan.deviators)]
        excused = np.maximum(welfare + (self.others_tolerances - own)[:, None], 0.0)
        return self.gains - excused[:, :, None]

    @cached_property
    def harm(self) -> Array:
        """How much every client's loss rises, (C, D, S, N)."""
        return self.losses - self.honest_losses

    @cached_property
    def control_gains(self) -> dict[Reporting, Array]:
        """ΔR of everybody when all clients' updates are enlarged, by deviation, (S, N)."""
        losses: dict[Reporting, dict[int, Array]] = {}
        for recorded in self._mine:
            if recorded.run.role == "control" and not recorded.diverged:
                losses.setdefault(recorded.run.reporting, {})[recorded.run.seed] = recorded.loss
        return {
            d: self.plan.reward(np.stack([by_seed[s] for s in self.seeds])) - self.honest_rewards
            for d, by_seed in losses.items()
            if len(by_seed) == len(self.seeds)
        }

    def steering(self, k: int, d: int) -> Array | None:
        """The part of a gain that is not faster learning, (S,); None without a control run."""
        control = self.control_gains.get(self.deviations[d])
        if control is None:
            return None
        return self.gains[k, d] - control[:, self.plan.deviators[k]]

    def has(self, rule: Rule) -> bool:
        """Whether the statistic that a rule reads was recorded."""
        return self.runs[0].statistics.has(rule.reads)

    def deviation_runs(self, k: int, d: int) -> list[RecordedRun]:
        """The runs of one deviation of the k-th deviator, by seed."""
        return self._by_deviation[self.plan.deviators[k], self.deviations[d]]

    @cached_property
    def _mine(self) -> list[RecordedRun]:
        return [
            recorded
            for recorded in sorted(self.runs, key=lambda one: one.run.seed)
            if recorded.run.aggregator == self.aggregator and recorded.run.seed in self.seeds
        ]

    @cached_property
    def honest_runs(self) -> list[RecordedRun]:
        """By seed."""
        return [recorded for recorded in self._mine if recorded.run.role == "honest"]

    @cached_property
    def _by_deviation(self) -> dict[tuple[int, Reporting], list[RecordedRun]]:
        runs: dict[tuple[int, Reporting], list[RecordedRun]] = {}
        for recorded in self._mine:
            if recorded.run.role == "deviation":
                runs.setdefault((recorded.run.client, recorded.run.reporting), []).append(recorded)
        return runs
