"""What terms allow that whoever agrees on them should know; nothing of it makes them wrong."""

from __future__ import annotations

from verax.mechanism.price import Blocks
from verax.mechanism.terms import Terms

#: A typical payment of fewer of the smallest unit than this is lost in rounding.
_FEWEST_UNITS = 10.0

#: From so many rounds on, an update's influence depends much on when it is sent.
_MANY_ROUNDS = 10


def cautions(terms: Terms, rounds: int | None = None) -> list[str]:
    """One sentence for each thing to know.

    Args:
        terms: what is agreed on.
        rounds: of the run; None: as many as the terms have prices for, or were audited for.

    Example:
        >>> from verax.mechanism import Price
        >>> [text[:43] for text in cautions(Terms(Price.constant(0.5)), rounds=100)]
        ['the price is the same in all of 100 rounds:']
    """
    audited = terms.audited
    known = rounds or terms.price.rounds or (audited.rounds if audited is not None else 0)
    found = [_small_payments(terms), _constant_price(terms, known)]
    return [text for text in found if text]


def _small_payments(terms: Terms) -> str:
    """A warning if a typical update of the audited band costs too few units to be told apart.

    Typical is the levy C n of an update in the middle of the band, n = (lowest + highest) / 2,
    with the mean price of the members.
    """
    audited = terms.audited
    if audited is None:
        return ""
    small: list[tuple[int, int, float]] = []
    for first, last in Blocks(audited.starts, audited.rounds).ranges:
        if terms.price.rounds and first > terms.price.rounds:
            break
        price = float(terms.price.at(first).mean())
        units = price * sum(audited.band(first)) / 2 * 10.0**terms.scale
        if units < _FEWEST_UNITS:
            small.append((first, last, units))
    if not small:
        return ""
    first, last, units = min(small, key=lambda each: each[2])
    return (
        f"in rounds {first} to {last} a typical update costs {units:.2g} of the smallest unit of "
        f"{terms.currency} (10^-{terms.scale}), fewer than {_FEWEST_UNITS:g}: rounding hides what "
        "members do there; choose a larger scale"
    )


def _constant_price(terms: Terms, rounds: int) -> str:
    """A warning if a price that never changes is charged for many rounds."""
    price = terms.price
    changes = price.discount or any(row != price.values[0] for row in price.values)
    if changes or rounds < _MANY_ROUNDS or not any(map(any, price.values)):
        return ""
    return (
        f"the price is the same in all of {rounds} rounds: a member that is absent except in the "
        "last rounds, where an update matters most, saves what the earlier ones cost"
        f"{_early_share(terms)}; charge an audit's price profile, or absence by policy.missing"
    )


def _early_share(terms: Terms) -> str:
    """Which part of a typical member's levies falls due before the last audited block.

    At a constant price the levies of a block of k rounds are proportional to k n, with n in the
    middle of the block's band.
    """
    audited = terms.audited
    if audited is None or len(audited.starts) < 2:
        return ""
    ranges = Blocks(audited.starts, audited.rounds).ranges
    levies = [(last - first + 1) * sum(audited.band(first)) for first, last in ranges]
    share = 1 - levies[-1] / sum(levies) if sum(levies) else 0.0
    return f" (by the audited norms {100 * share:.0f} % of its levies before round {ranges[-1][0]})"
