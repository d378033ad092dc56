"""Mean estimation: the smallest game in which heterogeneity makes lying pay, in closed form.

`OneRound`: client i holds x_i ~ N(μ_i, σ²), the server averages what it is sent, client 1 wants its
own μ_1 and sends c·x_1 while the others are truthful.

`Bayesian`: μ ~ N(0, 1/τ_0), μ_i ~ N(μ, 1/τ), x̄_i ~ N(μ_i, 1/τ_i) with τ_i = n/σ_i²; everybody
scales. ρ_i = ττ_i/(τ + τ_i), so that E x̄_i² = 1/τ_0 + 1/ρ_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class OneRound:
    """One round, client 1 (index 0) scales its message by c.

    Attributes:
        means: μ_i of all N clients.
        noise: σ.
    """

    means: tuple[float, ...]
    noise: float

    def __post_init__(self) -> None:
        if len(self.means) < 2:
            raise ValueError(f"mean estimation needs at least 2 clients, got {len(self.means)}")
        if not (np.all(np.isfinite(self.means)) and np.isfinite(self.noise) and self.noise >= 0):
            raise ValueError("means must be finite and noise a finite number ≥ 0")
        if self.means[0] == 0 and self.noise == 0:
            raise ValueError("client 1 always sends 0: no scale of it means anything")

    @property
    def _pull(self) -> float:
        """μ_1(μ_1 − μ): how far client 1 lies from the mean, on its own side."""
        own = self.means[0]
        return own * (own - float(np.mean(self.means)))

    def mse(self, scale: ArrayLike) -> Array:
        """E(estimate − μ_1)² = (μ − μ_1 + (c−1)μ_1/N)² + (c² + N − 1)σ²/N²."""
        c, own, N = np.asarray(scale, float), self.means[0], len(self.means)
        bias = float(np.mean(self.means)) - own + (c - 1) * own / N
        return np.asarray(bias**2 + (c**2 + N - 1) * self.noise**2 / N**2)

    @property
    def truthful_mse(self) -> float:
        """(μ − μ_1)² + σ²/N."""
        own, N = self.means[0], len(self.means)
        return (float(np.mean(self.means)) - own) ** 2 + self.noise**2 / N

    @property
    def best_scale(self) -> float:
        """c* = (μ_1² + N μ_1(μ_1 − μ))/(μ_1² + σ²)."""
        own = self.means[0]
        return (own**2 + len(self.means) * self._pull) / (own**2 + self.noise**2)

    @property
    def best_mse(self) -> float:
        """Truthful − (σ²/N − μ_1(μ_1 − μ))²/(μ_1² + σ²)."""
        gain = self.noise**2 / len(self.means) - self._pull
        return self.truthful_mse - gain**2 / (self.means[0] ** 2 + self.noise**2)

    @property
    def helpful_scales(self) -> tuple[float, float]:
        """The open interval of c that beat the truth: (1, 2c* − 1) where μ_1(μ_1 − μ) > σ²/N."""
        low, high = sorted((1.0, 2 * self.best_scale - 1))
        return low, high


@dataclass(frozen=True)
class Bayesian:
    """Everybody scales: posterior, Nash equilibrium and the errors of both worlds.

    Attributes:
        common: τ_0, precision of the common mean.
        between: τ, precision of clients around it.
        quality: τ_i, precision of each client's own average.
    """

    common: float
    between: float
    quality: tuple[float, ...]

    def __post_init__(self) -> None:
        values = (self.common, self.between, *self.quality)
        if len(self.quality) < 2 or not all(np.isfinite(v) and v > 0 for v in values):
            raise ValueError("precisions must be finite and > 0, for at least 2 clients")

    @property
    def _rho(self) -> Array:
        q = np.asarray(self.quality)
        return self.between * q / (self.between + q)

    @property
    def _prior(self) -> float:
        """E μ_i² = 1/τ + 1/τ_0."""
        return 1 / self.between + 1 / self.common

    def posterior(self, averages: ArrayLike) -> tuple[Array, Array]:
        """Mean and precision of each μ_i given everybody's x̄.

        (τ_i x̄_i + β_i Σ_{j≠i} ρ_j x̄_j)/(τ_i + β_i(Σ_{j≠i} ρ_j + τ_0)), the denominator being the
        precision, β_i = τ/(Σ_{j≠i} ρ_j + τ + τ_0).
        """
        x, rho, q = np.asarray(averages, float), self._rho, np.asarray(self.quality)
        others = rho.sum() - rho
        beta = self.between / (others + self.between + self.common)
        precision = q + beta * (others + self.common)
        mean = (q * x + beta * ((rho * x).sum(-1)[..., None] - rho * x)) / precision
        return mean, precision

    @property
    def equilibrium_scales(self) -> Array:
        """c_i = N ρ_i (1/τ + 1/τ_0)/(1 + Σρ_j/τ_0)."""
        rho = self._rho
        return len(rho) * rho * self._prior / (1 + rho.sum() / self.common)

    @property
    def equilibrium_error(self) -> Array:
        """(1/τ + 1/τ_0)(Σρ_j − 2ρ_i + τ)/(τ(1 + Σρ_j/τ_0)), per client."""
        rho, tau = self._rho, self.between
        return self._prior * (rho.sum() - 2 * rho + tau) / (tau * (1 + rho.sum() / self.common))

    @property
    def truthful_error(self) -> float:
        """(1/N)[(1/N) Σ 1/ρ_j − 2/τ] + 1/τ, the same for all clients."""
        rho, tau = self._rho, self.between
        return float((np.mean(1 / rho) - 2 / tau) / len(rho) + 1 / tau)

    @property
    def printed_truthful_error(self) -> float:
        """As the paper prints it, without the inner 1/N: wrong, kept to compare."""
        rho, tau = self._rho, self.between
        return float((np.sum(1 / rho) - 2 / tau) / len(rho) + 1 / tau)

    @property
    def limits(self) -> tuple[float, float]:
        """Errors for N → ∞: at equilibrium 1/τ + τ_0/τ², truthful 1/τ."""
        tau = self.between
        return 1 / tau + self.common / tau**2, 1 / tau

    @property
    def equilibrium_is_worse(self) -> NDArray[np.bool_]:
        """(1 + τ_0/τ)(Σρ − 2ρ_i + τ)/(τ_0 + Σρ) > 1 − 2/N + (τ/N²) Σ1/ρ_j, per client."""
        rho, tau, tau0 = self._rho, self.between, self.common
        N = len(rho)
        ours = (1 + tau0 / tau) * (rho.sum() - 2 * rho + tau) / (tau0 + rho.sum())
        return ours > 1 - 2 / N + tau / N**2 * np.sum(1 / rho)
