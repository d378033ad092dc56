"""What a larger batch would do to the leak by noise: an honest run, and one with a full batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.judgement import Judgement
from verax.audit.judge.noise import FULL_BATCH, LARGER, NOTICEABLE, noise_leaks, signal_shares
from verax.audit.run.subject import Runner, Subject
from verax.learning import Behaviour

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LargerBatchShares:
    """The signal's share of a member's squared norms where everybody's batch is larger.

    Attributes:
        client: the member.
        shares: in each block of rounds, (K,).
    """

    client: int
    shares: Array


def larger_batches(judgement: Judgement, subject: Subject) -> list[LargerBatchShares]:
    """Of all members, with batches `LARGER` times as large; empty where the leak is small.

    Two runs of one seed are enough: squared norms are summed over the rounds of a block. Where
    members train locally, larger batches also mean fewer steps, so that they are not tried.
    """
    if judgement.description.message != "gradient":
        return []
    leaks = noise_leaks(judgement)
    noticeable = any(one.predicted > NOTICEABLE for one in leaks)
    if not noticeable or leaks[0].source != FULL_BATCH.describe(judgement.plan.rounds):
        return []
    plan = judgement.plan.changed(batch=LARGER * judgement.plan.protocol.batch)
    runner, blocks = subject.runner(plan), plan.blocks
    honest = blocks.sums(_norms(runner, plan.seeds.judging[0], Behaviour()))
    found: list[LargerBatchShares] = []
    for one in leaks:
        full = _norms(runner, plan.seeds.judging[0], Behaviour(FULL_BATCH, (one.client,)))
        sent = blocks.sums(full)[:, one.client]
        shares = signal_shares(honest[:, one.client], sent, FULL_BATCH, blocks)
        found.append(LargerBatchShares(one.client, shares))
    return found


def _norms(runner: Runner, seed: int, behaviour: Behaviour) -> Array:
    """All squared norms of a run, (T, N)."""
    return np.asarray(runner.run(seed, [behaviour]).statistics.norms, dtype=np.float64)[0]
