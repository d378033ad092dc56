"""Whole units that sum to zero, against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.ledger.money import MAX_AMOUNT, format_units, to_units
from verax.verifier import payments as verifier

CASES = 20_000
BATCH = 400


def apportioned(exact, keys):
    """Whole numbers near exact ones that sum to zero: largest remainders first, in fractions."""
    floors = {i: exact[i].__floor__() for i in keys}
    each, more = divmod(-sum(floors.values()), len(keys))
    order = sorted(keys, key=lambda i: (floors[i] - exact[i], i))
    return {i: floors[i] + each + (i in order[:more]) for i in keys}


def oracle(payments, scale, carried=None):
    """The definition in fractions of a unit: units, and what is carried in nano-units."""
    carried = list(carried or [0] * len(payments))
    paying = [i for i, p in enumerate(payments) if p]
    units = [0] * len(payments)
    if not paying:
        return units, carried
    nano = apportioned({i: Fraction(payments[i]) * 10 ** (scale + 9) for i in paying}, paying)
    mean = Fraction(sum(carried[i] for i in paying), len(paying))
    shares = {i: (carried[i] + nano[i] - mean) / 10**9 for i in paying}
    for i, unit in apportioned(shares, paying).items():
        units[i], carried[i] = unit, carried[i] + nano[i] - 10**9 * unit
    return units, carried


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
        for n in rng.choice(np.arange(1, 9), 4, replace=False).tolist():
            carried, exact, booked = [0] * n, [Fraction(0)] * n, [0] * n
            for payments in draw(rng, BATCH // 4, n, kind, 10.0**size).tolist():
                units, after = to_units(payments, scale, carried)
                assert sum(units) == sum(after) == 0
                assert verifier.to_units(payments, scale, carried) == (units, after)
                assert (units, after) == oracle(payments, scale, carried)
                carried = after
                count += 1
                for i, (unit, value) in enumerate(zip(units, payments, strict=True)):
                    exact[i] += Fraction(value) * 10**scale
                    booked[i] += unit
            if kind != "absent":  # all rounds together are within a unit of what they should be
                slack = Fraction(BATCH * n, 10**9) + abs(sum(exact))
                assert all(abs(a - b) <= 1 + slack for a, b in zip(exact, booked, strict=True))

    check()
    assert count >= CASES


def test_small_differences_are_charged_in_time():
    """A third of a cent per round is a cent in three rounds; without carrying it would be none."""
    carried, booked = [0, 0], [0, 0]
    for _ in range(300):
        units, carried = to_units([1 / 300, -1 / 300], 2, carried)
        booked = [a + b for a, b in zip(booked, units, strict=True)]
    assert booked == [100, -100]


def test_ties_do_not_favour_anybody_for_long():
    booked, carried = [0] * 4, [0] * 4
    for t in range(1, 400):
        units, carried = to_units([0.75, -0.25, -0.25, -0.25], 0, carried)
        booked = [a + b for a, b in zip(booked, units, strict=True)]
        assert max(booked[1:]) - min(booked[1:]) <= 1, t


def test_who_is_absent_keeps_what_is_carried():
    units, carried = to_units([0.4, -0.4, 0.0], 0, [0, 0, 0])
    assert (units, carried) == ([0, 0, 0], [400_000_000, -400_000_000, 0])
    units, carried = to_units([0.0, 0.3, -0.3], 0, carried)
    assert units == [0, 0, 0]
    assert carried == [400_000_000, -100_000_000, -300_000_000]
    assert to_units([0.7, 0.0, -0.7], 0, carried)[0] == [1, 0, -1]


def test_ten_thousand_members():
    rng = np.random.default_rng(0)
    payments = rng.lognormal(0, 2, 10_000)
    payments -= payments.mean()
    units, carried = to_units(payments, 3)
    assert sum(units) == sum(carried) == 0
    assert np.abs(np.array(units) - payments * 1e3).max() <= 1
    assert (units, carried) == oracle(payments.tolist(), 3)


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
    assert to_units(paid, scale) == oracle(paid, scale)
    assert sum(to_units(paid, scale)[0]) == 0


def test_zero_stays_zero():
    assert to_units([0.5, 0.5, -1.0, 0.0], 0)[0] == [1, 0, -1, 0]
    assert to_units([0.0, 0.0], 2, [5, -5]) == ([0, 0], [5, -5])
    assert to_units([], 2) == ([], [])


def test_finer_than_float64_is_still_balanced():
    rng = np.random.default_rng(5)
    payments = rng.uniform(-1, 1, 50)
    payments -= payments.mean()
    units, carried = to_units(payments, 18)
    assert sum(units) == 0
    assert (units, carried) == oracle(payments.tolist(), 18)
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
    ],
)
def test_refused(payments, scale, words):
    with pytest.raises(ValueError, match=words):
        to_units(payments, scale)


def test_the_largest_amount_fits():
    largest = float(2**63 - 1024)
    assert to_units([largest, -largest], 0)[0] == [2**63 - 1024, -(2**63 - 1024)]
    assert MAX_AMOUNT == 2**63 - 1


@pytest.mark.parametrize(
    ("units", "scale", "text"),
    [(0, 0, "0"), (-5, 2, "-0.05"), (12345, 2, "123.45"), (7, 0, "7"), (-(2**63) + 1, 18,
     "-9.223372036854775807")],
)  # fmt: skip
def test_format(units, scale, text):
    assert format_units(units, scale) == text
