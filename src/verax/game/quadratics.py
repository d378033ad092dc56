"""Quadratic federations, where everything about a run can be computed exactly.

    F_i(θ) = ½ (θ − x_i)ᵀ H_i (θ − x_i) + o_i,   g_i(θ) = H_i (θ − x_i),
    θ_{t+1} = θ_t − (γ_t/N) Σ_i a_t^i g_i(θ_t),
    U_i = −v F_i(θ_{T+1}) − Σ_t p_t^i   with the paper's rule at prices C_t^i.

The gradient of U_i with respect to every a_t^i counts the *later* payments too: a deviation moves
θ and with it all norms to come. That is what the paper's proof leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from verax.mechanism import Blocks, Sensitivities, SquaredNorm, pay

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What a run of T rounds recorded.

    Attributes:
        points: θ_1 … θ_{T+1}, shape (T + 1, d).
        gradients: g_i(θ_t), shape (T, N, d).
        messages: m_t^i, shape (T, N, d).
    """

    points: Array
    gradients: Array
    messages: Array

    @property
    def norms(self) -> Array:
        """‖m_t^i‖², shape (T, N)."""
        return np.sum(self.messages**2, axis=-1)

    @property
    def gram(self) -> Array:
        """⟨m_t^i, m_t^j⟩, shape (T, N, N)."""
        return np.einsum("tid,tjd->tij", self.messages, self.messages)


@dataclass(frozen=True, eq=False)
class BestResponse:
    """The best scales found for one client, and what they gain over honesty."""

    scales: Array
    utility: float
    gain: float


