"""How different the clients are: the constants that the theorems speak of, measured or exact.

With ∇F = (1/N) Σ ∇F_i and the noise e_i = g_i − ∇F_i of a stochastic gradient:

- ζ²: |‖∇F_i‖² − ‖∇F‖²| ≤ ζ²,  ρ²: |E‖e_i‖² − E‖e_j‖²| ≤ ρ²,  σ²: E‖e_i‖² ≤ σ²,
- M, M_V: E‖e_i‖² ≤ M + M_V ‖∇F_i‖²,
- first-order: ‖∇F_i − ∇F‖² ≤ ζ₁²;  relaxed: (1/N) Σ ‖∇F_i‖² ≤ G² + D² ‖∇F‖²,
- L_q: a Lipschitz constant of q_i(θ) = E‖g_i‖² − mean_{j≠i} E‖g_j‖²;  L: one of the rewards.

For heterogeneous quadratics ζ is infinite on all of R^d, so everything is measured *at points*:
along a trajectory, or drawn from a box. A measured maximum or Lipschitz constant is a lower bound
of the true one. For quadratics on a ball all constants are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval (both ends equal where it is exact)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Heterogeneity:
    """The constants; squares are named so.

    Attributes:
        zeta_squared: ζ².
        rho_squared: ρ².
        noise_squared: σ².
        noise_floor: M, with `noise_growth` M_V: the least-squares slope, lifted to hold everywhere.
        noise_growth: M_V.
        first_order_squared: ζ₁².
        relaxed_floor: G², with `relaxed_growth` D² ≥ 1, found in the same way.
        relaxed_growth: D².
        payment_lipschitz: L_q.
        reward_lipschitz: L, or None if no rewards were given.
        points: at how many points it was measured (0: exact on a ball).
        samples: gradient samples per point and client (0: exact).
    """

    zeta_squared: Estimate
    rho_squared: Estimate
    noise_squared: Estimate
    noise_floor: Estimate
    noise_growth: Estimate
    first_order_squared: Estimate
    relaxed_floor: Estimate
    relaxed_growth: Estimate
    payment_lipschitz: Estimate
    reward_lipschitz: Estimate | None
    points: int
    samples: int


def box_points(low: ArrayLike, high: ArrayLike, count: int, rng: np.random.Generator) -> Array:
    """`count` points drawn evenly from a box, shape (count, d), at which to measure."""
    lo, hi = np.atleast_1d(np.asarray(low, float)), np.atleast_1d(np.asarray(high, float))
    if lo.shape != hi.shape or np.any(lo > hi):
        raise ValueError(f"a box needs low ≤ high of one shape, got {lo} and {hi}")
    return rng.uniform(lo, hi, size=(count, lo.size))


def estimate(
    gradients: ArrayLike,
    points: ArrayLike,
    rewards: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    resamples: int = 200,
) -> Heterogeneity:
    """Measure all constants from samples of stochastic gradients.

    Squared norms of means are freed of the noise that S samples leave in them (‖ḡ‖² − s²/S).
    Intervals come from resampling the S samples of each point and client.

    Args:
        gradients: g_i^{(s)}(θ_p), shape (P, N, S, d), S ≥ 2.
        points: θ_p, shape (P, d).
        rewards: R_i(θ_p), shape (P, N).
        rng: for the resampling.
        resamples: how often.
    """
    g, theta = np.asarray(gradients, float), np.asarray(points, float)
    if g.ndim != 4 or g.shape[1] < 2 or g.shape[2] < 2 or 0 in g.shape:
        raise ValueError(f"gradients are (points, clients ≥ 2, samples ≥ 2, d), got {g.shape}")
    if theta.shape != (g.shape[0], g.shape[3]):
        raise ValueError(f"points must have shape {(g.shape[0], g.shape[3])}, got {theta.shape}")
    for name, values in (("gradients", g), ("points", theta)):
        if not np.all(np.isfinite(values)):
            raise ValueError(f"{name} hold a value that is not finite")
    P, N, S, _ = g.shape
    gaps = np.linalg.norm(theta[:, None] - theta[None], axis=-1)
    whole = _constants(g, np.full((P, N, S), 1 / S), gaps)
    drawn = np.stack(
        [
            _constants(g, rng.multinomial(S, np.full(S, 1 / S), size=(P, N)) / S, gaps)
            for _ in range(resamples)
        ]
    )
    tails = np.quantile(drawn, [0.025, 0.975], axis=0)
    # The basic bootstrap: a maximum over noisy values is biased upward, and so are its resamples.
    low, high = np.maximum(2 * whole - tails[1], 0.0), np.maximum(2 * whole - tails[0], 0.0)
    constants = [
        Estimate(float(v), float(min(v, a)), float(max(v, b)))
        for v, a, b in zip(whole, low, high, strict=True)
    ]
    reward = None
    if rewards is not None:
        values = np.asarray(rewards, float)
        if values.shape != (P, N) or not np.all(np.isfinite(values)):
            raise ValueError(f"rewards must be finite, of shape {(P, N)}, got {values.shape}")
        reward = _exactly(_steepest(values, gaps))
    return Heterogeneity(*constants, reward_lipschitz=reward, points=P, samples=S)


def exact_for_quadratics(
    hessians: ArrayLike,
    centres: ArrayLike,
    noise_squared: ArrayLike,
    middle: ArrayLike,
    radius: float,
) -> Heterogeneity:
    """The constants of F_i = ½(θ−x_i)ᵀH_i(θ−x_i) with additive noise, on a ball ‖θ − c‖ ≤ r.

    Each is the largest value of a quadratic function on a ball (a trust-region problem), solved
    exactly. The relaxed constants are those that ζ implies: G² = ζ², D² = 1.

    Args:
        hessians: H_i, shape (N, d, d).
        centres: x_i, shape (N, d).
        noise_squared: E‖e_i‖², shape (N,).
        middle: of the ball, shape (d,).
        radius: of the ball.
    """
    H, x = np.asarray(hessians, float), np.asarray(centres, float)
    noise, c = np.asarray(noise_squared, float), np.asarray(middle, float)
    mean_hessian = H.mean(axis=0)
    offset = np.einsum("nij,nj->i", H, x) / len(H)
    gradients = [(h, h @ (c - xi)) for h, xi in zip(H, x, strict=True)]
    common = (mean_hessian, mean_hessian @ c - offset)
    norms = [_squared(*affine) for affine in gradients]
    A_F, b_F, c_F = _squared(*common)
    zeta = max(
        _largest_on_ball(sign * (A - A_F), sign * (b - b_F), sign * (c0 - c_F), radius)
        for A, b, c0 in norms
        for sign in (1.0, -1.0)
    )
    first = max(
        _largest_on_ball(*_squared(a - common[0], b - common[1]), radius) for a, b in gradients
    )
    N = len(H)
    total = [sum(parts) for parts in zip(*norms, strict=True)]
    steepest = 0.0
    for quadratic, linear, _ in norms:
        # q_i is quadratic, so its gradient 2Aθ + b is affine and its norm squared quadratic again.
        A = quadratic - (np.asarray(total[0]) - quadratic) / (N - 1)
        b = linear - (np.asarray(total[1]) - linear) / (N - 1)
        steepest = max(steepest, _largest_on_ball(*_squared(2 * A, b), radius))
    lipschitz = max(_largest_on_ball(*norm, radius) for norm in norms)
    zero = _exactly(0.0)
    return Heterogeneity(
        zeta_squared=_exactly(zeta),
        rho_squared=_exactly(float(np.ptp(noise))),
        noise_squared=_exactly(float(noise.max())),
        noise_floor=_exactly(float(noise.max())),
        noise_growth=zero,
        first_order_squared=_exactly(first),
        relaxed_floor=_exactly(zeta),
        relaxed_growth=_exactly(1.0),
        payment_lipschitz=_exactly(steepest**0.5),
        reward_lipschitz=_exactly(lipschitz**0.5),
        points=0,
        samples=0,
    )


def _constants(gradients: Array, weights: Array, gaps: Array) -> Array:
    """The nine constants, in the order of `Heterogeneity`, for samples weighed by (P, N, S)."""
    N, S = weights.shape[1:]
    averages = (weights[..., None, :] @ gradients)[..., 0, :]
    means = averages @ np.swapaxes(averages, 1, 2)
    squares = np.einsum("pisd,pisd,pis->pi", gradients, gradients, weights)
    length = np.diagonal(means, axis1=1, axis2=2)
    noise = np.maximum(squares - length, 0.0) * S / (S - 1)
    left = noise / S  # what S samples leave of the noise in a squared mean
    own = np.maximum(length - left, 0.0)
    common = np.maximum(means.mean(axis=(1, 2)) - left.mean(axis=1) / N, 0.0)
    apart = length - 2 * means.mean(axis=2) + means.mean(axis=(1, 2))[:, None]
    apart = apart - (left * (1 - 2 / N) + left.mean(axis=1, keepdims=True) / N)
    floor, growth = _line_above(own.ravel(), noise.ravel(), least=0.0)
    relaxed, spread = _line_above(common, own.mean(axis=1), least=1.0)
    energy = own + noise
    difference = energy - (energy.sum(axis=1, keepdims=True) - energy) / (N - 1)
    return np.array(
        [
            np.max(np.abs(own - common[:, None])),
            np.max(np.ptp(noise, axis=1)),
            np.max(noise),
            floor,
            growth,
            np.max(np.maximum(apart, 0.0)),
            relaxed,
            spread,
            _steepest(difference, gaps),
        ]
    )


def _line_above(x: Array, y: Array, least: float) -> tuple[float, float]:
    """Intercept ≥ 0 and slope ≥ `least` of a line above all points; the slope fits best."""
    spread = x - x.mean()
    size = float(spread @ spread)
    slope = max(float(spread @ y) / size, least) if size > 0 else least
    return max(float(np.max(y - slope * x)), 0.0), slope


def _steepest(values: Array, gaps: Array) -> float:
    """Max |f(θ) − f(θ')| / ‖θ − θ'‖ over all pairs of points, for values of shape (P, N)."""
    rises = np.max(np.abs(values[:, None] - values[None]), axis=-1)
    apart = gaps > 0
    return float(np.max(rises[apart] / gaps[apart], initial=0.0))


def _squared(matrix: Array, offset: Array) -> tuple[Array, Array, float]:
    """‖Ay + b‖² as yᵀQy + lᵀy + c."""
    return matrix.T @ matrix, 2 * matrix.T @ offset, float(offset @ offset)


def _largest_on_ball(quadratic: Array, linear: Array, constant: float, radius: float) -> float:
    """Max yᵀQy + lᵀy + c subject to ‖y‖ ≤ radius, by the secular equation ‖y(μ)‖ = radius.

    y(μ) = (μI − Q)⁻¹ l/2 with μ ≥ max(λ_max, 0); inside the ball only if μ = 0.
    """
    values, vectors = np.linalg.eigh((quadratic + quadratic.T) / 2)
    half = vectors.T @ linear / 2
    scale = max(float(np.max(np.abs(values))), float(np.linalg.norm(half)) / radius, 1e-300)

    def point(mu: float) -> Array:
        gap = mu - values
        return np.where(gap > 0, half / np.where(gap > 0, gap, 1.0), 0.0)

    low = max(float(values[-1]), 0.0)
    reach = low + 1e-14 * scale
    if np.linalg.norm(point(reach)) < radius:
        y = point(low)
        if low > 0 or values[-1] == 0:  # the hard case: fill up along a steepest direction
            y[-1] += np.sqrt(max(radius**2 - float(y @ y), 0.0)) * (1 if y[-1] >= 0 else -1)
    else:
        high = low + float(np.linalg.norm(half)) / radius + scale
        for _ in range(200):
            middle = (reach + high) / 2
            if np.linalg.norm(point(middle)) > radius:
                reach = middle
            else:
                high = middle
        y = point(high)
    return float(y @ (values * y) + 2 * half @ y + constant)


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value)
