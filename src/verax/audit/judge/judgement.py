"""The judgement: which rule and price deter what was tried, at which multiples, at what cost.

The first rule of the plan is the one whose terms are proposed; all rules, and aggregators without
payments, are compared on the same runs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.candidates import (
    KINDS,
    Candidate,
    JudgedRule,
    judge_rule,
    with_spot_checks,
)
from verax.audit.judge.evidence import Evidence
from verax.audit.judge.worth import worth_range
from verax.audit.plan import Plan
from verax.audit.run.record import RecordedRun, load_runs
from verax.audit.run.subject import Description, Subject
from verax.mechanism import SpotAudit

Array = NDArray[np.float64]

#: Expected fines of the spot checks that are compared, as multiples of the profile's price.
FINES = (1.0, 10.0, 30.0)


@dataclass(frozen=True)
class ComparedRule:
    """One row of the comparison: a rule and price, or an aggregator.

    The multiple of the price is chosen on other seeds than those that judge. `worst_gain` is the
    largest gain at the others' expense, `worst_share` the same as a share of the honest reward.
    """

    name: str
    worst_gain: float
    worst_share: float
    window: str
    honest_payment: float
    mean_loss: float


@dataclass(frozen=True, eq=False)
class Judgement:
    """Everything an audit concluded.

    Attributes:
        plan: what was tried.
        subject: on what.
        evidence: the judging runs.
        rules: every rule of the plan that the record allows to judge, in order.
        compared: evidence of the aggregators that are compared.
        band: lowest and highest honest squared norm of any member in each block, (K, 2).
        digest: SHA-256 of the record's two tables.
        versions: of the software that made the record.
    """

    plan: Plan
    subject: Subject
    evidence: Evidence
    rules: list[JudgedRule]
    compared: list[Evidence]
    band: Array
    digest: str
    versions: dict[str, str]

    @cached_property
    def description(self) -> Description:
        """The subject in words."""
        return self.subject.describe(self.plan)

    @property
    def main(self) -> JudgedRule:
        """The rule whose terms are proposed."""
        return self.rules[0]

    @property
    def schedules(self) -> dict[str, Candidate]:
        """The main rule with each kind of price."""
        return self.main.candidates

    @cached_property
    def best(self) -> Candidate:
        """What to propose, on the judging seeds."""
        return self.main.candidates[self.choice.kind]

    @cached_property
    def choice(self) -> Candidate:
        """What to propose, on the seeds that choose it.

        It is the strongest kind of price that holds there, else the closest to holding.
        """
        kinds = [kind for kind in KINDS if kind in self.main.chosen_by]
        for kind in reversed(kinds):
            if self.main.chosen_by[kind].holds:
                return self.main.chosen_by[kind]
        return min((self.main.chosen_by[kind] for kind in kinds), key=lambda c: c.best[1])

    @cached_property
    def multiplier(self) -> float:
        """By what the proposed price is multiplied: 1 for a profile if that lies in its window."""
        low, high = self.choice.common
        wanted = self.choice.best[0]
        if not self.choice.holds:
            return wanted
        return float(np.clip(1.0 if self.choice.kind.endswith("profile") else wanted, low, high))

    @property
    def holds(self) -> bool:
        """Whether the proposed price deters, on the judging seeds, everything that was tried."""
        low, high = self.best.common
        return low <= self.multiplier <= high

    @property
    def worth_range(self) -> tuple[float, float] | None:
        """The true worth over the entered one, as far as the proposed price holds."""
        if not self.holds:
            return None
        evidence, harmful = self.evidence, self.best.harmful(self.multiplier)
        own = evidence.tolerances[list(self.plan.deviators)][:, None]
        above = evidence.gains.mean(axis=2) - own
        return worth_range(above[harmful], self.multiplier * self.best.rises.mean(axis=2)[harmful])

    @cached_property
    def allowances(self) -> Array:
        """κ per block and client that make the expected honest payment zero, (K, N)."""
        blocks = self.plan.blocks
        paid = blocks.sums(self.multiplier * self.best.honest) / blocks.lengths[:, None]
        return paid - paid.mean(axis=1, keepdims=True)

    @cached_property
    def larger_step(self) -> tuple[float, Array] | None:
        """The step factor that by itself helps everybody by more than ε, and each one's gain."""
        best: tuple[float, Array] | None = None
        N = self.plan.task.clients
        for deviation, gains in self.evidence.control_gains.items():
            a, _ = deviation.constant or (1.0, 0.0)
            mean = gains.mean(axis=0)
            if np.all(mean > self.evidence.tolerances) and (
                best is None or mean.sum() > best[1].sum()
            ):
                best = ((N - 1 + a) / N, mean)
        return best

    @cached_property
    def comparison(self) -> list[ComparedRule]:
        """Every rule and price, spot checks, no payment, and robust aggregators."""
        rows = [
            _row(candidate, judged.chosen_by[kind].best[0])
            for judged in self.rules
            for kind, candidate in judged.candidates.items()
        ]
        if "profile" in self.main.candidates and self.evidence.has(SpotAudit()):
            multiple = self.main.chosen_by["profile"].best[0]
            checked = with_spot_checks(self.main.candidates["profile"], FINES)
            rows += [_row(candidate, multiple) for candidate in checked]
        rows.append(self._without_payment("no payment", self.evidence))
        for other in self.compared:
            rows.append(self._without_payment(f"no payment, {other.aggregator}", other))
        return rows

    @cached_property
    def recommended(self) -> ComparedRule | None:
        """A rule and price that leaves less than the proposed one, chosen on the choosing seeds.

        Spot checks are not among them: they need recomputed updates.
        """
        chosen = [
            (own.best[1], judged, kind)
            for judged in self.rules
            for kind, own in judged.chosen_by.items()
            if judged.rule.reads != "misreport"
        ]
        worst, judged, kind = min(chosen, key=lambda one: one[0])
        if worst >= 0.9 * self.choice.best[1] or self.choice.holds:
            return None
        return _row(judged.candidates[kind], judged.chosen_by[kind].best[0])

    @staticmethod
    def _without_payment(name: str, evidence: Evidence) -> ComparedRule:
        harmful = evidence.others_rises.mean(axis=2) < -evidence.others_tolerances[:, None]
        gain, share = _worst(evidence, evidence.gains.mean(axis=2), harmful)
        return ComparedRule(name, gain, share, "–", 0.0, float(evidence.honest_losses.mean()))


