r"""Money is integers: the real payments of a round become minor units that sum to exactly zero.

A minor unit has 10^9 nano-units. What rounding leaves over is carried: c_i is what member i paid
too little so far, in nano-units, and Σ_i c_i = 0 over all members. For the m members whose payment
in the round is not zero, with x_i = p_i · 10^{scale + 9} computed exactly,

    f_i = ⌊x_i⌋ plus the missing −Σ_j ⌊x_j⌋ nano-units, one each to the largest remainders,
    y_i = c_i + f_i − (1/m) Σ_j c_j,                                so that Σ_i y_i = 0,
    u_i = ⌊y_i / 10^9⌋ plus the missing units, one each to the largest remainders,
    c_i ← c_i + f_i − 10^9 u_i.

Ties go to the smaller account number; who lost one has the larger remainder next time. All other
members have u_i = 0 and keep c_i. So Σ_i u_i = 0 in every round, and what a member was charged over
all rounds is within one unit of what it should have paid, plus the mean c_j of those that it
shared its last round with (zero if they are all members).

Real payments sum to zero only up to the rounding of float64. Where a nano-unit is smaller than
that, the missing amount may lie outside 0 … m; then its m-th part goes to each first.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.text import shown

#: The largest amount that a book can hold, in minor units: 63 bits.
MAX_AMOUNT = 2**63 - 1

#: Nano-units in a minor unit.
NANO = 10**9

_MAX_DIGITS = 30  # of an amount as text: longer ones do not fit into a book
_BALANCE = 1e-9  # the largest sum of payments that counts as zero, relative to their sizes


def to_units(
    payments: ArrayLike, scale: int, carried: Sequence[int] | None = None
) -> tuple[list[int], list[int]]:
    """Minor units of 10^−scale that sum to zero, and the remainders to carry, in nano-units.

    Args:
        payments: p_i, real numbers that sum to zero up to rounding.
        scale: decimal places of a minor unit.
        carried: c_i before the round; by default zero.

    Example:
        >>> units, carried = to_units([1.0, -1 / 3, -1 / 3, -1 / 3], 2)
        >>> units, carried
        ([100, -33, -33, -34], [0, -333333333, -333333333, 666666666])
        >>> to_units([1.0, -1 / 3, -1 / 3, -1 / 3], 2, carried)[0]
        [100, -34, -33, -33]
    """
    reals = np.asarray(payments, dtype=np.float64)
    before = (0,) * reals.size if carried is None else tuple(carried)
    units, after = _to_units(tuple(reals.tolist()), scale, before)
    return list(units), list(after)


@lru_cache(maxsize=2)  # a round is computed when it is charged and when it is applied
def _to_units(
    payments: tuple[float, ...], scale: int, carried: tuple[int, ...]
) -> tuple[list[int], list[int]]:
    reals = np.array(payments)
    _check_payments(reals, scale)
    units, after = [0] * reals.size, list(carried)
    paying = np.flatnonzero(reals).tolist()
    if not paying:
        return units, after
    before = [after[i] for i in paying]
    m = len(paying)
    totals = [c + f for c, f in zip(before, _nano_units(reals[paying], scale), strict=True)]
    # y_i · m, so that everything is whole.
    whole = apportion([m * total - sum(before) for total in totals], m * NANO)
    if max(max(whole), -min(whole)) > MAX_AMOUNT:
        raise _too_large(max(map(abs, whole)), scale)
    for i, unit, total in zip(paying, whole, totals, strict=True):
        units[i], after[i] = unit, total - NANO * unit
    return units, after


def apportion(parts: Sequence[int], unit: int) -> list[int]:
    """Parts as whole multiples of a unit that sum to zero, by the largest-remainder method."""
    floors = [part // unit for part in parts]
    each, rest = divmod(-sum(floors), len(parts))
    order = sorted(range(len(parts)), key=lambda i: -(parts[i] % unit))
    for i in order[:rest]:
        floors[i] += 1
    return [floor + each for floor in floors]


def _nano_units(reals: NDArray[np.float64], scale: int) -> list[int]:
    # Exact integers: p_i = mantissa_i · 2^(exponent_i − 53), so x_i · 2^shift is whole for all i.
    fractions, exponents = np.frexp(reals)
    mantissas = (fractions * 2.0**53).astype(np.int64).tolist()
    shift = max(0, 53 - int(exponents.min()))
    power = 10**scale * NANO
    pairs = zip(mantissas, exponents.tolist(), strict=True)
    return apportion([m * power << (e - 53 + shift) for m, e in pairs], 1 << shift)


def format_units(units: int, scale: int, currency: str = "") -> str:
    """An amount in minor units as a decimal number, exactly.

    Example:
        >>> format_units(-1234, 2, "EUR")
        '-12.34 EUR'
    """
    digits = f"{abs(units):0{scale + 1}d}"
    whole, part = (digits[:-scale], "." + digits[-scale:]) if scale else (digits, "")
    return f"{'-' if units < 0 else ''}{whole}{part}{' ' + currency if currency else ''}"


def parse_units(amount: str, scale: int) -> int:
    """A decimal number as minor units, exactly.

    Example:
        >>> parse_units("12.5", 2)
        1250
    """
    try:
        value = Decimal(amount).scaleb(scale)
        if not value.is_finite():
            raise ArithmeticError
        if value.adjusted() > _MAX_DIGITS:
            raise ValueError(f"amount is {shown(amount)}, must fit into 63 bits of minor units")
        units = int(value)
    except (ArithmeticError, TypeError):
        raise ValueError(f"amount is {shown(amount)}, must be a number such as 12.50") from None
    if units != value:
        raise ValueError(f"amount is {shown(amount)}, the books hold {scale} decimal places")
    return units


def _check_payments(payments: NDArray[np.float64], scale: int) -> None:
    """Refuse payments that are not finite, too large for a book, or do not sum to zero."""
    finite = np.isfinite(payments)
    if not finite.all():
        bad = int(np.argmin(finite))
        raise ValueError(f"payment {bad} is {payments[bad]}, must be a finite number")
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
