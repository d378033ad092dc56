"""Norms of updates against the plainest computation there is."""

import numpy as np
import pytest

from verax.flower.measure import gram_of_updates, squared_norms

SIZES = [(0,), (), (1,), (8191,), (8192,), (8193,), (3, 5, 7), (16 * 8192 + 5,), (140, 8192)]


def made(dtype, seed):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return [rng.integers(0, 100, shape).astype(dtype) for shape in SIZES]
    return [rng.standard_normal(shape).astype(dtype) for shape in SIZES]


def plain(sent, reply):
    return sum(
        float(np.sum((r.astype(np.longdouble) - s.astype(np.longdouble)) ** 2))
        for s, r in zip(sent, reply, strict=True)
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8])
def test_norms_are_those_of_the_plain_computation(dtype):
    sent = made(dtype, 0)
    replies = [made(dtype, i) for i in (1, 2, 3)]
    found = squared_norms(sent, replies)
    np.testing.assert_allclose(found, [plain(sent, reply) for reply in replies], rtol=1e-12)


def test_small_updates_of_large_models_lose_nothing():
    sent = [np.full(100_000, 1000.0, np.float32)]
    reply = [np.nextafter(sent[0], np.float32(np.inf))]  # one bit each
    assert squared_norms(sent, [reply])[0] == pytest.approx(100_000 * 2.0**-28, rel=1e-12)


def test_threads_layout_and_company_change_no_bit():
    sent, replies = made(np.float32, 0), [made(np.float32, i) for i in (1, 2)]
    for arrays in (sent, *replies):
        arrays.append(np.tile(arrays[-1], (5, 1)))  # enough for threads to share
    one = squared_norms(sent, replies, threads=1)
    assert (squared_norms(sent, replies, threads=2) == one).all()
    assert (squared_norms(sent, replies, threads=7) == one).all()
    assert (squared_norms(sent, replies[::-1])[::-1] == one).all()
    turned = [[np.asfortranarray(array) for array in reply] for reply in replies]
    assert (squared_norms(sent, turned) == one).all()
    assert squared_norms(sent[::-1], [replies[0][::-1]])[0] == one[0]


def test_byte_order_alignment_and_locked_memory_change_no_bit():
    sent, reply = made(np.float32, 0)[-1], made(np.float32, 1)[-1]
    one = squared_norms([sent], [[reply]])
    assert (squared_norms([sent], [[reply.astype(">f4")]]) == one).all()
    askew = np.frombuffer(b"?" + reply.tobytes(), np.float32, offset=1).reshape(reply.shape)
    assert not askew.flags.aligned
    assert not askew.flags.writeable
    assert (squared_norms([sent], [[askew]]) == one).all()
    assert reply.flags.writeable


def test_nobody_replied():
    assert squared_norms([np.zeros(3)], []).shape == (0,)
    assert gram_of_updates([np.zeros(3)], []).shape == (0, 0)


def test_the_gram_matrix():
    sent, replies = made(np.float32, 0), [made(np.float32, i) for i in (1, 2, 3, 4)]
    flat = [
        np.concatenate([(r.astype(float) - s).ravel() for r, s in zip(reply, sent, strict=True)])
        for reply in replies
    ]
    gram = gram_of_updates(sent, replies)
    np.testing.assert_allclose(gram, [[a @ b for b in flat] for a in flat], rtol=1e-10)
    assert (np.diagonal(gram) == squared_norms(sent, replies)).all()
    assert (gram == gram_of_updates(sent, replies, threads=1)).all()
    assert (gram == gram.T).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 8192, -1])
def test_what_is_not_finite_shows_in_its_own_norm_only(bad, place):
    sent = [np.zeros(100_003, np.float32)]
    broken = sent[0].copy()
    broken[place] = bad
    found = squared_norms(sent, [[broken], [np.ones(100_003, np.float32)]])
    assert not np.isfinite(found[0])
    assert found[1] == 100_003


def test_overflow_is_infinite_and_no_warning():
    assert squared_norms([np.zeros(3)], [[np.full(3, 1e200)]])[0] == np.inf
