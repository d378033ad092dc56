"""Effective weights: what a weight costs, and that nobody raises what the others pay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.mechanism import SquaredNorm, Weights, effective_weights, pay

COUNTS = st.lists(st.floats(1.0, 1e9), min_size=2, max_size=8)


def plainly(counts):
    result = []
    for i, own in enumerate(counts):
        others = [x for j, x in enumerate(counts) if j != i]
        number = sum(others) ** 2 / sum(x * x for x in others) if others else 0.0
        result.append((1 + number) * own / sum(counts))
    return result


@given(COUNTS)
def test_they_are_what_the_definition_says(counts):
    np.testing.assert_allclose(effective_weights(counts), plainly(counts), rtol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("value", [1.0, 10.0, 3e-200, 7e150])
def test_equal_weights_are_exactly_one(count, value):
    assert effective_weights([value] * count).tolist() == [1.0] * count


def test_a_worked_example():
    """Of 3, 1 and 1: the first has (1 + 2) 3/5; for the others E = 16/10."""
    np.testing.assert_allclose(effective_weights([3, 1, 1]), [9 / 5, 2.6 / 5, 2.6 / 5])


def test_weights_of_any_range():
    assert effective_weights([]).size == 0
    found = effective_weights([1e150, 1e-150, 1e-150])
    np.testing.assert_allclose(found, [3.0, 0.0, 0.0], atol=1e-12)


@given(COUNTS, st.floats(1.0, 1e6))
def test_more_weight_costs_more(counts, factor):
    more = [counts[0] * factor, *counts[1:]]
    assert effective_weights(more)[0] >= effective_weights(counts)[0] * (1 - 1e-12)
    assert effective_weights(more)[0] <= len(counts) * (1 + 1e-12)


@given(COUNTS, st.lists(st.floats(1e-12, 1e10), min_size=1, max_size=30))
def test_replies_that_join_raise_weights_by_no_more_than_the_bound(counts, joining):
    """(1 + ξ)², where ξ is what joins relative to what the others of a member have."""
    before = effective_weights(counts)
    after = effective_weights([*counts, *joining])
    for i, own in enumerate(counts):
        xi = sum(joining) / (sum(counts) - own)
        assert after[i] <= (1 + xi) ** 2 * before[i] * (1 + 1e-9)


@given(COUNTS, st.integers(1, 40))
def test_any_number_of_replies_next_to_zero_changes_no_levy(counts, identities):
    norms = np.linspace(1.0, 2.0, len(counts))
    before = effective_weights(counts) ** 2 * norms
    weights = effective_weights([*counts, *[1e-12] * identities])
    after = weights**2 * np.append(norms, np.zeros(identities))
    np.testing.assert_allclose(after[: len(counts)], before, rtol=1e-9)
    paid = pay(SquaredNorm(), after, price=3.0).amounts
    assert (paid <= 3.0 * after + 1e-9).all()


@pytest.mark.parametrize(("fewest", "most"), [(0, 5), (-1, 5), (6, 5), (1, 2**60)])
def test_limits_that_are_none_are_refused(fewest, most):
    with pytest.raises(ValueError, match=r"must be whole numbers with 1 ≤ fewest"):
        Weights(fewest=fewest, most=most)
