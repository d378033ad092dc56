"""Prices that theorems give, one per round.

- `paper`: √(2𝒞_t) γ_t L/(Nε) with 𝒞_t = Π_{l>t} c_l, Theorem 1 as printed;
- `sharp`: γ_t Λ_{t+1}/(2Nε) with Λ_{t+1} = L Π_{l>t} κ_l, where T = 1 or L_q = 0;
- `repaired`: the same with Λ_t = (κ_t + γ_t L_q/(2Nε)) Λ_{t+1}, for strongly convex losses;
- `groves_ledyard`: (vγ_t/2N) Π_{l>t}(1 − γ_l h), for that rule and a common Hessian;
- `spot_audit`: c v γ_t A_t/(2N), the expected payments of that rule.

They can pass 10^308, so they are computed as logarithms and say where they overflow. Prices to
charge by are a `Price`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.mechanism.influence import contraction, log_remaining, printed_log_growth
from verax.mechanism.problem import Problem, given_steps

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Prices of a run.

    Attributes:
        name: the schedule's name.
        prices: C_t ≥ 0, shape (T,) or (T, N); `inf` where float64 overflows.
        log10: log10 C_t, finite also where `prices` overflow.
        statement: what the prices are, in words.
        assumes: what must hold for them to mean that.
    """

    name: str
    prices: Array
    log10: Array
    statement: str
    assumes: tuple[str, ...] = ()

    @property
    def overflow(self) -> bool:
        """Whether a price is too large for float64."""
        return not bool(np.all(np.isfinite(self.prices)))


def paper(problem: Problem) -> Schedule:
    """Theorem 1 as printed: C_t = √(2𝒞_t) γ_t L/(Nε)."""
    log = (
        0.5 * np.log(2.0)
        + log_remaining(printed_log_growth(problem))
        + np.log(problem.steps)
        + _log(problem.lipschitz / (problem.clients * problem.epsilon))
    )
    return _from_log(
        "paper",
        log,
        "Theorem 1 as printed; its proof leaves out that a deviation changes later payments",
        ("every F_i m-strongly convex and H-smooth", "messages a·g + bξ with a ≥ 1"),
    )


def sharp(problem: Problem) -> Schedule:
    """The least price that the influence bound supports, where later payments cannot matter."""
    if problem.rounds > 1 and problem.payment_lipschitz != 0:
        known = problem.payment_lipschitz
        raise ValueError(
            f"the sharp schedule needs T = 1 or L_q = 0, here T = {problem.rounds} and L_q is "
            f"{'unknown' if known is None else f'{known:g}'}: a deviation would also change later "
            "payments, which it does not cover; use the repaired schedule"
        )
    return _from_log(
        "sharp",
        _log_price(problem, log_lambda(problem, payment_lipschitz=0.0)),
        "price at the sharp influence constant κ",
        ("every F_i m-strongly convex", "later payments do not move: T = 1 or L_q = 0", "a ≥ 1"),
    )


def repaired(problem: Problem) -> Schedule:
    """Theorem 1 with later payments counted: backwards from Λ_{T+1} = L."""
    if problem.payment_lipschitz is None:
        raise ValueError(
            "the repaired schedule needs L_q, a Lipschitz constant of E‖g_i‖² − mean E‖g_j‖²; "
            "`heterogeneity` estimates it"
        )
    return _from_log(
        "repaired",
        _log_price(problem, log_lambda(problem, problem.payment_lipschitz)),
        "price that also covers what a deviation changes in later payments (a worst case)",
        ("every F_i m-strongly convex", "q_i L_q-Lipschitz on a bounded convex set", "a ≥ 1"),
    )


def log_lambda(problem: Problem, payment_lipschitz: float) -> Array:
    """Log Λ_{t+1} for t = 1 … T, where Λ_t = (κ_t + γ_t L_q/(2Nε)) Λ_{t+1} and Λ_{T+1} = L."""
    feedback = problem.steps * payment_lipschitz / (2 * problem.clients * problem.epsilon)
    with np.errstate(divide="ignore"):
        growth = np.log(contraction(problem) + feedback)
    return log_remaining(growth) + _log(problem.lipschitz)


def stable_epsilon(problem: Problem) -> float:
    """The ε above which the repaired prices stay bounded for every horizon.

    max_t γ_t L_q/(2N(1 − κ_t)), which is L_q/(2Nm) for κ = 1 − γm; `inf` where κ_t ≥ 1.
    """
    if problem.payment_lipschitz is None:
        raise ValueError("the stability threshold needs L_q")
    contracted = 1 - contraction(problem)
    if np.any(contracted <= 0):
        return np.inf
    smallest = problem.steps * problem.payment_lipschitz / (2 * problem.clients * contracted)
    return float(np.max(smallest))


def groves_ledyard(value: float, steps: ArrayLike, curvature: float, clients: int) -> Schedule:
    """C_t = (vγ_t/2N) Π_{l>t}(1 − γ_l h), the price of the `GrovesLedyard` rule."""
    gamma = given_steps(steps)
    shrink = 1 - gamma * curvature
    if np.any(shrink < 0):
        raise ValueError(
            f"step × curvature is {np.max(gamma) * curvature:g}, must be ≤ 1: lower the step"
        )
    with np.errstate(divide="ignore"):
        log = log_remaining(np.log(shrink)) + np.log(gamma) + _log(value / (2 * clients))
    return _from_log(
        "groves-ledyard",
        log,
        "the price at which honesty is best under one common, known Hessian",
        ("all F_i have the same Hessian", "exact gradients", "a unit of loss is worth v to all"),
    )


def spot_audit(
    strictness: float, value: float, steps: ArrayLike, influence: ArrayLike, clients: int
) -> Schedule:
    """C_t = c v γ_t A_t/(2N): what round t contributes to the expected fine."""
    weights = given_steps(steps) * np.asarray(influence, dtype=np.float64)
    return _from_prices(
        "spot-audit",
        strictness * value * weights / (2 * clients),
        "the expected fine of a round, per squared distance from the true update",
        ("one committed update per client and run can be recomputed",),
    )


def _log_price(problem: Problem, log_lambdas: Array) -> Array:
    return np.log(problem.steps) + log_lambdas - np.log(2 * problem.clients * problem.epsilon)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else -np.inf


def _from_prices(
    name: str, prices: Array, statement: str, assumes: tuple[str, ...] = ()
) -> Schedule:
    with np.errstate(divide="ignore"):
        return Schedule(name, prices, np.log10(prices), statement, assumes)


def _from_log(name: str, log: Array, statement: str, assumes: tuple[str, ...]) -> Schedule:
    with np.errstate(over="ignore"):
        return Schedule(name, np.exp(log), log / np.log(10.0), statement, assumes)
