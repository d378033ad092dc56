r"""Spot checks in a live federation: what is drawn after a run, and what is fined.

An auditor whom the terms name recomputes, for every member i, k rounds τ_1 … τ_k that were drawn
with replacement after the last message, with probability P_i(t) = C_{i,t} / W_i, W_i = Σ_t C_{i,t}.
The price is the influence of a round: the audit's probes, or γ_t A_t, set it. The member's levy is

    f_i = (c W_i / k) Σ_j w_{τ_j}² ‖m_{τ_j} − g_{τ_j}‖²,
    E f_i = c Σ_t C_{i,t} w_t² ‖m_t − g_t‖²,

where
    c is `fine`, the expected fine as a multiple of the price,
    w_t is how much the update counted (`verax.mechanism.weights`),
    m_t is what the member sent, and g_t the recomputed update.

A distance of at most ε ‖g_t‖, where ε is the error of recomputation that the terms allow, counts as
zero: an honest member pays nothing on any path. The others receive the levy in equal parts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from itertools import accumulate
from typing import Literal

import numpy as np

from verax.mechanism.changes import PUBLIC_KEY
from verax.mechanism.price import Array

#: How a check ended: with recomputed rounds; because the member refused or could not; because its
#: data or its app are not those that it committed to; because what it sent is not documented.
Outcome = Literal["checked", "refused", "mismatch", "missing"]

_MAX_ROUNDS = 1000


@dataclass(frozen=True)
class SpotChecks:
    """The section `[spot]` of the terms.

    Attributes:
        auditor: the public key (C2SP: name+id+key) that reports must be signed with.
        fine: c, the expected fine as a multiple of the price on ‖m − g‖².
        rounds: k, how many rounds of each member are drawn after a run.
        tolerance: ε, the relative error of a recomputed update that costs nothing.
        refused: what a member pays that refuses a check or cannot be checked.
        mismatch: what it pays if its data or its app are not those that it committed to.
        missing: what it pays if it made no commitment, or has no signed statement or no copy of
            what it sent in a drawn round.
    """

    auditor: str
    fine: float
    rounds: int = 1
    tolerance: float = 0.0
    refused: float = 0.0
    mismatch: float = 0.0
    missing: float = 0.0

    def __post_init__(self) -> None:
        if not PUBLIC_KEY.fullmatch(self.auditor):
            raise ValueError(
                f"spot.auditor is {self.auditor!r}, must be name+id+key, as "
                "`verax ledger key --name` prints it"
            )
        if not 1 <= self.rounds <= _MAX_ROUNDS:
            raise ValueError(f"spot.rounds is {self.rounds}, must be 1 … {_MAX_ROUNDS}")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"spot.tolerance is {self.tolerance:g}, must be ≥ 0 and less than 1")
        for name in ("fine", "refused", "mismatch", "missing"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"spot.{name} is {value:g}, must be a finite number ≥ 0")

    def levy(self, outcome: Outcome, total: float, measured: Sequence[Measured]) -> float:
        """f_i of one member.

        Args:
            outcome: how its check ended; unless it is `checked`, its fee is the levy.
            total: W_i, the sum of its prices over the rounds that could be drawn.
            measured: what was recomputed, once for each draw.
        """
        if outcome != "checked":
            return float(getattr(self, outcome))
        return self.fine * total / self.rounds * math.fsum(map(self._counted, measured))

    def _counted(self, one: Measured) -> float:
        small = one.distance <= self.tolerance**2 * one.norm
        return 0.0 if small else one.weight**2 * one.distance


@dataclass(frozen=True)
class Measured:
    """What was found in a drawn round.

    Attributes:
        weight: w_t, by how much the update counted.
        distance: ‖m − g‖².
        norm: ‖g‖².
    """

    weight: float
    distance: float
    norm: float


def shared(levy: float, payer: int, members: int) -> Array:
    """Payments that sum to zero: one member pays, and the others receive equal parts."""
    payments = np.full(members, -levy / max(members - 1, 1))
    payments[payer] = levy if members > 1 else 0.0
    return payments + 0.0


def draw_rounds(seed: str, account: int, influence: Sequence[float], count: int) -> list[int]:
    r"""The positions 0 … T − 1 of the rounds that are drawn for a member, with replacement.

    The k-th draw is the first position whose cumulative influence exceeds u_k Σ influence, with
    u_k = SHA-256("verax/draw/v1\n{seed}\n{account}\n{k}\n") / 2²⁵⁶, in exact arithmetic: anybody
    who knows the seed gets the same rounds.

    Args:
        seed: the public randomness.
        account: the member's number in the book.
        influence: numbers ≥ 0 to which the probabilities are proportional; all zero: nothing is
            drawn.
        count: how many rounds.

    Example:
        >>> draw_rounds("a public value", 1, [0.0, 1.0, 3.0], 4)
        [2, 2, 2, 2]
    """
    cumulative = list(accumulate(map(Fraction, influence)))
    if not cumulative or not cumulative[-1]:
        return []
    drawn: list[int] = []
    for k in range(count):
        digest = sha256(f"verax/draw/v1\n{seed}\n{account}\n{k}\n".encode()).digest()
        point = Fraction(int.from_bytes(digest, "big"), 2**256) * cumulative[-1]
        drawn.append(bisect_right(cumulative, point))
    return drawn
