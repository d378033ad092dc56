"""Windows against brute force over many prices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from verax.audit.judge.windows import (
    best_price,
    common_window,
    find_window,
    interval,
    seeds_needed,
    valley,
)

numbers = st.floats(-2, 2).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.floats(0.01, 0.5))
def test_window_is_where_nothing_gains_more_than_the_tolerance(rows, tolerance):
    gains, rises = np.array(rows).T
    window = find_window(
        gains[:, None], rises[:, None], tolerance, ["d"] * len(rows), np.random.default_rng(0), 3
    )
    prices = np.linspace(0, 300, 3001)
    fine = valley(gains, rises, prices) <= tolerance + 1e-9
    inside = np.array([price in window for price in prices])
    near = np.zeros_like(inside)
    for end in (window.low, window.high):
        if np.isfinite(end):
            near |= np.abs(prices - end) < 1e-6
    assert np.all((fine == inside) | near)
    assert (
        window.empty == (not fine.any())
        or window.high < 0.1
        or window.low > 300
        or (window.high - window.low < 0.1)
    )
    if window.empty:
        assert window.reason
        assert str(window) == "none"


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_the_best_price_by_search(rows):
    gains, rises = np.array(rows).T
    price, worst = best_price(gains, rises)
    prices = np.concatenate([np.linspace(0, 20, 2001), np.geomspace(1e-6, 1e6, 500)])
    assert worst <= valley(gains, rises, prices).min() + 1e-6
    assert valley(gains, rises, np.array([price]))[0] == pytest.approx(worst)


def test_hand_worked_window():
    # over-reporting: gains 1, pays 10 more; under-reporting: loses 0.5, is paid 2
    gains, rises = np.array([[1.0, 1.0], [-0.5, -0.5]]), np.array([[10.0, 10.0], [-2.0, -2.0]])
    found = find_window(gains, rises, 0.1, ["more", "less"], np.random.default_rng(0))
    assert_allclose([found.low, found.high], [0.09, 0.3])
    assert found.low_interval == pytest.approx((0.09, 0.09))
    free = find_window(gains, -rises, 0.1, ["more", "less"], np.random.default_rng(0))
    assert "no price deters “more”" in free.reason
    assert np.isnan(free.low)
    tight = find_window(gains * [[1], [0.1]], rises, 0.01, ["a", "b"], np.random.default_rng(0))
    assert "what deters “a” makes “b” pay" in tight.reason
    assert common_window([found, found]) == (found.low, found.high)


@pytest.mark.parametrize("half", [0.01, 0.3, 1.0, 50.0])
def test_the_seeds_needed_are_the_fewest(half):
    values = np.array([1.0, 2.0, 4.0, 3.0])
    spread = values.std(ddof=1)

    def half_width(n):
        return stats.t.ppf(0.975, n - 1) * spread / np.sqrt(n)

    n = seeds_needed(values, half)
    assert half_width(n) <= half
    assert n == 2 or half_width(n - 1) > half


def test_interval_is_students():
    values = np.array([1.0, 2.0, 4.0, 3.0])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert_allclose(interval(values), (2.5, low, high))
    assert interval(np.array([2.0])) == (2.0, 2.0, 2.0)


def test_resampled_ends_hold_the_true_one():
    """In 200 audits of 8 seeds the interval of the lower end holds its true value mostly."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        gains = 1.0 + 0.3 * rng.standard_normal((1, 8))
        window = find_window(gains, np.full((1, 8), 10.0), 0.1, ["d"], rng, 200)
        hits += window.low_interval[0] <= 0.09 <= window.low_interval[1]
    assert hits > 160
