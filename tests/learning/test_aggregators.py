"""Every aggregator against a brute-force NumPy version, with and without absent clients."""

import itertools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize

from verax.learning import (
    Clipped,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
    WeightedMean,
)
from verax.learning.aggregators import aggregator_of
from verax.learning.vectors import Messages
from verax.mechanism import Statistics


def krum(m, liars, keep):
    n = len(m)
    far = np.sum((m[:, None] - m[None]) ** 2, axis=-1)
    scores = [np.sort(np.delete(far[i], i))[: max(n - liars - 2, 1)].sum() for i in range(n)]
    return m[np.argsort(scores, kind="stable")[:keep]].mean(axis=0)


def trimmed(m, share):
    cut = int(np.floor(share * len(m)))
    return np.sort(m, axis=0)[cut : len(m) - cut].mean(axis=0)


def geometric(m):
    def total(z):
        return np.sum(np.linalg.norm(m - z, axis=1))

    return optimize.minimize(
        total,
        m.mean(axis=0),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 20000},
    ).x


def clipped(m, bound):
    length = np.linalg.norm(m, axis=1, keepdims=True)
    return np.mean(m * np.minimum(1, bound / length), axis=0)


TABLE = [
    (Mean(), lambda m, w: m.mean(axis=0)),
    (
        WeightedMean((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)),
        lambda m, w: np.average(m, axis=0, weights=w),
    ),
    (Median(), lambda m, w: np.median(m, axis=0)),
    (TrimmedMean(0.2), lambda m, w: trimmed(m, 0.2)),
    (TrimmedMean(0.0), lambda m, w: m.mean(axis=0)),
    (Krum(1), lambda m, w: krum(m, 1, 1)),
    (MultiKrum(1, 3), lambda m, w: krum(m, 1, 3)),
    (GeometricMedian(iterations=200), lambda m, w: geometric(m)),
    (Clipped(1.5), lambda m, w: clipped(m, 1.5)),
]


@pytest.mark.parametrize(("aggregator", "brute"), TABLE, ids=[str(row[0]) for row in TABLE])
def test_equals_brute_force(aggregator, brute):
    aggregate = jax.jit(aggregator.aggregate)
    for seed, absent in itertools.product(range(4), [(), (2,), (0, 5, 6)]):
        rng = np.random.default_rng(seed)
        m = rng.standard_normal((7, 3)) * rng.exponential(size=(7, 1))
        present = ~np.isin(np.arange(7), absent)
        weights = np.arange(1.0, 8.0)[present]
        # Messages are vectors times scales; absent ones are large, so that it shows if they count.
        scales = np.linspace(0.5, 2.0, 7)
        vectors = np.where(present[:, None], m / scales[:, None], 1e6)
        gram = np.where(np.outer(present, present), m @ m.T, 0.0)
        found = aggregate(
            Messages({"layer": vectors[:, :2], "bias": vectors[:, 2]}, scales),
            Statistics(np.diagonal(gram), gram),
            present,
        )
        found = np.append(found["layer"], found["bias"])
        if isinstance(aggregator, GeometricMedian):
            # Near a message the minimum is flat: what must agree is the sum of distances.
            reach = [
                np.sum(np.linalg.norm(m[present] - z, axis=1))
                for z in (found, brute(m[present], weights))
            ]
            assert reach[0] == pytest.approx(reach[1], rel=1e-3)
            continue
        assert_allclose(found, brute(m[present], weights), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("aggregator", [row[0] for row in TABLE if row[0] != TABLE[7][0]], ids=str)
def test_names_are_read_back(aggregator):
    assert aggregator_of(aggregator.name) == aggregator


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WeightedMean((1.0, -1.0)), "weights must be ≥ 0"),
        (lambda: WeightedMean(()), "weights must be ≥ 0"),
        (lambda: WeightedMean((1.0,)).check(2), "1 weights for 2 clients"),
        (lambda: TrimmedMean(0.5), "share is 0.5"),
        (lambda: Clipped(0.0), "bound is 0"),
        (lambda: MultiKrum(-1, 1), "liars -1"),
        (lambda: Krum(9).check(3), "expects 9 liars, of 3 clients at most 1 can be"),
        (lambda: MultiKrum(1, 4).check(3), "keeps 4 messages of 3 clients"),
        (lambda: aggregator_of("average"), "aggregator is 'average', must be one of mean"),
        (lambda: aggregator_of("clipped"), r"aggregator is 'clipped' \(.*bound"),
        (lambda: aggregator_of("krum:x"), "aggregator is 'krum:x'"),
    ],
)
def test_wrong_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()