def judge(plan: Plan, subject: Subject, folder: Path) -> Judgement:
    """Judge a finished audit from its record alone."""
    runs = load_runs(folder)
    advice = subject.describe(plan).lower_step
    evidence = Evidence(plan, runs, plan.seeds.judging, advice)
    if not evidence.deviations:
        raise ValueError(f"every misreport that was tried diverged; {advice}")
    choosing = Evidence(plan, runs, plan.seeds.choosing, advice)
    rules = [
        judge_rule(rule, choosing, evidence, runs)
        for rule in plan.rules
        if rule.fewest <= plan.task.clients and evidence.has(rule)
    ]
    if not rules:
        raise ValueError(
            f"no rule can be judged: {plan.rules[0].name} reads {plan.rules[0].reads}, which were "
            "not recorded (--distances records distances), or needs more clients"
        )
    compared = [
        Evidence(plan, runs, plan.seeds.judging, advice, name) for name in plan.prices.robust
    ]
    digest = hashlib.sha256()
    for table in ("runs.parquet", "rounds.parquet"):
        digest.update((folder / table).read_bytes())
    versions = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    band = _band(plan, [one for one in runs if one.run.role == "honest" and not one.run.aggregator])
    return Judgement(plan, subject, evidence, rules, compared, band, digest.hexdigest(), versions)


def _band(plan: Plan, honest: list[RecordedRun]) -> Array:
    """Lowest and highest squared norm of those who took part in each block, (K, 2)."""
    norms = np.stack([np.asarray(one.statistics.norms) for one in honest])  # (seeds, T, N)
    present = np.stack([one.present for one in honest])
    rows: list[tuple[float, float]] = []
    for first, last in plan.blocks.ranges:
        block = slice(first - 1, last)
        own = norms[:, block][present[:, block]]
        rows.append((float(np.min(own, initial=np.inf)), float(np.max(own, initial=0.0))))
    return np.array([(min(low, high), high) for low, high in rows])


def _row(candidate: Candidate, price: float) -> ComparedRule:
    evidence = candidate.evidence
    gain, share = _worst(evidence, candidate.gains_at(price), candidate.harmful(price))
    low, high = candidate.common
    end = "∞" if high > 1e9 else f"{high:.3g}"  # beyond that, rounding
    window = f"{low:.3g} … {end}" if low <= high else "none"
    paid = float(np.max(np.abs(price * candidate.honest.sum(axis=0))))
    loss = float(evidence.honest_losses.mean())
    return ComparedRule(candidate.name, gain, share, window, paid, loss)


def _worst(evidence: Evidence, gains: Array, harmful: NDArray[np.bool_]) -> tuple[float, float]:
    """The largest harmful gain, in money and as a share of the honest reward; 0 for rounding."""
    sizes = evidence.reward_sizes[list(evidence.plan.deviators)][:, None]
    shares = np.where(harmful, gains / sizes, 0.0)
    k, d = np.unravel_index(int(np.argmax(shares)), shares.shape)
    share = float(shares[k, d])
    return (float(gains[k, d]), share) if share > 1e-9 else (0.0, 0.0)
