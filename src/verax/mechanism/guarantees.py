"""What the schedules guarantee: Theorems 1 to 3 as printed, and as they hold.

With G = Σ γ_t √𝒞_t (printed constants) and Λ_t (repaired prices):

1. truthfulness: no client gains more than the *slack* by leaving honesty.
   printed √2 L G ε/N;  repaired Σ γ_t Λ_{t+1} ε/(2N).
2. payments: E p_i of a client that keeps to its best response is at most
   (√2 L G/(Nε)) [2ε² + 2εσ + 2ζ² + ρ²] + (√8 L/N) Σ γ_t √𝒞_t E‖∇F_i(θ_t)‖.
   The printed bound lacks the 1/ε of the first term. With repaired prices
   (Σ γ_t Λ_{t+1}/(2Nε)) […] + (1/N) Σ γ_t Λ_{t+1} E‖∇F_i(θ_t)‖.
3. convergence with γ_t = 4/(m(η + t)): E F(θ_T) − F* is at most
   max{16H(2ε² + M + M_V ζ²)/(3Nm²), (η + 1)(F(θ_1) − F*)}/(η + T).
   The printed bound forgets that misreports have a bias ε_b ≤ ε; correct for M_V = 0 is
   ε_b²/(2m) plus the same with F(θ_1) − F* − ε_b²/(2m); for M_V > 0 it is
   ε_b²/m + max{16H(2ε² + M + M_V ζ²)/(Nm²), (η' + 1)(F(θ_1) − F* − ε_b²/m)}/(η' + T).

Median aggregation and FedAvg have no theory; only an audit speaks for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.mechanism.influence import log_remaining, printed_log_growth
from verax.mechanism.problem import Problem, decaying_offset
from verax.mechanism.schedule import log_lambda

Array = NDArray[np.float64]

_PROOF_GAP = "not a valid bound: it ignores that a deviation changes later payments"
_NO_EPSILON = "not a valid bound: it lacks a factor 1/ε"
_NO_BIAS = "not a valid bound: it ignores the bias of misreports"
_CONVEX = "every F_i m-strongly convex and H-smooth"
_HONEST_RANGE = "messages a·g + bξ with a ≥ 1"
_BOUNDED = "q_i is L_q-Lipschitz on a bounded convex set that holds the run"


@dataclass(frozen=True)
class Guarantee:
    """One number with the statement it belongs to.

    Attributes:
        name: which statement.
        value: the bound; `inf` where float64 overflows.
        log10: its logarithm, finite also then (−inf for zero).
        statement: what it bounds, and if it is wrong as printed, that it is.
        assumes: what must hold.
        valid: False for statements kept only to compare with the paper.
    """

    name: str
    value: float
    log10: float
    statement: str
    assumes: tuple[str, ...]
    valid: bool

    @property
    def overflow(self) -> bool:
        """Whether the bound passes what float64 can hold."""
        return math.isinf(self.value)

    def vacuous(self, ceiling: float) -> bool:
        """Whether the bound says no more than what is known without it."""
        return self.value >= ceiling


def truthfulness_printed(problem: Problem) -> Guarantee:
    """Theorem 1 as printed: slack √2 L G ε/N."""
    log = _log_printed_sum(problem) + _logs(
        math.sqrt(2), problem.lipschitz, problem.epsilon, 1 / problem.clients
    )
    return _guarantee(
        "truthfulness_printed",
        log,
        f"most a client can gain by misreporting; {_PROOF_GAP}",
        (_CONVEX, _HONEST_RANGE),
        valid=problem.rounds == 1,
    )


def truthfulness_repaired(problem: Problem) -> Guarantee:
    """Theorem 1 with later payments counted: slack Σ γ_t Λ_{t+1} ε/(2N)."""
    log = _log_repaired_sum(problem) + _logs(problem.epsilon / (2 * problem.clients))
    return _guarantee(
        "truthfulness_repaired",
        log,
        "most a client can gain by misreporting at the repaired prices",
        (_CONVEX, _HONEST_RANGE, _BOUNDED),
    )


def payments_printed(problem: Problem, gradient_norms: ArrayLike) -> Guarantee:
    """Theorem 2 as printed, E‖∇F_i(θ_t)‖ given per round or as one bound."""
    first = _log_printed_sum(problem) + _logs(
        math.sqrt(2), problem.lipschitz, 1 / problem.clients, _bracket(problem)
    )
    return _guarantee(
        "payments_printed",
        _add(first, _log_printed_gradient_term(problem, gradient_norms)),
        f"most a client pays in expectation; {_NO_EPSILON}",
        (_CONVEX, _HONEST_RANGE),
        valid=problem.epsilon >= 1,
    )


def payments_corrected(problem: Problem, gradient_norms: ArrayLike) -> Guarantee:
    """Theorem 2 with its 1/ε, for the printed prices."""
    first = _log_printed_sum(problem) + _logs(
        math.sqrt(2), problem.lipschitz, 1 / problem.clients, _bracket(problem) / problem.epsilon
    )
    return _guarantee(
        "payments_corrected",
        _add(first, _log_printed_gradient_term(problem, gradient_norms)),
        "most a client pays in expectation at the printed prices",
        (_CONVEX, _HONEST_RANGE),
    )


def payments_repaired(problem: Problem, gradient_norms: ArrayLike) -> Guarantee:
    """Theorem 2 for the repaired prices."""
    N, epsilon = problem.clients, problem.epsilon
    first = _log_repaired_sum(problem) + _logs(_bracket(problem) / (2 * N * epsilon))
    second = _log_sum(_log_repaired_terms(problem), gradient_norms) - math.log(N)
    return _guarantee(
        "payments_repaired",
        _add(first, second),
        "most a client pays in expectation at the repaired prices",
        (_CONVEX, _HONEST_RANGE, _BOUNDED),
    )


def convergence(
    problem: Problem,
    initial_gap: float,
    noise_floor: float,
    noise_growth: float = 0.0,
    bias: float | None = None,
    *,
    form: Literal["printed", "corrected"] = "corrected",
) -> Guarantee:
    """Theorem 3: how far the model is from the best one after T rounds of decaying steps.

    Args:
        problem: N, T, m, H, ε and ζ are used; the steps are Theorem 3's own.
        initial_gap: F(θ_1) − F*.
        noise_floor: M in E‖e_i‖² ≤ M + M_V ‖∇F_i‖².
        noise_growth: M_V.
        bias: ε_b ≤ ε, the bias of the mean message (default ε).
        form: as printed (no bias), or corrected.
    """
    for name, value in (("initial gap", initial_gap), ("M", noise_floor), ("M_V", noise_growth)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value:g}, must be a finite number ≥ 0")
    m, H, N, T = problem.strong_convexity, problem.smoothness, problem.clients, problem.rounds
    spread = 2 * problem.epsilon**2 + noise_floor + noise_growth * problem.zeta**2
    if form == "printed":
        eta = decaying_offset(m, H, N, noise_growth)
        bound = max(16 * H * spread / (3 * N * m**2), (eta + 1) * initial_gap) / (eta + T)
        return _guarantee(
            "convergence_printed",
            _logs(bound),
            f"excess loss of the final model; {_NO_BIAS}",
            (_CONVEX, "γ_t = 4/(m(η + t))"),
            valid=False,
        )
    bias = problem.epsilon if bias is None else bias
    if not 0 <= bias <= problem.epsilon:
        raise ValueError(f"bias is {bias:g}, must be in [0, ε = {problem.epsilon:g}]")
    eta = decaying_offset(m, H, N, noise_growth, biased=True)
    divisor, floor = (1, bias**2 / m) if noise_growth > 0 else (3, bias**2 / (2 * m))
    fading = max(16 * H * spread / (divisor * N * m**2), (eta + 1) * (initial_gap - floor))
    return _guarantee(
        "convergence_corrected",
        _logs(floor + fading / (eta + T)),
        "excess loss of the final model; the part from the bias of misreports does not fade",
        (_CONVEX, "γ_t = 4/(m(η' + t))", f"the mean message has a bias of at most {bias:g}"),
    )


def growing_heterogeneity(problem: Problem, clients: int, *, growth: float) -> Problem:
    """The same federation with N clients, where ζ and ρ grow as N^growth.

    The paper discusses growth 0 (a constant heterogeneity) and ¼ (where 2ζ² + ρ² grows as √N, so
    that payments per member still vanish). `problem` sets the values at its own N.
    """
    factor = (clients / problem.clients) ** growth
    return replace(problem, clients=clients, zeta=problem.zeta * factor, rho=problem.rho * factor)


def _bracket(problem: Problem) -> float:
    e = problem.epsilon
    return 2 * e**2 + 2 * e * problem.noise + 2 * problem.zeta**2 + problem.rho**2


def _log_printed_terms(problem: Problem) -> Array:
    """Log γ_t √𝒞_t."""
    return np.log(problem.steps) + log_remaining(printed_log_growth(problem))


def _log_repaired_terms(problem: Problem) -> Array:
    """Log γ_t Λ_{t+1}."""
    if problem.payment_lipschitz is None:
        raise ValueError("the repaired guarantees need L_q")
    return np.log(problem.steps) + log_lambda(problem, problem.payment_lipschitz)


def _log_printed_sum(problem: Problem) -> float:
    return _log_sum(_log_printed_terms(problem))


def _log_repaired_sum(problem: Problem) -> float:
    return _log_sum(_log_repaired_terms(problem))


def _log_printed_gradient_term(problem: Problem, gradient_norms: ArrayLike) -> float:
    terms = _log_sum(_log_printed_terms(problem), gradient_norms)
    return terms + _logs(math.sqrt(8), problem.lipschitz, 1 / problem.clients)


def _log_sum(log_terms: Array, weights: ArrayLike = 1.0) -> float:
    """Log Σ_t w_t exp(log term_t)."""
    w = np.broadcast_to(np.asarray(weights, dtype=np.float64), log_terms.shape)
    if not np.all(np.isfinite(w) & (w >= 0)):
        raise ValueError("gradient norms must be finite numbers ≥ 0, one or one per round")
    with np.errstate(divide="ignore"):
        return float(np.logaddexp.reduce(log_terms + np.log(w)))


def _logs(*factors: float) -> float:
    return sum(math.log(f) if f > 0 else -math.inf for f in factors)


def _add(first: float, second: float) -> float:
    return float(np.logaddexp(first, second))


def _guarantee(
    name: str, log: float, statement: str, assumes: tuple[str, ...], *, valid: bool = True
) -> Guarantee:
    value = math.exp(log) if log < math.log(np.finfo(np.float64).max) else math.inf
    return Guarantee(name, value, log / math.log(10), statement, assumes, valid)
