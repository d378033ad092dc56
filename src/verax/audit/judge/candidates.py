"""Candidates: a rule with a price over the rounds, judged on the recorded runs.

For every rule of the plan the same kinds of price are tried: one constant price; a price discounted
at the rate that deters best; a profile with a price per block of rounds and client; and one common
profile for all clients. Profiles are set by probes; the discount rate, the kind of price and its
multiple are chosen on other seeds; what was chosen is judged on further ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.evidence import Evidence
from verax.audit.judge.payments import RulePayments
from verax.audit.judge.probes import mean_of, sensitivities
from verax.audit.judge.windows import Window, best_price, common_window, find_window
from verax.audit.run.record import RecordedRun
from verax.mechanism import (
    Price,
    ProfilePrices,
    Rule,
    Sensitivities,
    SpotAudit,
    common_profile,
    individual_profile,
)

Array = NDArray[np.float64]

#: The kinds of price, in the order of what they can do.
KINDS = ("constant", "discounted", "common profile", "profile")

#: The largest discount rate that is tried; at 1 all prices before the last round would be zero.
_STEEPEST = 0.9


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rule with a price, whose multiples are judged.

    Attributes:
        rule: what is measured.
        kind: constant, discounted, profile or common profile.
        price: over the rounds, at multiple 1. That of a constant price is 1, so that its multiples
            are C itself.
        rises: what each deviation pays more at multiple 1, (C, D, S).
        honest: what honest clients pay in every round at multiple 1, (T, N).
        evidence: the runs.
    """

    rule: Rule
    kind: str
    price: Price
    rises: Array
    honest: Array
    evidence: Evidence

    @property
    def name(self) -> str:
        """The rule and the kind of its price."""
        return f"{self.rule.name}, {self.kind}"

    @cached_property
    def windows(self) -> list[Window]:
        """Per deviating client, against everything that was tried."""
        return self._windows(np.ones(len(self.evidence.deviations), dtype=np.bool_))

    @cached_property
    def windows_constant(self) -> list[Window]:
        """Per deviating client, against constant misreports alone, as in the paper."""
        return self._windows(self.evidence.constant)

    @property
    def common(self) -> tuple[float, float]:
        """Where the clients' windows overlap."""
        return common_window(self.windows)

    @property
    def holds(self) -> bool:
        """Whether some multiple deters everybody from everything that was tried."""
        low, high = self.common
        return low <= high

    @cached_property
    def best(self) -> tuple[float, float]:
        """(Best multiple, worst gain there in tolerances) over all clients together."""
        return joint_best(self.evidence, self.rises)

    def gains_at(self, multiple: float) -> Array:
        """Mean gain of every deviation at a multiple, (C, D)."""
        return (self.evidence.gains - multiple * self.rises).mean(axis=2)

    def others_gains(self, multiple: float) -> Array:
        """What the others gain together: their rewards, and what they receive, (C, D, S)."""
        return self.evidence.others_rises + multiple * self.rises

    def harmful(self, multiple: float) -> NDArray[np.bool_]:
        """Which deviations cost the others more than their tolerance, (C, D)."""
        limit = -self.evidence.others_tolerances[:, None]
        return self.others_gains(multiple).mean(axis=2) < limit

    def best_response(self, multiple: float, k: int, *, harmful: bool) -> tuple[str, float]:
        """The k-th deviator's best choice at a multiple, and what it gains over honesty.

        Args:
            multiple: of the price.
            k: the deviator.
            harmful: whether to choose among what costs the others, or among everything else.
        """
        gains = np.where(self.harmful(multiple)[k] == harmful, self.gains_at(multiple)[k], -np.inf)
        d = int(np.argmax(gains))
        return (self.evidence.labels[d], float(gains[d])) if gains[d] > 0 else ("honest", 0.0)

    def _windows(self, which: NDArray[np.bool_]) -> list[Window]:
        evidence = self.evidence
        labels = list(np.array(evidence.labels)[which])
        return [
            find_window(
                evidence.contested_gains[k][which],
                self.rises[k][which],
                float(evidence.tolerances[client]),
                labels,
                np.random.default_rng(client),
                currency=evidence.plan.prices.currency,
            )
            for k, client in enumerate(evidence.plan.deviators)
        ]


@dataclass(frozen=True, eq=False)
class JudgedRule:
    """All candidates of one rule, and what set their prices.

    Attributes:
        rule: the rule.
        chosen_by: candidates by kind of price, on the seeds that choose among them.
        candidates: the same on the seeds that judge.
        discount: the rate that deters best.
        sensitivities: of every setting seed.
        profile: the prices from their mean, per client where every client deviates.
        common: one price per block for all.
    """

    rule: Rule
    chosen_by: dict[str, Candidate]
    candidates: dict[str, Candidate]
    discount: float
    sensitivities: list[Sensitivities]
    profile: ProfilePrices
    common: ProfilePrices


