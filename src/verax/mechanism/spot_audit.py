"""The spot audit: one recomputed update per client and run, fined by its distance from the truth.

Members commit to data and batch seeds beforehand; after the last message public randomness draws
one round τ_i per client with P(t) = γ_t A_t / W, W = Σ_t γ_t A_t, A_t = Π_{l>t} κ_l. The fine is
f_i = (c v W / 2N) ‖m_τ − g_τ‖², and p_i = f_i − mean_{j≠i} f_j.

Every deviation gains at most v L² W / (2 c N) in expectation, where L bounds ‖∇R_i‖ in units of
v; honest members pay nothing, on every path, and no future payment can be moved. It verifies the
computation, not the data. The *expected* payment of round t is that of a rule with the price
c v γ_t A_t / 2N on ‖m_t − g_t‖² (`schedule.spot_audit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.mechanism.rule import Payments, pay
from verax.mechanism.statistics import Array, Mask, Statistic, Statistics


@dataclass(frozen=True)
class SpotAudit:
    """n_i = ‖m_i − g_i‖², the distance of the message from the recomputed update."""

    name: ClassVar[str] = "spot-audit"
    reads: ClassVar[Statistic] = "misreport"
    fewest: ClassVar[int] = 2

    def measure(self, statistics: Statistics[Array], present: Mask) -> Array:
        """The distances themselves."""
        assert statistics.misreport is not None
        return statistics.misreport


@dataclass(frozen=True, eq=False)
class Drawn:
    """The outcome of one draw: which round of each client was recomputed, and what is paid."""

    rounds: NDArray[np.intp]
    payments: Payments


def round_odds(steps: ArrayLike, influence: ArrayLike) -> tuple[Array, float]:
    """P(t) = γ_t A_t / W and W = Σ_t γ_t A_t, for steps γ_t and influences A_t, shape (T,)."""
    weights = np.asarray(steps, dtype=np.float64) * np.asarray(influence, dtype=np.float64)
    if weights.ndim != 1 or not weights.size or not np.all(np.isfinite(weights)):
        raise ValueError(f"steps and influences are T finite numbers each, got {weights.shape}")
    total = float(np.sum(weights))
    if np.any(weights < 0) or total <= 0:
        raise ValueError("steps and influences must be ≥ 0 and not all zero")
    return weights / total, total


def draw(
    misreports: ArrayLike,
    odds: ArrayLike,
    price: ArrayLike,
    rng: np.random.Generator,
) -> Drawn:
    """Draw a round per client and fine it.

    Args:
        misreports: ‖m_t^i − g_t^i‖², shape (T, N); only the drawn entries are looked at.
        odds: P(t), shape (T,).
        price: c v W / 2N, a number or one per client.
        rng: the public randomness.
    """
    distances = np.asarray(misreports, dtype=np.float64)
    chances = np.asarray(odds, dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != chances.size:
        raise ValueError(
            f"misreports are rounds × clients for {chances.size} rounds, got {distances.shape}"
        )
    clients = distances.shape[1]
    rounds = rng.choice(chances.size, size=clients, p=chances).astype(np.intp)
    drawn = Statistics(misreport=distances[rounds, np.arange(clients)])
    return Drawn(rounds, pay(SpotAudit(), drawn, price))


def spot_audit_gain(
    value: float, lipschitz: float, weight: float, strictness: float, clients: int
) -> float:
    """The most that any deviation gains in expectation: v L² W / (2 c N)."""
    return value * lipschitz**2 * weight / (2 * strictness * clients)
