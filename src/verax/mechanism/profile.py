"""The price profile: prices per block of rounds at which honesty is stationary at every time.

An update's influence on the final model changes over the run, so one price for all rounds leaves
timing to be exploited. Cut the rounds into K blocks; let a_{i,k} scale client i's messages in block
k and n_{j,s} be the sum of ‖m_j‖² over block s. From the sensitivities at honesty

    R_{ik} = ∂R_i/∂a_{i,k},   J^{ij}_{ks} = ∂n_{j,s}/∂a_{i,k}   (zero for s < k)

the prices C_{i,s} make U_i = R_i − p_i stationary, later payments included, when for all i and k

    Σ_{s≥k} [ C_{i,s} J^{ii}_{ks} − (1/(N−1)) Σ_{j≠i} C_{j,s} J^{ij}_{ks} ] = R_{ik}:

triangular in time, solved backwards with one N × N system per block. Where the solution would be
negative the price is zero and the equation an inequality: over-reporting hurts that client anyway.

A price of zero invites sabotage, however: a client that pays nothing itself can make the others'
norms grow and collect what they pay. So each price is at least a share φ, the *floor*, of the mean
price of its block (½ by default), and the equation is an inequality where the floor binds.

Stationary is a first-order statement; only an audit tells whether honesty is also best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from verax.mechanism.price import Blocks, Price

Array = NDArray[np.float64]

#: Above this condition number a block's prices are differences of nearly equal numbers: what the
#: sensitivities are uncertain by, the prices are uncertain by a thousand times.
ILL_CONDITIONED = 1e3

#: The least price of a client in a block, as a share of the clients' mean price. Of the shares that
#: were tried, ¼ was too low against sabotage.
FLOOR = 0.5

NO_PRICE = "nobody has a price, so that these rounds can be sabotaged for free"
BELOW_FLOOR = (
    "client {client} has a price below half of the members' mean, so that it can sabotage these "
    "rounds at little cost"
)
NO_SOLUTION = (
    "no prices with the floor solve the block's equations; the one price for all that comes "
    "closest is charged"
)


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Derivatives at honesty with respect to a_{i,k}, of all clients i or of some.

    Attributes:
        reward: R_{ik}, shape (D, K) for D clients.
        measures: J^{ij}_{ks} at index [i, j, k, s], shape (D, N, K, K).
        clients: which clients these are, (D,); default: all N, in order.
    """

    reward: Array
    measures: Array
    clients: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def __post_init__(self) -> None:
        D, K = self.reward.shape
        N = self.measures.shape[1] if self.measures.ndim > 1 else D
        if not self.clients.size:
            object.__setattr__(self, "clients", np.arange(N))
        if self.measures.shape != (D, N, K, K) or len(self.clients) != D:
            raise ValueError(
                f"sensitivities of measures of {D} clients and {K} blocks have shape "
                f"{(D, N, K, K)}, got {self.measures.shape}"
            )
        if N < 2:
            raise ValueError(f"a profile needs at least 2 clients, got {N}")
        if not (np.all(np.isfinite(self.reward)) and np.all(np.isfinite(self.measures))):
            raise ValueError(
                "sensitivities are not finite: honest training diverged; lower the step"
            )

    def system(self, k: int, s: int) -> Array:
        """The D × N matrix by which the prices of block s enter the equations of block k."""
        matrix = -self.measures[:, :, k, s] / (self.measures.shape[1] - 1)
        rows = np.arange(len(self.clients))
        matrix[rows, self.clients] = self.measures[rows, self.clients, k, s]
        return matrix


@dataclass(frozen=True, eq=False)
class ProfilePrices:
    """Prices per block, and how far they can be relied on.

    Attributes:
        blocks: the blocks.
        prices: C_{s,i} ≥ 0, shape (K, N).
        residual: what is left of R_{ik} after the payments, shape (K, D): zero where honesty is
            stationary, negative where over-reporting hurts the client anyway or the floor binds.
        condition: condition number of each block's system, shape (K,).
        undeterred: blocks in which no price of this rule deters, with the reason.
    """

    blocks: Blocks
    prices: Array
    residual: Array
    condition: Array
    undeterred: tuple[tuple[int, str], ...]

    @property
    def price(self) -> Price:
        """The prices in the form of terms."""
        return Price.profile(self.blocks, self.prices)


def individual_profile(
    sensitivities: Sensitivities, blocks: Blocks, floor: float = FLOOR
) -> ProfilePrices:
    """One price per block and client: honesty stationary for everybody above the floor."""
    if len(sensitivities.clients) != sensitivities.measures.shape[1]:
        raise ValueError("a price for each client needs the derivatives of all of them")
    if not 0 <= floor < 1:
        raise ValueError(f"floor is {floor:g}, must be a share of the mean price, 0 ≤ floor < 1")
    return _backwards(sensitivities, blocks, partial(_individual_prices, floor=floor))


