"""How far a deviation in round t still moves the final model.

With the same samples in both runs, r_t = (E‖θ_t − θ'_t‖²)^½ obeys r_{t+1} ≤ κ_t r_t + γ_t y_t / N
for a misreport of size y_t, so its influence is (γ_t/N) Π_{l>t} κ_l. For per-sample losses that are
H-smooth and m_s-strongly convex, and F m-strongly convex and H_F-smooth,

    κ² = max{ (1−γm)² + γ²(m−m_s)(H−m)/N,  (1−γH_F)² + γ²(H_F−m_s)(H−H_F)/N }.

The paper's constant is c = 2(1 − 2γm + γ²H²) in place of κ²; its factor 2 is an artefact and makes
the product explode with the horizon. Products are kept as logarithms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verax.mechanism.problem import Problem

Array = NDArray[np.float64]


def contraction(problem: Problem) -> Array:
    """κ_t, shape (T,)."""
    g, N = problem.steps, problem.clients
    m, H, m_s = problem.strong_convexity, problem.smoothness, problem.sample_convexity
    H_F = problem.global_smoothness or H
    slow = (1 - g * m) ** 2 + g**2 * (m - m_s) * (H - m) / N
    fast = (1 - g * H_F) ** 2 + g**2 * (H_F - m_s) * (H - H_F) / N
    return np.sqrt(np.maximum(slow, fast))


def printed_log_growth(problem: Problem) -> Array:
    """Log √c_t with the paper's c_t = 2(1 − 2γ_t m + γ_t² H²), shape (T,)."""
    g = problem.steps
    with np.errstate(divide="ignore"):  # c = 0 where m = H and γ = 1/m: nothing remains
        return 0.5 * np.log(
            2 * (1 - 2 * g * problem.strong_convexity + (g * problem.smoothness) ** 2)
        )


def log_remaining(log_factors: Array) -> Array:
    """Log Π_{l>t} f_l for t = 1 … T from log f_l."""
    later = np.append(log_factors[1:], 0.0)
    return np.cumsum(later[::-1])[::-1]
