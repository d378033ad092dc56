"""Second-order behaviour at the proposed price: is honesty a maximum in every block of rounds?

Prices make honesty stationary, which is a statement about small changes of scale. Misreports that
scale one block alone by 0 and by 2 are probes with h = 1. Their second difference

    U(2) − 2 U(1) + U(0)

is negative where a member loses by moving away from honesty in either direction. Together with the
reversed scales of the same block it shows whether a stationary price is also a deterring one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.judgement import Judgement
from verax.game import Stretch

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BlockResponse:
    """How one member's utility responds to its scale in one block of rounds.

    Attributes:
        client: the member.
        first: round of the block.
        last: round of the block.
        second_difference: U(2) − 2 U(1) + U(0) on each judging seed, as shares of the honest
            reward, (S,).
        scale: the scale of those tried in this block alone that gains most.
        gain: what it gains on each judging seed, as shares of the honest reward, (S,).
    """

    client: int
    first: int
    last: int
    second_difference: Array
    scale: float
    gain: Array


def block_responses(judgement: Judgement) -> list[BlockResponse]:
    """Of every deviating member and block in which scales 0 and 2 were tried."""
    plan, evidence = judgement.plan, judgement.evidence
    gains = evidence.gains - judgement.multiplier * judgement.best.rises  # (C, D, S)
    rows: list[BlockResponse] = []
    for first, last in plan.blocks.ranges:
        tried = {
            one.a: d
            for d, one in enumerate(evidence.deviations)
            if isinstance(one, Stretch) and (one.first, one.last) == (first, last)
        }
        if not {0.0, 2.0} <= set(tried):
            continue
        for k, client in enumerate(plan.deviators):
            own = {a: gains[k, d] / evidence.reward_sizes[client] for a, d in tried.items()}
            scale = max(own, key=lambda a: float(own[a].mean()))
            rows.append(BlockResponse(client, first, last, own[2.0] + own[0.0], scale, own[scale]))
    return rows
