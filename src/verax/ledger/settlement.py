r"""Settlements: who pays whom so that all balances become zero, in as few transfers as possible.

n balances that sum to zero need n − k transfers, where k is the largest number of groups that each
sum to zero by themselves: m − 1 transfers settle a group of m, and fewer would split it into
groups. For up to 12 members with a balance, dynamic programming over subsets finds k exactly:

    best(S) = max_{i ∈ S} best(S \ {i}) + [ΣS = 0].

For more members, equal and opposite balances are matched first; then the largest debtor pays the
largest creditor until nobody owes. That may take more transfers than needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verax.ledger.decisions import Transfer
from verax.ledger.engine import BookError

#: The largest number of members with a balance for which the fewest transfers are found.
EXACT = 12


@dataclass(frozen=True)
class Settlement:
    """Transfers that bring all balances to zero.

    Attributes:
        transfers: who pays whom.
        fewest: whether no smaller number of transfers would be enough.
    """

    transfers: tuple[Transfer, ...]
    fewest: bool


def settle(balances: Mapping[str, int]) -> Settlement:
    """The transfers for balances in minor units; a positive balance is owed by the member.

    Example:
        >>> [(t.payer, t.receiver, t.amount) for t in settle({"a": 5, "b": -3, "c": -2}).transfers]
        [('a', 'b', 3), ('a', 'c', 2)]
    """
    if sum(balances.values()):
        raise BookError(f"balances sum to {sum(balances.values())}, must sum to zero; verify first")
    nonzero = {member: amount for member, amount in sorted(balances.items()) if amount}
    if len(nonzero) > EXACT:
        pairs, rest = _opposites(nonzero)
        return Settlement((*pairs, *_greedy(rest)), fewest=False)
    transfers: list[Transfer] = []
    for group in _groups(nonzero):
        transfers += _greedy(group)
    return Settlement(tuple(transfers), fewest=True)


def _groups(balances: Mapping[str, int]) -> list[dict[str, int]]:
    """The largest number of groups that sum to zero."""
    members = list(balances)
    n = len(members)
    sums = [0] * (1 << n)
    best = [0] * (1 << n)
    last = [0] * (1 << n)
    for mask in range(1, 1 << n):
        low = mask & -mask
        sums[mask] = sums[mask ^ low] + balances[members[low.bit_length() - 1]]
        top, chosen = -1, 0
        rest = mask
        while rest:
            bit = rest & -rest
            rest ^= bit
            if best[mask ^ bit] > top:
                top, chosen = best[mask ^ bit], bit
        best[mask], last[mask] = top + (sums[mask] == 0), chosen
    # Removing the members one by one passes every subset at which a group is complete.
    groups: list[dict[str, int]] = []
    group: dict[str, int] = {}
    mask = (1 << n) - 1
    while mask:
        if sums[mask] == 0:
            group = {}
            groups.append(group)
        member = members[last[mask].bit_length() - 1]
        group[member] = balances[member]
        mask ^= last[mask]
    return groups


def _greedy(balances: Mapping[str, int]) -> list[Transfer]:
    """The largest debtor pays the largest creditor, until nobody owes: at most n − 1 transfers."""
    left = dict(balances)
    transfers: list[Transfer] = []
    while any(left.values()):
        payer = min(left, key=lambda m: (-left[m], m))
        receiver = min(left, key=lambda m: (left[m], m))
        amount = min(left[payer], -left[receiver])
        transfers.append(Transfer(payer, receiver, amount))
        left[payer] -= amount
        left[receiver] += amount
    return transfers


def _opposites(balances: Mapping[str, int]) -> tuple[list[Transfer], dict[str, int]]:
    """Transfers between members with opposite balances, and the other balances."""
    rest = dict(balances)
    owed: dict[int, list[str]] = {}
    for member, amount in balances.items():
        if amount < 0:
            owed.setdefault(-amount, []).append(member)
    transfers: list[Transfer] = []
    for member, amount in balances.items():
        if amount > 0 and owed.get(amount):
            receiver = owed[amount].pop(0)
            transfers.append(Transfer(member, receiver, amount))
            del rest[member], rest[receiver]
    return transfers, rest