def common_profile(sensitivities: Sensitivities, blocks: Blocks) -> ProfilePrices:
    """One price per block for all: the least-squares compromise between the clients known."""
    return _backwards(
        sensitivities, blocks, lambda matrix, wanted: (_compromise_price(matrix, wanted), "")
    )


def _backwards(
    sensitivities: Sensitivities,
    blocks: Blocks,
    solve: Callable[[Array, Array], tuple[Array, str]],
) -> ProfilePrices:
    """Prices of all blocks, the last one first; `solve` also says why they do not deter, or ""."""
    D, N, K = sensitivities.measures.shape[:3]
    if len(blocks) != K:
        raise ValueError(f"sensitivities are for {K} blocks, got {len(blocks)}")
    prices, residual = np.zeros((K, N)), np.zeros((K, D))
    condition = np.zeros(K)
    undeterred: list[tuple[int, str]] = []
    for k in reversed(range(K)):
        later = [sensitivities.system(k, s) @ prices[s] for s in range(k + 1, K)]
        wanted = sensitivities.reward[:, k] - np.sum(later, axis=0)
        matrix = sensitivities.system(k, k)
        among = matrix[:, sensitivities.clients]
        condition[k] = _scaled_condition(among)
        prices[k], problem = solve(matrix, wanted)
        if np.any(wanted > 0):
            known = _why_undeterred(among, wanted, float(condition[k]), sensitivities.clients)
            problem = known or problem
        if problem:
            undeterred.append((k, problem))
        if not np.any(prices[k] > 0):
            undeterred.append((k, NO_PRICE))
        residual[k] = wanted - matrix @ prices[k]
    return ProfilePrices(blocks, prices, residual, condition, tuple(reversed(undeterred)))


def _individual_prices(matrix: Array, wanted: Array, floor: float) -> tuple[Array, str]:
    """A price for each client, and why the prices do not deter, or ""."""
    prices = _prices_with_floor(matrix, wanted, floor)
    if prices is None:
        return _compromise_price(matrix, wanted), NO_SOLUTION
    low = int(np.argmin(prices))
    # A price on the floor itself may be below it by rounding.
    if prices[low] < (FLOOR - 1e-9) * prices.mean():
        return prices, BELOW_FLOOR.format(client=low)
    return prices, ""


def _prices_with_floor(matrix: Array, wanted: Array, floor: float) -> Array | None:
    """C ≥ φ·mean(C) with A C ≥ r, equal where C is above the floor; None if it is not found.

    The floor moves with the mean, so both are found in turn. Usually each turn brings them closer
    by about the factor φ. Where a member's charge raises the others' rewards strongly, the turns
    may diverge.
    """
    least, prices = 0.0, _stationary_prices(matrix, wanted)
    for _ in range(200):
        if abs(floor * prices.mean() - least) <= 1e-12 * prices.mean():
            return prices
        least = floor * float(prices.mean())
        prices = least + _stationary_prices(matrix, wanted - matrix.sum(axis=1) * least)
    return None


def _stationary_prices(matrix: Array, wanted: Array) -> Array:
    """C ≥ 0 with A C ≥ r, equal where C > 0 (a linear complementarity problem)."""
    usable = np.diagonal(matrix) > 0
    free = usable.copy()
    prices = np.zeros(len(wanted))
    for _ in range(4 * len(wanted) + 1):
        prices[:] = 0.0
        if np.any(free):
            inner = matrix[np.ix_(free, free)]
            prices[free] = np.linalg.lstsq(inner, wanted[free], rcond=1e-12)[0]
        negative = free & (prices < 0)
        missing = usable & ~free & (matrix @ prices < wanted - 1e-12 * np.abs(wanted))
        if not np.any(negative) and not np.any(missing):
            break
        free = (free & ~negative) | (missing & ~np.any(negative))
    return np.maximum(prices, 0.0)


def _compromise_price(matrix: Array, wanted: Array) -> Array:
    """The one C ≥ 0 that minimises Σ_i (A 1 C − r)_i²."""
    effect = np.sum(matrix, axis=1)
    size = float(effect @ effect)
    price = max(float(effect @ wanted) / size, 0.0) if size > 0 else 0.0
    return np.full(matrix.shape[1], price)


def _scaled_condition(matrix: Array) -> float:
    """Condition number after scaling the diagonal to one: units of clients do not count."""
    scale = np.sqrt(np.abs(np.diagonal(matrix)))
    if np.any(scale == 0):
        return np.inf
    return float(np.linalg.cond(matrix / np.outer(scale, scale)))


def _why_undeterred(
    matrix: Array, wanted: Array, condition: float, clients: NDArray[np.intp]
) -> str:
    blind = np.flatnonzero((np.diagonal(matrix) <= 0) & (wanted > 0))
    if blind.size:
        return (
            f"over-reporting by client {clients[blind[0]]} does not raise its own charge "
            f"(dn/da = {matrix[blind[0], blind[0]]:.3g}) but pays"
        )
    if condition > ILL_CONDITIONED:
        return f"the block's system is nearly singular (condition {condition:.3g})"
    return ""