@dataclass(frozen=True, eq=False)
class Quadratics:
    """N quadratic losses in d dimensions.

    Attributes:
        hessians: H_i, symmetric, shape (N, d, d).
        centres: x_i, shape (N, d).
        offsets: o_i, shape (N,).
    """

    hessians: Array
    centres: Array
    offsets: Array

    @classmethod
    def of(
        cls, hessians: ArrayLike, centres: ArrayLike, offsets: ArrayLike | float = 0.0
    ) -> Quadratics:
        """From full Hessians (N, d, d), or curvatures (N,) or (N, d) of axis-parallel bowls."""
        x = np.asarray(centres, float)
        x = x[:, None] if x.ndim == 1 else x
        bowls = np.asarray(hessians, float)
        if bowls.ndim < 3:
            axes = np.broadcast_to(bowls[:, None] if bowls.ndim == 1 else bowls, x.shape)
            bowls = axes[:, :, None] * np.eye(x.shape[1])
        if bowls.shape != (*x.shape, x.shape[1]):
            raise ValueError(f"Hessians {bowls.shape} do not fit centres {x.shape}")
        if not (np.all(np.isfinite(bowls)) and np.all(np.isfinite(x))):
            raise ValueError("Hessians and centres must be finite")
        return cls(bowls, x, np.broadcast_to(np.asarray(offsets, float), (len(x),)).copy())

    @property
    def clients(self) -> int:
        """N."""
        return len(self.centres)

    def losses(self, theta: ArrayLike) -> Array:
        """F_i(θ), shape (…, N)."""
        away = np.asarray(theta, float)[..., None, :] - self.centres
        return 0.5 * np.einsum("...nd,nde,...ne->...n", away, self.hessians, away) + self.offsets

    def gradients(self, theta: ArrayLike) -> Array:
        """g_i(θ), shape (…, N, d)."""
        away = np.asarray(theta, float)[..., None, :] - self.centres
        return np.einsum("nde,...ne->...nd", self.hessians, away)

    def optimum(self, scales: ArrayLike = 1.0) -> Array:
        """Where the run comes to rest, Σ a_i g_i(θ) = 0, shape (d,)."""
        a = np.broadcast_to(np.asarray(scales, float), (self.clients,))
        pull = np.einsum("n,nde,ne->d", a, self.hessians, self.centres)
        return np.linalg.solve(np.einsum("n,nde->de", a, self.hessians), pull)

    def steady_payments(self, scales: ArrayLike = 1.0, price: float = 1.0) -> Array:
        """What each client pays a round once the run has come to rest, shape (N,)."""
        a = np.broadcast_to(np.asarray(scales, float), (self.clients,))
        messages = a[:, None] * self.gradients(self.optimum(a))
        return pay(SquaredNorm(), np.sum(messages**2, axis=-1), price).amounts

    def run(self, start: ArrayLike, steps: ArrayLike, scales: ArrayLike = 1.0) -> Trajectory:
        """FedSGD by recursion; scales a_t^i broadcast to (T, N)."""
        gamma = np.asarray(steps, float)
        a = np.broadcast_to(np.asarray(scales, float), (gamma.size, self.clients))
        theta = np.atleast_1d(np.asarray(start, float))
        points = np.empty((gamma.size + 1, theta.size))
        gradients = np.empty((gamma.size, self.clients, theta.size))
        points[0] = theta
        for t in range(gamma.size):
            gradients[t] = self.gradients(points[t])
            points[t + 1] = points[t] - gamma[t] * (a[t] @ gradients[t]) / self.clients
        return Trajectory(points, gradients, a[..., None] * gradients)

    def final(self, start: ArrayLike, step: float, rounds: int, scales: ArrayLike = 1.0) -> Array:
        """θ_{T+1} for constant step and scales in closed form: θ* + (I − γH̄)^T (θ_1 − θ*)."""
        a = np.broadcast_to(np.asarray(scales, float), (self.clients,))
        rest = self.optimum(a)
        mean = np.einsum("n,nde->de", a, self.hessians) / self.clients
        shrink = np.linalg.matrix_power(np.eye(rest.size) - step * mean, rounds)
        return rest + shrink @ (np.atleast_1d(np.asarray(start, float)) - rest)

    def utility(
        self,
        client: int,
        run: Trajectory,
        prices: ArrayLike,
        value: float = 1.0,
    ) -> float:
        """U_i = −v F_i(θ_{T+1}) − Σ_t p_t^i; prices broadcast to (T, N)."""
        payments = pay(SquaredNorm(), run.norms, prices).amounts[:, client].sum()
        return -value * float(self.losses(run.points[-1])[client]) - float(payments)

    def utility_gradient(
        self,
        client: int,
        start: ArrayLike,
        steps: ArrayLike,
        scales: ArrayLike,
        prices: ArrayLike,
        value: float = 1.0,
    ) -> Array:
        """∂U_i/∂a_t^i for every t, shape (T,), later payments included.

        The adjoint λ_t = ∂U_i/∂θ_t runs backwards from λ_{T+1} = −v g_i(θ_{T+1}).
        """
        gamma, N = np.asarray(steps, float), self.clients
        a = np.broadcast_to(np.asarray(scales, float), (gamma.size, N))
        C = np.broadcast_to(np.asarray(prices, float), (gamma.size, N))
        run = self.run(start, gamma, a)
        share = np.full(N, -1 / (N - 1))
        share[client] = 1.0
        adjoint = -value * self.gradients(run.points[-1])[client]
        gradient = np.empty(gamma.size)
        for t in reversed(range(gamma.size)):
            g = run.gradients[t]
            own = 2 * C[t, client] * a[t, client] * (g[client] @ g[client])
            gradient[t] = -gamma[t] / N * (adjoint @ g[client]) - own
            moved = np.einsum("n,nde,e->d", a[t], self.hessians, adjoint)
            charged = np.einsum("n,nde,ne->d", 2 * share * C[t] * a[t] ** 2, self.hessians, g)
            adjoint = adjoint - gamma[t] / N * moved - charged
        return gradient

    def best_constant(
        self,
        client: int,
        start: ArrayLike,
        steps: ArrayLike,
        prices: ArrayLike,
        value: float = 1.0,
        bounds: tuple[float, float] = (0.0, 10.0),
    ) -> BestResponse:
        """The best a for all rounds within the bounds, the others honest."""

        def negative_utility(a: float) -> float:
            scales = np.ones(self.clients)
            scales[client] = a
            return -self.utility(client, self.run(start, steps, scales), prices, value)

        grid = np.linspace(*bounds, 201)
        costs = [negative_utility(float(a)) for a in grid]
        k = int(np.argmin(costs))
        bracket = (grid[max(k - 1, 0)], grid[min(k + 1, grid.size - 1)])
        result = scipy.optimize.minimize_scalar(negative_utility, bounds=bracket, method="bounded")
        points = [(float(result.x), float(result.fun)), (float(grid[k]), costs[k])]
        a, cost = min(points, key=_second)
        return BestResponse(np.array(a), -cost, negative_utility(1.0) - cost)

    def best_timed(
        self,
        client: int,
        start: ArrayLike,
        steps: ArrayLike,
        prices: ArrayLike,
        value: float = 1.0,
        bounds: tuple[float, float] = (0.0, 10.0),
        starts: int = 3,
        rng: np.random.Generator | None = None,
    ) -> BestResponse:
        """The best a_t for every round within the bounds, the others honest.

        Found by L-BFGS-B with the exact gradient, from honesty and from random starts.
        """
        gamma = np.asarray(steps, float)
        scales = np.ones((gamma.size, self.clients))

        def negative_utility(a: Array) -> tuple[float, Array]:
            scales[:, client] = a
            run = self.run(start, gamma, scales)
            gradient = self.utility_gradient(client, start, gamma, scales, prices, value)
            return -self.utility(client, run, prices, value), -gradient

        honest = np.ones(gamma.size)
        first = [honest]
        if rng is not None:
            first += [rng.uniform(*bounds, size=gamma.size) for _ in range(starts - 1)]
        results = [
            scipy.optimize.minimize(
                negative_utility, a, jac=True, method="L-BFGS-B", bounds=[bounds] * gamma.size
            )
            for a in first
        ]
        best = min(results, key=_cost)
        return BestResponse(best.x, -float(best.fun), negative_utility(honest)[0] - float(best.fun))

    def sensitivities(
        self, start: ArrayLike, steps: ArrayLike, blocks: Blocks, value: float = 1.0
    ) -> Sensitivities:
        """R and J of the price profile, exactly: the run's tangent for each client and block."""
        gamma, N = np.asarray(steps, float), self.clients
        if blocks.rounds != gamma.size:
            raise ValueError(f"blocks cover {blocks.rounds} rounds, the run has {gamma.size}")
        run = self.run(start, gamma)
        K = len(blocks)
        tangent = np.zeros((N, K, run.points.shape[1]))  # ∂θ_t/∂a_{i,k}
        norms = np.zeros((N, N, K, K))
        mean = self.hessians.mean(axis=0)
        for t, s in enumerate(blocks.of_round):
            g = run.gradients[t]
            norms[..., s] += 2 * np.einsum("jd,jde,ike->ijk", g, self.hessians, tangent)
            norms[np.arange(N), np.arange(N), s, s] += 2 * np.sum(g**2, axis=-1)
            tangent = tangent - gamma[t] * tangent @ mean.T
            tangent[:, s] -= gamma[t] / N * g
        at_end = -value * self.gradients(run.points[-1])
        return Sensitivities(np.einsum("ikd,id->ik", tangent, at_end), norms)


def four_clients() -> Quadratics:
    """The paper's worked example: x², (x−1)²+1, 3(x−2)²+2, (x−½)²+3.

    The common optimum is 5/4; when client 1 reports 3x² it moves to 15/16, to client 1's gain and
    at client 3's expense.
    """
    return Quadratics.of([2.0, 2.0, 6.0, 2.0], [0.0, 1.0, 2.0, 0.5], [0.0, 1.0, 2.0, 3.0])


def _second(pair: tuple[float, float]) -> float:
    return pair[1]


def _cost(result: Any) -> float:
    return float(result.fun)
