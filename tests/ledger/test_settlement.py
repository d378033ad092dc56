"""Settlements: every balance becomes zero, in the fewest transfers; against brute force."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.ledger import BookError
from verax.ledger.settlement import EXACT, settle


def after(balances, transfers):
    left = dict(balances)
    for t in transfers:
        assert t.amount > 0
        left[t.payer] -= t.amount
        left[t.receiver] += t.amount
    return left


def most_groups(values):
    """The largest number of zero-sum groups, by trying every first group."""
    if not values:
        return 0
    first, rest = values[0], values[1:]
    best = 0
    for size in range(len(rest) + 1):
        for chosen in combinations(range(len(rest)), size):
            if first + sum(rest[i] for i in chosen) == 0:
                others = [v for i, v in enumerate(rest) if i not in chosen]
                best = max(best, 1 + most_groups(others))
    return best


@settings(max_examples=150)
@given(st.lists(st.integers(-6, 6), max_size=7))
def test_fewest_against_brute_force(values):
    values = [*values, -sum(values)]
    balances = {f"m{i}": v for i, v in enumerate(values)}
    result = settle(balances)
    assert not any(after(balances, result.transfers).values())
    owing = [v for v in values if v]
    assert result.fewest
    assert len(result.transfers) == len(owing) - most_groups(owing)


@settings(max_examples=50)
@given(st.lists(st.integers(-(10**15), 10**15), min_size=EXACT, max_size=60))
def test_greedy_beyond(values):
    values = [*values, -sum(values)]
    balances = {f"m{i:03d}": v for i, v in enumerate(values)}
    result = settle(balances)
    owing = sum(1 for v in values if v)
    assert not any(after(balances, result.transfers).values())
    assert result.fewest == (owing <= EXACT)
    assert len(result.transfers) <= max(owing - 1, 0)


def test_where_greed_would_take_more():
    # greedy alone pays 6→5 and goes on; in groups: {6,-4,-2}, {5,-5}
    result = settle({"a": 6, "b": 5, "c": -5, "d": -4, "e": -2})
    assert len(result.transfers) == 3
    twelve = {f"m{i}": v for i, v in enumerate([1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6])}
    assert len(settle(twelve).transfers) == 6


def test_unbalanced_books_are_not_settled():
    with pytest.raises(BookError, match="sum to 1"):
        settle({"a": 1})
