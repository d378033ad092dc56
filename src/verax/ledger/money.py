r"""Money is integers: a round's real payments become whole units that sum to exactly zero.

With x_i = p_i · 10^scale exactly (no rounding on the way) every member first gets ⌊x_i⌋; the units
k = −Σ ⌊x_i⌋ still missing go, one each, to those with the largest remainder x_i − ⌊x_i⌋, ties to
the smaller key. So Σ = 0 and |units_i − x_i| ≤ 1. Whoever pays exactly nothing stays at nothing.

Real payments balance only up to the rounding of float64. Where a unit is smaller than that rounding
(say, 18 decimal places), k may lie outside 0 … m; it is then spread evenly first, and a payment is
off by one unit and its share of what float64 could not resolve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LARGEST", "format_units", "to_units"]

Array = NDArray[np.float64]

#: The largest amount that the books hold: 63 bits.
LARGEST = 2**63 - 1

_BALANCE = 1e-9  # how far real payments may miss zero, as a share of all; or half a unit
_SPLIT = 134217729.0  # 2^27 + 1: Veltkamp's splitting of a float64 into halves
_EXACT = (1e-250, 2.0**62)  # between these the products below are exact in pairs of float64


def to_units(payments: ArrayLike, scale: int, keys: Sequence[str]) -> list[int]:
    """Whole units at 10^−scale that sum to zero, in the order of the payments.

    Args:
        payments: p_i, real numbers that sum to zero up to rounding.
        scale: decimal places of a unit.
        keys: the members' keys, which break ties; smaller first.

    Example:
        >>> to_units([1.0, -1 / 3, -1 / 3, -1 / 3], 2, ["a", "b", "c", "d"])
        [100, -33, -33, -34]
    """
    reals = np.asarray(payments, dtype=np.float64)
    if reals.ndim != 1 or reals.size != len(keys):
        raise ValueError(f"{len(keys)} keys need as many payments, got shape {reals.shape}")
    finite = np.isfinite(reals)
    if not finite.all():
        bad = int(np.argmin(finite))
        raise ValueError(f"payment of {keys[bad]!r} is {reals[bad]}, must be a finite number")
    paying = np.flatnonzero(reals)
    if not paying.size:
        return [0] * reals.size
    used = reals[paying]
    size = np.abs(used)
    largest = float(size.max()) * 10.0**scale
    if largest > 2.0**64:
        raise _too_large(largest, scale)
    total = math.fsum(used.tolist())
    if abs(total) > max(_BALANCE * float(size.sum()), 0.5 * 10.0**-scale):
        raise ValueError(
            f"payments sum to {total:.6g}, must sum to zero: nobody would pay the rest"
        )
    # Between −½ and 0 the remainder x + 1 has more digits than a float64.
    below = np.any((used < 0) & (used * 10.0**scale > -0.5 - 1e-9))
    if largest < _EXACT[1] and float(size.min()) * 10.0**scale > _EXACT[0] and not below:
        floors, remainders = _fast(used, 10.0**scale)
    else:
        floors, remainders = _slow(used, 10**scale)
    each, rest = divmod(-sum(floors), len(floors))
    units = [floor + each for floor in floors] if each else floors
    if rest:
        for i in _largest(remainders, rest, [keys[i] for i in paying.tolist()]):
            units[i] += 1
    worst = max(max(units), -min(units))
    if worst > LARGEST:
        raise _too_large(float(worst), scale)
    if len(units) == reals.size:
        return units
    result = [0] * reals.size
    for i, unit in zip(paying.tolist(), units, strict=True):
        result[i] = unit
    return result


def format_units(units: int, scale: int, currency: str = "") -> str:
    """Units as a decimal number, exactly.

    Example:
        >>> format_units(-1234, 2, "EUR")
        '-12.34 EUR'
    """
    digits = f"{abs(units):0{scale + 1}d}"
    whole, part = (digits[:-scale], "." + digits[-scale:]) if scale else (digits, "")
    return f"{'-' if units < 0 else ''}{whole}{part}{' ' + currency if currency else ''}"


def _largest(remainders: Sequence[NDArray[Any]], count: int, keys: list[str]) -> list[int]:
    """Which `count` come first: the largest remainder, then the smaller key."""
    order = np.lexsort(tuple(remainders))
    last, next_ = order[count - 1], order[count]
    if any(part[last] != part[next_] for part in remainders):
        return order[:count].tolist()  # no tie where it would matter
    rank = np.empty(len(keys), dtype=np.intp)
    rank[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return np.lexsort((rank, *remainders))[:count].tolist()


def _fast(reals: Array, power: float) -> tuple[list[int], tuple[Array, Array]]:
    """⌊x⌋ and the remainders, as sort keys, in pairs of float64 (Dekker's exact product)."""
    product = reals * power
    a, b = _halves(reals), _halves(np.float64(power))
    error = ((a[0] * b[0] - product) + a[0] * b[1] + a[1] * b[0]) + a[1] * b[1]
    floor = np.floor(product)
    high, low = _two_sum(product - floor, error)
    more = np.floor(high)
    more -= (high == more) & (low < 0)
    high, low = _two_sum(high - more, low)
    return (floor.astype(np.int64) + more.astype(np.int64)).tolist(), (-low, -high)


def _slow(reals: Array, power: int) -> tuple[list[int], tuple[NDArray[np.intp]]]:
    """The same in integers of any size, for amounts that are tiny or huge."""
    pairs = [value.as_integer_ratio() for value in reals.tolist()]
    common = max(below for _, below in pairs)  # powers of two: the largest is a multiple of all
    parts = [divmod(above * power * (common // below), common) for above, below in pairs]
    ranks = {rest: i for i, rest in enumerate(sorted({rest for _, rest in parts}, reverse=True))}
    order = np.array([ranks[rest] for _, rest in parts], dtype=np.intp)
    return [floor for floor, _ in parts], (order,)


def _halves(value: Array | np.float64) -> tuple[Array | np.float64, Array | np.float64]:
    upper = value * _SPLIT
    upper = upper - (upper - value)
    return upper, value - upper


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """A + b as a rounded sum and its error (Knuth)."""
    total = a + b
    shifted = total - a
    return total, (a - (total - shifted)) + (b - shifted)


def _too_large(units: float, scale: int) -> ValueError:
    return ValueError(
        f"an amount of {units:.6g} units at scale {scale} passes the limit of 63 bits, "
        f"{LARGEST}; lower the scale or the price"
    )
