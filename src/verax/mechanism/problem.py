"""What the theorems assume about a federation, checked in one place.

Symbols are the paper's: N clients, step γ_t in round t = 1 … T, losses m-strongly convex and
H-smooth, rewards L-Lipschitz, tolerance ε, E‖e_i‖² ≤ σ², heterogeneity ζ and ρ. Three more belong
to the corrected statements: L_q, a Lipschitz constant of q_i(θ) = E‖g_i‖² − mean_{j≠i} E‖g_j‖²,
and, for the sharper influence constant, m_s and H_F (see `influence`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Problem:
    """Constants of a federation; every value is checked on construction.

    Attributes:
        clients: N ≥ 2.
        steps: γ_t > 0, shape (T,).
        strong_convexity: m > 0 of every F_i.
        smoothness: H ≥ m of every per-sample loss.
        lipschitz: L ≥ 0 of the rewards.
        epsilon: ε > 0.
        noise: σ.
        zeta: ζ.
        rho: ρ.
        payment_lipschitz: L_q, or None where it is unknown.
        sample_convexity: m_s, 0 ≤ m_s ≤ m, of every per-sample loss.
        global_smoothness: H_F, m ≤ H_F ≤ H, of F; None: H.
    """

    clients: int
    steps: NDArray[np.float64]
    strong_convexity: float
    smoothness: float
    lipschitz: float
    epsilon: float
    noise: float = 0.0
    zeta: float = 0.0
    rho: float = 0.0
    payment_lipschitz: float | None = None
    sample_convexity: float = 0.0
    global_smoothness: float | None = None

    def __post_init__(self) -> None:
        if self.clients < 2:
            raise ValueError(f"clients is {self.clients}, must be ≥ 2: a payment needs a payee")
        _positive("epsilon", self.epsilon)
        _positive("strong convexity", self.strong_convexity)
        _positive("smoothness", self.smoothness)
        for name, value in (
            ("lipschitz", self.lipschitz),
            ("noise", self.noise),
            ("zeta", self.zeta),
            ("rho", self.rho),
            ("payment lipschitz", self.payment_lipschitz or 0.0),
            ("sample convexity", self.sample_convexity),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value:g}, must be a finite number ≥ 0")
        m, H = self.strong_convexity, self.smoothness
        if m > H:
            raise ValueError(f"strong convexity {m:g} exceeds smoothness {H:g}, must be at most it")
        if self.sample_convexity > m:
            raise ValueError(f"sample convexity {self.sample_convexity:g} exceeds that of F, {m:g}")
        if self.global_smoothness is not None and not m <= self.global_smoothness <= H:
            raise ValueError(
                f"global smoothness {self.global_smoothness:g} is outside {m:g} … {H:g}"
            )
        object.__setattr__(self, "steps", given_steps(self.steps))

    @property
    def rounds(self) -> int:
        """T."""
        return self.steps.size


def constant_steps(step: float, rounds: int) -> NDArray[np.float64]:
    """γ_t = γ for t = 1 … T."""
    _positive("step", step)
    _at_least_one_round(rounds)
    return np.full(rounds, float(step))


def decaying_steps(strong_convexity: float, offset: float, rounds: int) -> NDArray[np.float64]:
    """γ_t = 4/(m(η + t)) for t = 1 … T, the schedule of Theorem 3."""
    _positive("strong convexity", strong_convexity)
    _at_least_one_round(rounds)
    if not (math.isfinite(offset) and offset >= 0):
        raise ValueError(f"offset η is {offset:g}, must be a finite number ≥ 0")
    return 4.0 / (strong_convexity * (offset + np.arange(1.0, rounds + 1.0)))


def decaying_offset(
    strong_convexity: float,
    smoothness: float,
    clients: int,
    noise_growth: float = 0.0,
    *,
    biased: bool = False,
) -> float:
    """η = 4H(2M_V + N)/(mN); with biased messages and M_V > 0, η' = 4H(4M_V + N)/(mN)."""
    factor = 4.0 if biased and noise_growth > 0 else 2.0
    ratio = smoothness / (strong_convexity * clients)
    return 4.0 * ratio * (factor * noise_growth + clients)


def given_steps(steps: ArrayLike) -> NDArray[np.float64]:
    """Any finite γ_t > 0, shape (T,)."""
    array = np.asarray(steps, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"steps are one number per round, got shape {array.shape}")
    _at_least_one_round(array.size)
    bad = ~(np.isfinite(array) & (array > 0))
    if np.any(bad):
        t = int(np.argmax(bad))
        raise ValueError(f"step of round {t + 1} is {array[t]:g}, must be a finite number > 0")
    return array


def _at_least_one_round(rounds: int) -> None:
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}, must be ≥ 1")


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value:g}, must be a finite number > 0")
