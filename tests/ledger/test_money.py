"""Whole units that sum to zero, against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.ledger import verify
from verax.ledger.money import MAX_AMOUNT, format_units, to_units

CASES = 20_000
BATCH = 400


def oracle(payments, scale, keys):
    """Largest remainder in fractions, sorted the plain way."""
    exact = [Fraction(p) * 10**scale for p in payments]
    some = [i for i, x in enumerate(exact) if x]
    floors = {i: x.__floor__() for i, x in enumerate(exact)}
    each, more = divmod(-sum(floors.values()), max(len(some), 1))
    order = sorted(some, key=lambda i: (floors[i] - exact[i], keys[i]))
    return [floors[i] + (each + (i in order[:more]) if i in some else 0) for i in range(len(exact))]


def draw(rng, rows, n, kind, size):
    values = rng.normal(0, size, (rows, n))
    if kind == "rounded":  # many equal remainders, and zeros
        values = np.round(values / size * 4) / 4 * size
    elif kind == "one pays":
        values = np.zeros((rows, n))
        values[:, 0] = size * rng.uniform(1, 2, rows)
    elif kind == "spread":
        values = values * 10.0 ** rng.uniform(-9, 0, (rows, n))
    there = np.ones((rows, n), dtype=bool)
    if kind == "absent":
        there = rng.random((rows, n)) < 0.5
    values = np.where(there, values, 0.0)
    mean = values.sum(axis=1, keepdims=True) / np.maximum(there.sum(axis=1, keepdims=True), 1)
    return np.where(there, values - mean, 0.0)


def test_remainders_that_differ_in_their_last_digit():
    """1 − 0.357… is larger than 0.642… by less than a float64 can say."""
    payments = [0.39285714285714285, -1.1071428571428572, -0.10714285714285715]
    payments += [0.6428571428571428, 0.6428571428571428, -0.10714285714285715, -0.35714285714285715]
    keys = ["k2", "k5", "k3", "k4", "k0", "k1", "k6"]
    assert to_units(payments, 0, keys) == [0, -1, 0, 0, 1, 0, 0] == oracle(payments, 0, keys)


def test_many_rounds_sum_to_zero_within_a_unit():
    count = 0

    @settings(max_examples=CASES // BATCH)
    @given(
        seed=st.integers(0, 2**32 - 1),
        scale=st.integers(0, 9),
        size=st.floats(-6, 5),
        kind=st.sampled_from(["normal", "rounded", "one pays", "spread", "absent"]),
    )
    def check(seed, scale, size, kind):
        nonlocal count
        rng = np.random.default_rng(seed)
        power = 10**scale
        for n in rng.choice(np.arange(1, 9), 4, replace=False).tolist():
            keys = [f"k{i}" for i in rng.permutation(n).tolist()]
            for payments in draw(rng, BATCH // 4, n, kind, 10.0**size).tolist():
                units = to_units(payments, scale, keys)
                assert sum(units) == 0
                # |u − x| ≤ 1 in exact arithmetic: x = above/below · 10^scale
                for unit, value in zip(units, payments, strict=True):
                    above, below = value.as_integer_ratio()
                    assert abs(unit * below - above * power) <= below
                count += 1
                assert verify._to_units(payments, scale, keys) == units
            assert units == oracle(payments, scale, keys)

    check()
    assert count >= CASES


def test_ten_thousand_members():
    rng = np.random.default_rng(0)
    payments = rng.lognormal(0, 2, 10_000)
    payments -= payments.mean()
    keys = [f"{i:05d}" for i in range(10_000)]
    units = to_units(payments, 3, keys)
    assert sum(units) == 0
    assert np.abs(np.array(units) - payments * 1e3).max() <= 1
    assert units == oracle(payments.tolist(), 3, keys)


@settings(max_examples=300)
@given(
    st.lists(st.floats(-1e300, 1e300, allow_subnormal=True), min_size=1, max_size=6),
    st.integers(-1070, 0),
    st.integers(0, 18),
)
def test_tiny_and_huge_amounts_are_exact_too(values, exponent, scale):
    unit = max(map(abs, values)) or 1.0
    paid = [float(v / unit * 2.0**exponent) for v in values]
    paid += [-v for v in paid]  # sums to zero exactly
    keys = [f"{i}" for i in range(len(paid))]
    units = to_units(paid, scale, keys)
    assert sum(units) == 0
    assert units == oracle(paid, scale, keys)


def test_ties_go_to_the_smaller_key_and_zero_stays_zero():
    assert to_units([1.0, -1 / 3, -1 / 3, -1 / 3], 2, ["d", "c", "b", "a"]) == [100, -34, -33, -33]
    assert to_units([0.5, 0.5, -1.0, 0.0], 0, ["z", "y", "x", "a"]) == [0, 1, -1, 0]
    assert to_units([0.0, 0.0], 2, ["a", "b"]) == [0, 0]
    assert to_units([], 2, []) == []


def test_finer_than_float64_is_still_balanced():
    rng = np.random.default_rng(5)
    payments = rng.uniform(-1, 1, 50)
    payments -= payments.mean()
    keys = [f"{i:02d}" for i in range(50)]
    units = to_units(payments, 18, keys)
    assert sum(units) == 0
    assert units == oracle(payments.tolist(), 18, keys)
    exact = [Fraction(p) * 10**18 for p in payments.tolist()]
    rest = abs(sum(exact)) / 50  # what float64 could not balance, a share each
    assert rest > 1
    assert max(abs(u - x) for u, x in zip(units, exact, strict=True)) <= 1 + rest


@pytest.mark.parametrize(
    ("payments", "scale", "words"),
    [
        ([1e19, -1e19], 0, "63 bits"),
        ([10.0, -10.0], 18, "63 bits"),
        ([2.0**63, -(2.0**63)], 0, "63 bits"),
        ([1.0, 1.0], 2, "sum to zero"),
        ([float("nan"), 0.0], 2, "finite"),
        ([float("inf"), -float("inf")], 2, "finite"),
        ([1.0], 2, "keys"),
    ],
)
def test_refused(payments, scale, words):
    with pytest.raises(ValueError, match=words):
        to_units(payments, scale, ["a", "b"])


def test_the_largest_amount_fits():
    largest = float(2**63 - 1024)
    assert to_units([largest, -largest], 0, ["a", "b"]) == [2**63 - 1024, -(2**63 - 1024)]
    assert MAX_AMOUNT == 2**63 - 1


@pytest.mark.parametrize(
    ("units", "scale", "text"),
    [(0, 0, "0"), (-5, 2, "-0.05"), (12345, 2, "123.45"), (7, 0, "7"), (-(2**63) + 1, 18,
     "-9.223372036854775807")],
)  # fmt: skip
def test_format(units, scale, text):
    assert format_units(units, scale) == text
