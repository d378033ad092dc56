"""Squared norms and inner products against exact arithmetic, and what must not change them."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from verax.mechanism import gram_of_updates, squared_norm, squared_norms

size = st.floats(1e-140, 1e100)
finite = st.just(0.0) | size | size.map(lambda value: -value)


def exactly(array: np.ndarray) -> float:
    return float(sum(Fraction(float(value)) ** 2 for value in array.ravel()))


@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=20), elements=finite))
def test_equals_exact_arithmetic(array):
    assert squared_norm(array) == pytest.approx(exactly(array), rel=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [1, 16_383, 16_384, 16_385, 70_001])
def test_accumulates_every_type_in_float64(dtype, size):
    array = np.random.default_rng(size).standard_normal(size).astype(dtype)
    assert squared_norm(array) == pytest.approx(exactly(array.astype(np.float64)), rel=1e-13)


def test_float32_beyond_its_own_range():
    assert squared_norm(np.full(10, 1e30, np.float32)) == pytest.approx(
        10 * float(np.float32(1e30)) ** 2
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layout_and_order_change_no_bit(dtype):
    array = np.random.default_rng(1).standard_normal((420, 421)).astype(dtype)
    reference = squared_norm(array)
    assert squared_norm(np.asfortranarray(array)) == reference
    assert squared_norms([np.zeros_like(array)], [[array]])[0] == reference
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


SIZES = [(0,), (), (1,), (16_383,), (16_384,), (16_385,), (3, 5, 7), (3 * 16_384 + 5,), (14, 8192)]


def arrays_of(dtype, seed):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return [rng.integers(0, 100, shape).astype(dtype) for shape in SIZES]
    return [rng.standard_normal(shape).astype(dtype) for shape in SIZES]


def by_definition(sent, reply):
    return sum(
        float(np.sum((r.astype(np.longdouble) - s.astype(np.longdouble)) ** 2))
        for s, r in zip(sent, reply, strict=True)
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8])
def test_norms_of_updates_equal_their_definition(dtype):
    sent = arrays_of(dtype, 0)
    replies = [arrays_of(dtype, i) for i in (1, 2, 3)]
    found = squared_norms(sent, replies)
    np.testing.assert_allclose(found, [by_definition(sent, r) for r in replies], rtol=1e-12)


def test_small_updates_of_large_models_are_measured_exactly():
    sent = [np.full(100_000, 1000.0, np.float32)]
    reply = [np.nextafter(sent[0], np.float32(np.inf))]  # one bit each
    assert squared_norms(sent, [reply])[0] == pytest.approx(100_000 * 2.0**-28, rel=1e-12)


def test_the_other_replies_and_the_memory_layout_change_no_bit():
    sent, replies = arrays_of(np.float32, 0), [arrays_of(np.float32, i) for i in (1, 2)]
    reference = squared_norms(sent, replies)
    assert (squared_norms(sent, replies[::-1])[::-1] == reference).all()
    fortran = [[np.asfortranarray(array) for array in reply] for reply in replies]
    assert (squared_norms(sent, fortran) == reference).all()
    assert squared_norms(sent[::-1], [replies[0][::-1]])[0] == reference[0]


def test_byte_order_alignment_and_read_only_memory_change_no_bit():
    sent, reply = arrays_of(np.float32, 0)[-1], arrays_of(np.float32, 1)[-1]
    reference = squared_norms([sent], [[reply]])
    assert (squared_norms([sent], [[reply.astype(">f4")]]) == reference).all()
    shifted = np.frombuffer(b"?" + reply.tobytes(), np.float32, offset=1).reshape(reply.shape)
    assert not shifted.flags.aligned
    assert not shifted.flags.writeable
    assert (squared_norms([sent], [[shifted]]) == reference).all()
    assert reply.flags.writeable


def test_without_replies_there_are_no_norms():
    assert squared_norms([np.zeros(3)], []).shape == (0,)
    assert gram_of_updates([np.zeros(3)], []).shape == (0, 0)


def test_gram_matrix_equals_its_definition():
    sent, replies = arrays_of(np.float32, 0), [arrays_of(np.float32, i) for i in (1, 2, 3, 4)]
    flat = [
        np.concatenate([(r.astype(float) - s).ravel() for r, s in zip(reply, sent, strict=True)])
        for reply in replies
    ]
    gram = gram_of_updates(sent, replies)
    np.testing.assert_allclose(gram, [[a @ b for b in flat] for a in flat], rtol=1e-10)
    assert (np.diagonal(gram) == squared_norms(sent, replies)).all()
    assert (gram == gram.T).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 16_384, -1])
def test_an_entry_that_is_not_finite_affects_its_own_norm_only(bad, place):
    sent = [np.zeros(100_003, np.float32)]
    broken = sent[0].copy()
    broken[place] = bad
    found = squared_norms(sent, [[broken], [np.ones(100_003, np.float32)]])
    assert not np.isfinite(found[0])
    assert found[1] == 100_003


def test_overflow_is_infinite_and_raises_no_warning():
    assert squared_norms([np.zeros(3)], [[np.full(3, 1e200)]])[0] == np.inf
