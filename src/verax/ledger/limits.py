"""What a book can hold: amounts of 63 bits, rounds of 63 bits, and prices that can be charged."""

from __future__ import annotations

from verax.ledger.engine import BookError
from verax.ledger.money import MAX_AMOUNT
from verax.mechanism import Terms


def check_round(name: str, value: int) -> None:
    """Refuse a round that is not a whole number in 1 … 2^63 − 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_AMOUNT:
        raise BookError(f"{name} is {value!r}, must be a whole number in 1 … {MAX_AMOUNT}")


def check_amount(name: str, units: int, *, low: int = -MAX_AMOUNT, zero: bool = False) -> None:
    """Refuse an amount that does not fit into 63 bits, or is zero where it must not be."""
    if not low <= units <= MAX_AMOUNT:
        raise BookError(
            f"{name} is {units} units, exceeds the limit of 63 bits: {low} … {MAX_AMOUNT}"
        )
    if units == 0 and low < 0 and not zero:
        raise BookError(f"{name} is 0 units, must not be zero")


def check_bookable(terms: Terms) -> None:
    """Refuse terms by which an update of squared norm 1 costs more than a book can hold.

    The same limit holds for the fee and the allowances.
    """
    limit = MAX_AMOUNT / 10**terms.scale
    values = {
        "price": max(max(row) for row in terms.price.values),
        "policy.fee": terms.policy.fee,
        "allowance": max((abs(value) for row in terms.allowances for value in row), default=0.0),
    }
    for name, value in values.items():
        if value > limit:
            raise BookError(
                f"{name} is {value:g}, must be at most {limit:.6g} at scale {terms.scale}: amounts "
                f"in a book have 63 bits; lower the {name.split('.')[-1]} or the scale"
            )
    if terms.price.rounds > MAX_AMOUNT:
        raise BookError(f"price.rounds is {terms.price.rounds}, must be at most {MAX_AMOUNT}")
