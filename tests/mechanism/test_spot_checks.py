"""Spot checks: draws that anybody can recompute, and levies with the right expectation."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from verax.mechanism.spot_checks import Measured, SpotChecks, draw_rounds, shared

KEY = "auditor+00000000+AQ=="


def test_a_draw_is_what_its_description_says():
    """The first position whose cumulative influence exceeds u times the sum, by hand."""
    influence = [0.5, 0.0, 2.0, 1.5]
    for k, position in enumerate(draw_rounds("seed", 7, influence, 20)):
        digest = hashlib.sha256(f"verax/draw/v1\nseed\n7\n{k}\n".encode()).hexdigest()
        u = Fraction(int(digest, 16), 2**256)
        sums = [Fraction(1, 2), Fraction(1, 2), Fraction(5, 2), Fraction(4)]
        assert position == next(i for i, s in enumerate(sums) if s > u * 4)


def test_rounds_are_drawn_in_proportion_to_their_influence():
    """20,000 seeds; a chi-squared test, which fails by chance once in 10,000."""
    influence = [1.0, 2.0, 0.0, 5.0]
    drawn = [draw_rounds(f"{seed}", 1, influence, 1)[0] for seed in range(20_000)]
    counts = np.bincount(drawn, minlength=4)
    assert counts[2] == 0
    expected = 20_000 * np.array([1, 2, 5]) / 8
    assert chisquare(counts[[0, 1, 3]], expected).pvalue > 1e-4


def test_draws_differ_by_member_and_seed_and_nothing_is_drawn_without_influence():
    influence = [1.0] * 1000
    first = draw_rounds("a", 1, influence, 5)
    assert first != draw_rounds("a", 2, influence, 5)
    assert first != draw_rounds("b", 1, influence, 5)
    assert draw_rounds("a", 1, [0.0, 0.0], 5) == draw_rounds("a", 1, [], 5) == []


def test_levies_have_the_expected_value():
    """E f = c Σ C_t w_t² d_t, over 4,000 draws with their standard error."""
    rng = np.random.default_rng(0)
    prices, weights, distances = rng.exponential(size=(3, 6))
    terms = SpotChecks(KEY, fine=10.0, rounds=2)
    levies = []
    for seed in range(4_000):
        drawn = draw_rounds(f"{seed}", 1, prices.tolist(), 2)
        measured = [Measured(weights[t], distances[t], 1.0) for t in drawn]
        levies.append(terms.levy("checked", float(prices.sum()), measured))
    error = np.std(levies) / np.sqrt(len(levies))
    assert abs(np.mean(levies) - 10 * np.sum(prices * weights**2 * distances)) < 4 * error


def test_honest_members_pay_nothing_within_the_tolerance_and_everything_beyond_it():
    terms = SpotChecks(KEY, fine=10.0, tolerance=1e-3)
    assert terms.levy("checked", 2.0, [Measured(1.0, 0.0, 4.0)]) == 0
    assert terms.levy("checked", 2.0, [Measured(1.0, 3.9e-6, 4.0)]) == 0
    assert terms.levy("checked", 2.0, [Measured(3.0, 4.1e-6, 4.0)]) == pytest.approx(7.38e-4)
    assert SpotChecks(KEY, fine=1.0).levy("checked", 2.0, [Measured(1.0, 1e-30, 4.0)]) > 0


def test_a_check_that_did_not_take_place_costs_its_fee():
    terms = SpotChecks(KEY, fine=10.0, refused=5.0, mismatch=6.0, missing=7.0)
    assert [terms.levy(outcome, 1.0, []) for outcome in ("refused", "mismatch", "missing")] == [
        5.0,
        6.0,
        7.0,
    ]


def test_the_others_receive_the_levy_in_equal_parts():
    assert_allclose(shared(6.0, 1, 4), [-2.0, 6.0, -2.0, -2.0])
    assert shared(6.0, 0, 1).tolist() == [0.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auditor": "me"}, "spot.auditor is 'me', must be name"),
        ({"rounds": 0}, "spot.rounds is 0, must be 1"),
        ({"tolerance": 1.0}, "spot.tolerance is 1, must be"),
        ({"fine": float("nan")}, "spot.fine is nan, must be"),
        ({"refused": -1.0}, "spot.refused is -1, must be"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SpotChecks(**({"auditor": KEY, "fine": 1.0} | settings))
