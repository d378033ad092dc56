"""The judgement: which schedule deters what was tried, at which prices, and what it costs.

Three schedules for the paper's rule, from the same runs: one constant price; a price discounted at
the rate that deters best; and the price profile, set by differentiating through training on seeds
that judge nothing. Then other rules beside them, and the terms to propose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verax.audit.evidence import Evidence
from verax.audit.plan import Plan
from verax.audit.record import load
from verax.audit.run import load_sensitivities
from verax.audit.windows import Window, common_window, find_window, lowest
from verax.learning import Task
from verax.mechanism import (
    GrovesLedyard,
    ProfilePrices,
    Rule,
    Sensitivities,
    SpotAudit,
    SquaredDistance,
    SquaredNorm,
    common_profile,
    individual_profile,
    refined_blocks,
)

__all__ = ["SCHEDULES", "Compared", "Judgement", "Priced", "judge"]

Array = NDArray[np.float64]

#: In the order of what they can do.
SCHEDULES = ("constant", "discounted", "profile")


@dataclass(frozen=True, eq=False)
class Priced:
    """One schedule at C = 1 (for the profile: multiplier 1).

    Attributes:
        name: of the schedule.
        prices: per round and client, (T, N).
        rises: ΔP of each deviation, (C, D, S).
        windows: per deviating client, against everything that was tried.
        windows_constant: the same against constant misreports alone, as in the paper.
        honest: what honest clients pay in every round, (T, N).
    """

    name: str
    prices: Array
    rises: Array
    windows: list[Window]
    windows_constant: list[Window]
    honest: Array

    @property
    def common(self) -> tuple[float, float]:
        """Where the clients' windows overlap."""
        return common_window(self.windows)

    @property
    def holds(self) -> bool:
        """Whether some price deters everybody from everything that was tried."""
        low, high = self.common
        return low <= high


@dataclass(frozen=True)
class Compared:
    """One row of the comparison of rules."""

    name: str
    worst_gain: float
    window: str
    honest_payment: float
    mean_loss: float


@dataclass(frozen=True, eq=False)
class Judgement:
    """Everything an audit found."""

    plan: Plan
    task: Task
    evidence: Evidence
    sensitivities: list[Sensitivities]
    profile: ProfilePrices
    shared: ProfilePrices
    discount: float
    schedules: dict[str, Priced]

    @cached_property
    def best(self) -> Priced:
        """The schedule to propose: the profile if it holds, else the one that comes closest."""
        holding = [
            self.schedules[name] for name in reversed(SCHEDULES) if self.schedules[name].holds
        ]
        if holding:
            return holding[0]
        return min(self.schedules.values(), key=lambda s: self.worst(s)[1])

    def worst(self, schedule: Priced) -> tuple[float, float]:
        """(best price, worst gain there in units of the tolerance) over all clients together."""
        return _joint_lowest(self.evidence, schedule.rises)

    @cached_property
    def multiplier(self) -> float:
        """At which price, or multiple of the profile, the proposed schedule is best charged."""
        low, high = self.best.common
        price = self.worst(self.best)[0]
        if self.best.holds:
            wanted = 1.0 if self.best.name == "profile" else price
            return float(np.clip(wanted, low, high))
        return price

    def gains_at(self, schedule: Priced, price: float) -> Array:
        """Mean gain of every deviation at a price, (C, D)."""
        return (self.evidence.gains - price * schedule.rises).mean(axis=2)

    def best_response(self, schedule: Priced, price: float, k: int) -> tuple[str, float]:
        """The k-th deviator's best choice at a price, and what it gains over honesty."""
        gains = self.gains_at(schedule, price)[k]
        d = int(np.argmax(gains))
        return (self.evidence.labels[d], float(gains[d])) if gains[d] > 0 else ("honest", 0.0)

    @cached_property
    def allowances(self) -> Array:
        """κ per block and client that make the expected honest payment zero, (K, N)."""
        blocks = self.profile.blocks
        paid = blocks.sums(self.multiplier * self.best.honest) / blocks.lengths[:, None]
        return paid - paid.mean(axis=1, keepdims=True)

    @cached_property
    def faster(self) -> tuple[float, Array] | None:
        """The step factor that by itself helps everybody by more than ε, and by how much."""
        best: tuple[float, Array] | None = None
        N = self.task.clients
        for deviation, gains in self.evidence.control_gains.items():
            mean = gains.mean(axis=0)
            if np.all(mean > self.evidence.tolerances) and (
                best is None or mean.sum() > best[1].sum()
            ):
                best = ((N - 1 + getattr(deviation, "a", 1.0)) / N, mean)
        return best

    @cached_property
    def rules(self) -> list[Compared]:
        """Other rules on the same runs, each at its best price, and robust aggregators."""
        rows = [
            self._compared(f"squared-norm, {name}", s.rises, s.honest)
            for name, s in self.schedules.items()
        ]
        common = self.shared.per_round
        rows.append(
            self._compared(
                "squared-norm, one profile for all",
                self.evidence.rises(common),
                self.evidence.honest_payments(SquaredNorm(), common),
            )
        )
        if self.evidence.runs[0].gram.shape[2] > 1:  # streamed rounds may lack distances
            rows.append(self._discounted_rule("squared-distance", SquaredDistance()))
            if self.task.clients >= GrovesLedyard.fewest:
                rows.append(self._discounted_rule("groves-ledyard", GrovesLedyard()))
        rows.append(self._discounted_rule("spot-audit", SpotAudit()))
        nothing = np.zeros_like(self.evidence.gains)
        rows.append(self._compared("none", nothing, np.zeros((1, self.task.clients))))
        for name in self.plan.robust:
            other = Evidence(self.plan, self.evidence.runs, name)
            worst = float(np.max(other.gains.mean(axis=2), initial=0.0))
            loss = float(other.honest_losses.mean())
            rows.append(Compared(f"none, {name}", worst, "–", 0.0, loss))
        return rows

    def _discounted_rule(self, name: str, rule: Rule) -> Compared:
        series = self.evidence.series(rule)
        rate = _best_discount(self.evidence, series)
        factors = _factors(rate, self.plan.rounds)
        honest = self.evidence.honest_payments(rule, factors[:, None])
        return self._compared(f"{name}, discounted", series @ factors, honest)

    def _compared(self, name: str, rises: Array, honest: Array) -> Compared:
        gains = self.evidence.gains
        price, _ = _joint_lowest(self.evidence, rises)
        worst = float(np.max((gains - price * rises).mean(axis=2), initial=0.0))
        if worst < 1e-12 * np.max(np.abs(gains), initial=0.0):  # rounding, where gain is price
            worst = 0.0
        windows = _windows(self.evidence, rises, slice(None))
        low, high = common_window(windows)
        text = f"{low:.3g} … {'∞' if np.isinf(high) else f'{high:.3g}'}" if low <= high else "none"
        paid = float(np.max(np.abs(price * honest.sum(axis=0))))
        loss = float(self.evidence.honest_losses.mean())
        return Compared(name, worst, "–" if name == "none" else text, paid, loss)