def judge_rule(
    rule: Rule, choosing: Evidence, judging: Evidence, runs: Sequence[RecordedRun]
) -> JudgedRule:
    """Judge a rule with every kind of price."""
    plan = choosing.plan
    each = sensitivities(plan, runs, rule, choosing.lower_step)
    mean = mean_of(each)
    common = common_profile(mean, plan.blocks)
    # Where only some clients can deviate, as in the paper, all are charged alike.
    everybody = len(plan.deviators) == plan.task.clients
    floor = plan.prices.floor
    profile = individual_profile(mean, plan.blocks, floor) if everybody else common
    on_choosing, on_judging = RulePayments(rule, choosing), RulePayments(rule, judging)
    rate = _best_discount(choosing, on_choosing.rises())
    prices = {
        "constant": Price.constant(1.0, plan.rounds),
        "discounted": Price.discounted(1.0, rate, plan.rounds),
    }
    # A rule that charges averages is refused where it leaves a block without a price: what it
    # would deter later, a member could undo there for free.
    refused = rule.reads == "smoothed" and not np.all(np.any(profile.prices > 0, axis=1))
    if everybody and np.any(common.prices > 0) and not refused:
        prices["common profile"] = common.price
    if np.any(profile.prices > 0) and not refused:
        prices["profile"] = profile.price
    chosen_by = {kind: _candidate(on_choosing, kind, price) for kind, price in prices.items()}
    candidates = {kind: _candidate(on_judging, kind, price) for kind, price in prices.items()}
    return JudgedRule(rule, chosen_by, candidates, rate, each, profile, common)


def _candidate(payments: RulePayments, kind: str, price: Price) -> Candidate:
    per_round = price.per_round()
    rises = payments.rises(per_round).sum(axis=-1)
    honest = payments.honest(per_round)
    rises += _lost_allowances(payments.evidence, honest)
    return Candidate(payments.rule, kind, price, rises, honest, payments.evidence)


def _lost_allowances(evidence: Evidence, honest: Array) -> Array:
    """What absent members lose of their allowances, (C, D, 1).

    An allowance is what an honest member is expected to pay in a round; whoever is absent neither
    pays nor receives it.
    """
    plan = evidence.plan
    absent = np.stack([one.absences(plan.rounds) for one in evidence.deviations])  # (D, T)
    by_block = plan.blocks.sums(honest) / plan.blocks.lengths[:, None]
    allowances = np.repeat(by_block, plan.blocks.lengths, axis=0)[:, list(plan.deviators)]
    return (absent @ allowances).T[:, :, None]


def with_spot_checks(profile: Candidate, fines: Sequence[float]) -> list[Candidate]:
    """A profile together with spot checks, and spot checks alone, at expected fines.

    A spot check recomputes a drawn round. A fine is a multiple of the profile's price on ‖m − g‖²,
    the squared distance of the message from the true update, in expectation over draws.
    """
    checks = RulePayments(SpotAudit(), profile.evidence)
    rises = checks.rises(profile.price.per_round()).sum(axis=-1)
    nothing = np.zeros_like(profile.honest)  # who sends its true update pays no fine
    together = [
        replace(
            profile,
            kind=f"{profile.kind} and spot checks, fine {fine:g}",
            rises=profile.rises + fine * rises,
        )
        for fine in fines
    ]
    alone = [
        replace(
            profile, rule=SpotAudit(), kind=f"fine {fine:g}", rises=fine * rises, honest=nothing
        )
        for fine in fines
    ]
    return together + alone


def joint_best(evidence: Evidence, rises: Array) -> tuple[float, float]:
    """The multiple at which the worst gain at the others' expense, in tolerances, is least."""
    unit = evidence.tolerances[list(evidence.plan.deviators)][:, None]
    gains = (evidence.contested_gains.mean(axis=2) / unit).ravel()
    return best_price(gains, (rises.mean(axis=2) / unit).ravel())


def _best_discount(evidence: Evidence, series: Array) -> float:
    """The rate r at which C(1−r)^{T−t} leaves the least worst gain.

    A grid of rates is searched first; then four steps around the best one, each twice as fine.
    """
    T = evidence.plan.rounds
    grid = np.minimum(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30]) / T, _STEEPEST)

    def worst_gain(rate: float) -> float:
        factors = Price.discounted(1.0, rate, T).per_round()[:, 0]
        return joint_best(evidence, series @ factors)[1]

    best = float(min(grid, key=worst_gain))
    width = 0.5 / T
    for _ in range(4):
        neighbours = np.clip(best + width * np.array([-1, -0.5, 0, 0.5, 1]), 0.0, _STEEPEST)
        best = float(min(neighbours, key=worst_gain))
        width /= 2
    return best
