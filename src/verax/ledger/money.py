r"""Money is integers: the real payments of a round become minor units that sum to exactly zero.

With x_i = p_i · 10^scale, computed exactly, the largest-remainder method first gives every member
⌊x_i⌋; the k = −Σ ⌊x_i⌋ units that are still missing go, one each, to the members with the largest
remainders x_i − ⌊x_i⌋, and ties to the smaller key. So Σ = 0 and |units_i − x_i| ≤ 1. A member
whose payment is exactly zero gets no unit.

Real payments sum to zero only up to the rounding of float64. Where a unit is smaller than that
rounding (for example at 18 decimal places), k may lie outside 0 … m for m paying members; then
⌊k/m⌋ units go to each of them first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: The largest amount that a book can hold, in minor units: 63 bits.
MAX_AMOUNT = 2**63 - 1

_BALANCE = 1e-9  # the largest sum of payments that counts as zero, relative to their sizes


def to_units(payments: ArrayLike, scale: int, keys: Sequence[str]) -> list[int]:
    """Payments in minor units of 10^−scale that sum to zero, in the order of the payments.

    Args:
        payments: p_i, real numbers that sum to zero up to rounding.
        scale: decimal places of a minor unit.
        keys: the members' keys, which break ties; the smaller key comes first.

    Example:
        >>> to_units([1.0, -1 / 3, -1 / 3, -1 / 3], 2, ["a", "b", "c", "d"])
        [100, -33, -33, -34]
    """
    reals = np.asarray(payments, dtype=np.float64)
    if reals.ndim != 1 or reals.size != len(keys):
        raise ValueError(f"{len(keys)} keys need as many payments, got shape {reals.shape}")
    _check_payments(reals, scale, keys)
    units = [0] * reals.size
    paying = np.flatnonzero(reals).tolist()
    if not paying:
        return units
    # Exact integers: p_i = mantissa_i · 2^(exponent_i − 53), so x_i · 2^shift is whole for all i.
    fractions, exponents = np.frexp(reals[paying])
    mantissas = (fractions * 2.0**53).astype(np.int64).tolist()
    shift = max(0, 53 - int(exponents.min()))
    power, mask = 10**scale, (1 << shift) - 1
    scaled = [
        m * power << (e - 53 + shift) for m, e in zip(mantissas, exponents.tolist(), strict=True)
    ]
    floors = [x >> shift for x in scaled]
    remainders = [x & mask for x in scaled]
    each, rest = divmod(-sum(floors), len(floors))
    # By key first; sorting by remainder then keeps that order among equal remainders.
    order = sorted(range(len(paying)), key=[keys[i] for i in paying].__getitem__)
    order.sort(key=remainders.__getitem__, reverse=True)
    for i, floor in zip(paying, floors, strict=True):
        units[i] = floor + each
    for k in order[:rest]:
        units[paying[k]] += 1
    largest = max(max(units), -min(units))
    if largest > MAX_AMOUNT:
        raise _too_large(largest, scale)
    return units


def format_units(units: int, scale: int, currency: str = "") -> str:
    """An amount in minor units as a decimal number, exactly.

    Example:
        >>> format_units(-1234, 2, "EUR")
        '-12.34 EUR'
    """
    digits = f"{abs(units):0{scale + 1}d}"
    whole, part = (digits[:-scale], "." + digits[-scale:]) if scale else (digits, "")
    return f"{'-' if units < 0 else ''}{whole}{part}{' ' + currency if currency else ''}"


def _check_payments(payments: NDArray[np.float64], scale: int, keys: Sequence[str]) -> None:
    """Refuse payments that are not finite, too large for a book, or do not sum to zero."""
    finite = np.isfinite(payments)
    if not finite.all():
        bad = int(np.argmin(finite))
        raise ValueError(f"payment of {keys[bad]!r} is {payments[bad]}, must be a finite number")
    sizes = np.abs(payments)
    largest = float(np.max(sizes, initial=0.0)) * 10.0**scale
    if largest > 2.0**64:
        raise _too_large(largest, scale)
    total = float(payments.sum())
    if abs(total) > max(0.5 * 10.0**-scale, _BALANCE * float(sizes.sum())):
        raise ValueError(f"payments sum to {total:.6g}, must sum to zero")


def _too_large(units: float, scale: int) -> ValueError:
    return ValueError(
        f"an amount of {units:.6g} units at scale {scale} exceeds the limit of 63 bits, "
        f"{MAX_AMOUNT}; lower the scale or the price"
    )
