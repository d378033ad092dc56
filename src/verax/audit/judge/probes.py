"""Sensitivities from probes: how reward and measures react when a client scales its messages.

A probe is an ordinary run in which client i multiplies its messages of block k by 1 + h or 1 − h.
Central differences of two probes give, for a rule that measures n_j on client j,

    R_ik = ∂R_i/∂a_ik ≈ (R_i(1 + h) − R_i(1 − h)) / 2h,
    J^{ij}_ks = ∂n_js/∂a_ik ≈ (n_js(1 + h) − n_js(1 − h)) / 2h,

where n_js is the sum of n_j over the rounds of block s. The error of a central difference is of
second order in h, so the choice of h matters little (`docs/theory/profile.md` has measurements).
Nothing has to be differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.payments import measured
from verax.audit.plan import Plan
from verax.audit.run.record import RecordedRun
from verax.audit.run.runs import probes
from verax.game import Reporting
from verax.mechanism import Rule, Sensitivities

Array = NDArray[np.float64]


def sensitivities(
    plan: Plan, runs: Sequence[RecordedRun], rule: Rule, lower_step: str = "lower the step"
) -> list[Sensitivities]:
    """R and J of every setting seed."""
    known = {
        (one.run.seed, one.run.client, one.run.reporting): one
        for one in runs
        if one.run.role == "probe"
    }
    return [_of_seed(plan, known, seed, rule, lower_step) for seed in plan.seeds.setting]


def mean_of(each: Sequence[Sensitivities]) -> Sensitivities:
    """The mean over seeds."""
    return Sensitivities(
        np.mean([one.reward for one in each], axis=0),
        np.mean([one.measures for one in each], axis=0),
        each[0].clients,
    )


def _of_seed(
    plan: Plan,
    known: dict[tuple[int, int, Reporting], RecordedRun],
    seed: int,
    rule: Rule,
    lower_step: str,
) -> Sensitivities:
    clients, K, N = plan.deviators, len(plan.blocks), plan.task.clients
    reward = np.zeros((len(clients), K))
    measures = np.zeros((len(clients), N, K, K))
    tried = probes(plan)
    pairs = list(zip(tried[::2], tried[1::2], strict=True))
    for i, client in enumerate(clients):
        for k, (up, down) in enumerate(pairs):
            plus, minus = known[seed, client, up], known[seed, client, down]
            diverged = plus.diverged or minus.diverged
            if diverged:
                raise ValueError(
                    f"training diverged in round {diverged} of a probe (seed {seed}); "
                    f"{lower_step}, or --probe, now {plan.prices.probe:g}"
                )
            width = up.a - down.a
            rewards = plan.reward(np.stack([plus.loss, minus.loss]))
            reward[i, k] = (rewards[0, client] - rewards[1, client]) / width
            by_block = _by_block(plan, [plus, minus], rule)
            measures[i, :, k, k:] = ((by_block[0] - by_block[1]) / width).T[:, k:]
    return Sensitivities(reward, measures, np.array(clients))


def _by_block(plan: Plan, runs: Sequence[RecordedRun], rule: Rule) -> Array:
    """What the rule measures, summed over the rounds of each block, (runs, K, N).

    Rounds before the branch are the same in both runs and count as zero.
    """
    values, _ = measured(runs, rule)
    whole = np.zeros((len(runs), plan.rounds, plan.task.clients))
    whole[:, runs[0].run.branch :] = values
    return plan.blocks.sums(whole, axis=1)