def judge(plan: Plan, task: Task, folder: Path) -> Judgement:
    """Judge a finished audit from its record alone."""
    evidence = Evidence(plan, load(folder))
    known = load_sensitivities(plan, folder)
    mean = Sensitivities(
        np.mean([s.reward for s in known], axis=0),
        np.mean([s.norms for s in known], axis=0),
        known[0].clients,
    )
    blocks = refined_blocks(plan.rounds, plan.per_halving)
    shared = common_profile(mean, blocks)
    # Where only some could deviate, as in the paper, they and the others are charged alike.
    everybody = len(plan.deviators) == task.clients
    own = individual_profile(mean, blocks) if everybody else shared
    series = evidence.norm_series
    rate = _best_discount(evidence, series)
    T, N = plan.rounds, task.clients
    factors = {"constant": np.ones(T), "discounted": _factors(rate, T)}
    rises = {name: series @ factor for name, factor in factors.items()}
    prices = {name: np.tile(factor[:, None], (1, N)) for name, factor in factors.items()}
    prices["profile"] = own.per_round
    rises["profile"] = evidence.rises(own.per_round)
    schedules = {
        name: Priced(
            name,
            prices[name],
            rises[name],
            _windows(evidence, rises[name], slice(None)),
            _windows(evidence, rises[name], evidence.constant),
            evidence.honest_payments(SquaredNorm(), prices[name]),
        )
        for name in SCHEDULES
    }
    return Judgement(plan, task, evidence, known, own, shared, rate, schedules)


def _windows(evidence: Evidence, rises: Array, which: NDArray[np.bool_] | slice) -> list[Window]:
    labels = list(np.array(evidence.labels)[which])
    return [
        find_window(
            evidence.gains[k][which],
            rises[k][which],
            float(evidence.tolerances[client]),
            labels,
            np.random.default_rng(client),
        )
        for k, client in enumerate(evidence.plan.deviators)
    ]


def _joint_lowest(evidence: Evidence, rises: Array) -> tuple[float, float]:
    """The bottom of the clients' common valley, each in units of its tolerance."""
    unit = evidence.tolerances[list(evidence.plan.deviators)][:, None]
    gain = (evidence.gains.mean(axis=2) / unit).ravel()
    return lowest(gain, (rises.mean(axis=2) / unit).ravel())


def _factors(rate: float, rounds: int) -> Array:
    return (1.0 - rate) ** np.arange(rounds - 1, -1, -1.0)


def _best_discount(evidence: Evidence, series: Array) -> float:
    """The rate r at which C(1−r)^{T−t} leaves the least worst gain; found twice as fine in turn."""
    T = evidence.plan.rounds
    rates = np.minimum(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30]) / T, 0.9)

    def bottom(rate: float) -> float:
        return _joint_lowest(evidence, series @ _factors(rate, T))[1]

    best = float(min(rates, key=bottom))
    width = 0.5 / T
    for _ in range(4):
        around = [max(best + step * width, 0.0) for step in (-1, -0.5, 0, 0.5, 1)]
        best = float(min(around, key=bottom))
        width /= 2
    return best
