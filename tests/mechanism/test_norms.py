"""Squared norms against exact rational arithmetic, and what must not change them."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from verax.mechanism import squared_norm, sums

size = st.floats(1e-140, 1e100)
finite = st.just(0.0) | size | size.map(lambda value: -value)


def exactly(array: np.ndarray) -> float:
    return float(sum(Fraction(float(value)) ** 2 for value in array.ravel()))


@settings(deadline=None)  # the first call compiles
@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=20), elements=finite))
def test_equals_exact_arithmetic(array):
    assert squared_norm(array) == pytest.approx(exactly(array), rel=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 70_001])
def test_accumulates_every_type_in_float64(dtype, size):
    array = np.random.default_rng(size).standard_normal(size).astype(dtype)
    assert squared_norm(array) == pytest.approx(exactly(array.astype(np.float64)), rel=1e-13)


def test_float32_beyond_its_own_range():
    assert squared_norm(np.full(10, 1e30, np.float32)) == pytest.approx(
        10 * float(np.float32(1e30)) ** 2
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_layout_and_order_change_no_bit(dtype):
    array = np.random.default_rng(1).standard_normal((4200, 4201)).astype(dtype)  # threads share it
    reference = squared_norm(array, threads=1)
    assert [squared_norm(array, threads=n) for n in (2, 3, 8)] == [reference] * 3
    assert squared_norm(np.asfortranarray(array)) == reference
    parts = {str(i): part for i, part in enumerate(np.array_split(array, 7))}
    forwards, backwards = squared_norm(parts), squared_norm(dict(reversed(parts.items())))
    assert forwards == backwards == squared_norm(list(parts.values()))


def test_trees_and_written_out_lists():
    assert squared_norm({"w": [[3.0, 4.0]], "b": (np.array([12.0]), [])}) == 169.0
    assert squared_norm(np.zeros((0, 3))) == 0.0
    assert squared_norm(np.arange(4)) == 14.0


def test_not_finite_is_told_not_hidden():
    assert np.isnan(squared_norm([np.array([1.0, np.nan])]))
    assert squared_norm([np.array([np.inf]), np.array([1.0])]) == np.inf
    assert squared_norm([np.full(2, 1e200), np.full(2, 1e200)]) == np.inf
    assert squared_norm([np.full(4, 1e154)] * 4) == np.inf


def test_refuses_what_is_no_number():
    with pytest.raises(ValueError, match="real numbers"):
        squared_norm({"w": np.array(["a"])})
    with pytest.raises(ValueError, match="real numbers"):
        squared_norm(np.array([1j]))


def test_the_loops_as_they_are_written_say_the_same():
    """The compiled loops against the same lines run by Python, on rows of odd lengths."""
    rng = np.random.default_rng(5)
    s, x, y = rng.standard_normal((3, 20_001))
    squares, products = np.empty((2, 3))
    sums.add_squares(x, squares)
    sums.add_products(s, x, y, products)
    assert squared_norm(x) == pytest.approx(squares.sum(), rel=1e-14)
    (found,) = sums.exact_sums(sums.add_products, [(0, 1, 2)], [[s, x, y]])
    assert found == pytest.approx(products.sum(), rel=1e-12)
    assert found == pytest.approx(float((x - s) @ (y - s)), rel=1e-12)
