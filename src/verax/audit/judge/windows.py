"""The window: the prices at which no deviation tried gains more than a tolerance.

A deviation's gain at price C is ΔR − C·ΔP, linear in C, where ΔR is the rise of the deviator's
reward and ΔP the rise of its payment at C = 1. With tolerance ε it is deterred from
C ≥ (ΔR − ε)/ΔP on if ΔP > 0; if ΔP < 0 (it is paid) only up to C ≤ (ΔR − ε)/ΔP; if ΔP ≤ 0 and
ΔR > ε, no price deters it. The gain of the best misreport is a convex, piecewise linear function of
C (the *valley*), whose minimum is found exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from verax.amounts import money

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Prices low … high, or none.

    Attributes:
        low: the least price that deters over-reporting; NaN if no price does.
        high: the price from which under-reporting pays; `inf` if none was found.
        low_interval: 95 %, from resampling the seeds.
        high_interval: the same.
        worst_gain: the gain of the best misreport at the best price.
        best_price: that price.
        reason: why the window is empty, naming the deviation; else "".
    """

    low: float
    high: float
    low_interval: tuple[float, float]
    high_interval: tuple[float, float]
    worst_gain: float
    best_price: float
    reason: str = ""

    @property
    def empty(self) -> bool:
        """Whether no price satisfies all."""
        return not self.low <= self.high

    def __contains__(self, price: float) -> bool:
        return self.low <= price <= self.high

    def __str__(self) -> str:
        if self.empty:
            return "none"
        return f"{self.low:.3g} … {'∞' if np.isinf(self.high) else f'{self.high:.3g}'}"


class Interval(NamedTuple):
    """A mean over replicas with its 95 % t-interval."""

    mean: float
    low: float
    high: float


def interval(values: ArrayLike) -> Interval:
    """Mean and 95 % t-interval of the values of independent replicas."""
    numbers = np.asarray(values, dtype=np.float64)
    n, mean = numbers.size, float(numbers.mean())
    if n < 2:
        return Interval(mean, mean, mean)
    half = float(scipy.special.stdtrit(n - 1, 0.975) * numbers.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - half, mean + half)


def seeds_needed(values: ArrayLike, half_width: float) -> int:
    """The replicas after which a 95 % interval is at most that wide, if they vary as these do."""
    spread = float(np.std(np.asarray(values, dtype=np.float64), ddof=1))
    n = 2
    while scipy.special.stdtrit(n - 1, 0.975) * spread / np.sqrt(n) > half_width:
        n = max(n + 1, min(2 * n, int((1.96 * spread / half_width) ** 2)))
    return n


def valley(gains: Array, rises: Array, prices: Array) -> Array:
    """The gain of the best misreport (or of honesty, 0) at each price; gains and rises are (D,)."""
    return np.maximum(np.max(gains[:, None] - rises[:, None] * prices, axis=0, initial=0.0), 0.0)


def best_price(gains: Array, rises: Array) -> tuple[float, float]:
    """(Price, gain of the best misreport there) where that gain is least; both (D,).

    Each gain falls by its rise with the price. From price zero on, the largest gain is followed to
    where one that falls more slowly takes over, until the largest does not fall any more.
    """
    gains, rises = np.append(gains, 0.0), np.append(rises, 0.0)  # honesty gains nothing
    price, top = 0.0, int(np.lexsort((rises, -gains))[0])
    while rises[top] > 0:
        slower = np.flatnonzero(rises < rises[top])
        crossings = (gains[top] - gains[slower]) / (rises[top] - rises[slower])
        price = max(price, float(crossings.min()))
        top = int(slower[np.lexsort((rises[slower], crossings))[0]])
    return price, float(valley(gains, rises, np.array([price]))[0])


def find_window(
    gains: Array,
    rises: Array,
    tolerance: float,
    labels: Sequence[str],
    rng: np.random.Generator,
    resamples: int = 400,
    currency: str = "credits",
) -> Window:
    """The window of one client.

    Args:
        gains: ΔR of each deviation and seed, (D, S).
        rises: ΔP at C = 1, (D, S).
        tolerance: ε.
        labels: names of the deviations, for the reason.
        rng: for the resampling.
        resamples: how often the seeds are drawn anew.
        currency: of gains and tolerance, for the reason.
    """
    gain, rise = gains.mean(axis=1), rises.mean(axis=1)
    low, high = _ends(gain[None], rise[None], tolerance)
    S = gains.shape[1]
    drawn = rng.integers(0, S, size=(resamples, S))
    lows, highs = _ends(gains[:, drawn].mean(axis=2).T, rises[:, drawn].mean(axis=2).T, tolerance)
    price, worst = best_price(gain, rise)
    reason = ""
    if not low[0] <= high[0]:
        reason = _why(gain, rise, tolerance, labels, price, currency)
    return Window(float(low[0]), float(high[0]), _range(lows), _range(highs), worst, price, reason)


def common_window(windows: Sequence[Window]) -> tuple[float, float]:
    """Where the clients' windows overlap: (low, high), low > high or NaN if nowhere."""
    return float(np.max([w.low for w in windows])), float(np.min([w.high for w in windows]))


def _ends(gains: Array, rises: Array, tolerance: float) -> tuple[Array, Array]:
    """Both ends for many samples at once, (B, D) each; NaN where a deviation defies all prices."""
    over = gains - tolerance
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = over / rises
    low = np.max(np.where(rises > 0, ratio, 0.0), axis=1, initial=0.0)
    high = np.min(np.where(rises < 0, ratio, np.inf), axis=1, initial=np.inf)
    defied = np.any((rises <= 0) & (over > 0), axis=1)
    return np.where(defied, np.nan, low), high


def _range(values: Array) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if not known.size:
        return np.nan, np.nan
    low, high = np.quantile(known, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def _why(
    gain: Array,
    rise: Array,
    tolerance: float,
    labels: Sequence[str],
    price: float,
    currency: str,
) -> str:
    free = (rise <= 0) & (gain > tolerance)
    if np.any(free):
        d = int(np.argmax(np.where(free, gain, -np.inf)))
        gained = money(float(gain[d]), currency)
        return f"no price deters “{labels[d]}”: it gains {gained} and does not pay more"
    at = gain - price * rise
    # At the best price two deviations gain as much: one that pays more, one that is paid.
    dear, cheap = np.where(rise > 0, at, -np.inf), np.where(rise < 0, at, -np.inf)
    up, down = int(np.argmax(dear)), int(np.argmax(cheap))
    return (
        f"what deters “{labels[up]}” makes “{labels[down]}” pay: at the best price, {price:.3g}, "
        f"one of them still gains {money(float(max(at[up], at[down])), currency)} (tolerance "
        f"{money(tolerance, currency)})"
    )
