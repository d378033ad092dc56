r"""Money is integers: a round's real payments become whole units that sum to exactly zero.

With x_i = p_i · 10^scale exactly (no rounding on the way) every member first gets ⌊x_i⌋; the units
k = −Σ ⌊x_i⌋ still missing go, one each, to those with the largest remainder x_i − ⌊x_i⌋, ties to
the smaller key. So Σ = 0 and |units_i − x_i| ≤ 1. Whoever pays exactly nothing stays at nothing.

Real payments balance only up to the rounding of float64. Where a unit is smaller than that rounding
(say, 18 decimal places), k may lie outside 0 … m; it is then spread evenly first, and a payment is
off by one unit and its share of what float64 could not resolve.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LARGEST", "format_units", "to_units"]

Array = NDArray[np.float64]

#: The largest amount that the books hold: 63 bits.
LARGEST = 2**63 - 1

_BALANCE = 1e-9  # how far real payments may miss zero, as a share of all; or half a unit
_FLOAT = 2.0**40  # larger amounts leave float64 too few digits for their remainders


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
    paying = np.flatnonzero(reals)
    if not paying.size:
        return [0] * reals.size
    used = reals if paying.size == reals.size else reals[paying]
    size = np.abs(used)
    largest = float(size.max()) * 10.0**scale
    if not largest <= 2.0**64:
        finite = np.isfinite(reals)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise ValueError(f"payment of {keys[bad]!r} is {reals[bad]}, must be a finite number")
        raise _too_large(largest, scale)
    total = float(used.sum())
    if abs(total) > 0.5 * 10.0**-scale and abs(total) > _BALANCE * float(size.sum()):
        raise ValueError(
            f"payments sum to {total:.6g}, must sum to zero: nobody would pay the rest"
        )
    units = _rounded(used, scale, largest)
    if units is None:
        units = _exactly(used, 10**scale, [keys[i] for i in paying.tolist()])
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


def _rounded(reals: Array, scale: int, largest: float) -> list[int] | None:
    """The units by float64, or None where its rounding could have decided something."""
    if largest > _FLOAT:
        return None
    scaled = reals * 10.0**scale
    floors = np.floor(scaled)
    remainders = scaled - floors
    doubt = 2.0**-52 * (largest + 1)  # how far a remainder may be off
    order = np.argsort(-remainders)
    ranked = remainders[order]
    if not doubt < ranked[-1] <= ranked[0] < 1 - doubt:
        return None
    units = floors.astype(np.int64)
    each, rest = divmod(-int(units.sum()), len(units))
    if rest:
        if ranked[rest - 1] - ranked[rest] <= 2 * doubt:
            return None
        units[order[:rest]] += 1
    return (units + each).tolist()


def _exactly(reals: Array, power: int, keys: list[str]) -> list[int]:
    """The units in integers of any size."""
    pairs = [value.as_integer_ratio() for value in reals.tolist()]
    common = max(below for _, below in pairs)  # powers of two: the largest is a multiple of all
    parts = [divmod(above * power * (common // below), common) for above, below in pairs]
    each, rest = divmod(-sum(floor for floor, _ in parts), len(parts))
    order = sorted(range(len(parts)), key=lambda i: (-parts[i][1], keys[i]))
    units = [floor + each for floor, _ in parts]
    for i in order[:rest]:
        units[i] += 1
    return units


def _too_large(units: float, scale: int) -> ValueError:
    return ValueError(
        f"an amount of {units:.6g} units at scale {scale} passes the limit of 63 bits, "
        f"{LARGEST}; lower the scale or the price"
    )
