"""Rounds of many clients in chunks: the same numbers, and memory that does not grow."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from verax.game import Adaptive, Noise, Quadratics, Scale
from verax.learning import (
    Aggregator,
    Behaviour,
    Clipped,
    GeometricMedian,
    Mean,
    Median,
    MemoryLimits,
    MultiKrum,
    Protocol,
    Seeds,
    Simulator,
    TrimmedMean,
    WeightedMean,
)
from verax.learning.streaming import chunk_size
from verax.tasks import quadratics

N, T, D = 70, 3, 6
#: Chunks of 16 clients, whose messages are never all held.
SMALL = MemoryLimits(held=0, chunk=16 * D)
RUNS = [Behaviour(), Behaviour(Scale(3.0), (3,)), Behaviour(Scale(0.0), (69,))]


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    game = Quadratics.of(rng.uniform(0.5, 2, N), rng.standard_normal((N, D)))
    return quadratics(game, np.ones(D), noise=0.5, samples=8)


def outcome(task, protocol, runs=RUNS, **options):
    return Simulator(task, protocol, T, **options).run(Seeds.of(0), runs)


@pytest.mark.parametrize(
    ("aggregator", "share"),
    [
        (Mean(), 1.0),
        (WeightedMean(tuple(range(1, N + 1))), 1.0),
        (Clipped(0.4), 0.3),
    ],
    ids=["mean", "weighted", "clipped of some"],
)
def test_chunks_change_nothing(task, aggregator, share):
    protocol = Protocol(step=0.3, batch=4, aggregator=aggregator, participation=share)
    held = outcome(task, protocol)
    streamed = outcome(task, protocol, limits=SMALL, distances=True)
    for name in ("norms", "misreport", "distances"):
        one, other = getattr(streamed.statistics, name), getattr(held.statistics, name)
        assert_allclose(one, other, rtol=2e-4, atol=1e-5, err_msg=name)
    here = held.present
    assert_allclose(streamed.loss[here], held.loss[here], rtol=1e-4)
    assert_array_equal(streamed.present, here)
    assert_allclose(streamed.evaluations[-1].loss, held.evaluations[-1].loss, rtol=1e-4)


def test_distances_are_recorded_only_on_request(task):
    statistics = outcome(task, Protocol(batch=4), limits=SMALL).statistics
    assert statistics.distances is None
    assert statistics.gram is None


@pytest.mark.parametrize("reporting", [Noise(2.0), Adaptive(1.0, feedback=0.5, low=0.0)], ids=str)
def test_a_reporting_with_noise_or_memory_does_not_depend_on_the_chunk(task, reporting):
    """What a client sends may depend on its own past, in whichever chunk it is, absent or not."""
    protocol = Protocol("fedavg", step=0.3, batch=4, local_steps=2, participation=0.8)
    runs = [Behaviour(reporting, (7,))]
    held = outcome(task, protocol, runs)
    streamed = outcome(task, protocol, runs, limits=SMALL)
    assert held.present[:, :, 7].any()
    for name in ("norms", "misreport"):
        one, other = getattr(streamed.statistics, name), getattr(held.statistics, name)
        assert_allclose(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "participants", "chunk"),
    [(650, 10_000, 250), (6_600_000, 1000, 10), (6_600_000, 25, 9), (10**9, 70, 1), (650, 7, 7)],
)
def test_chunks_have_like_sizes_and_are_bounded(parameters, participants, chunk):
    assert chunk_size(parameters, participants, MemoryLimits().chunk) == chunk


@pytest.mark.parametrize(
    ("aggregator", "share"),
    [(Median(), 1.0), (TrimmedMean(0.2), 0.3), (MultiKrum(5, 30), 0.8), (GeometricMedian(), 1.0)],
    ids=str,
)
def test_blocks_change_nothing(task, aggregator, share):
    """Six coordinates of the messages in two blocks, the last of them not full."""
    protocol = Protocol(step=0.3, batch=4, aggregator=aggregator, participation=share)
    held = outcome(task, protocol)
    limits = MemoryLimits(held=0, chunk=16 * D, block=round(share * N) * 4)
    streamed = outcome(task, protocol, limits=limits)
    assert_allclose(streamed.norms, held.norms, rtol=1e-3, atol=1e-5)
    assert_allclose(streamed.evaluations[-1].loss, held.evaluations[-1].loss, rtol=1e-4)


class Own(Aggregator):
    """An aggregator that says nothing about how it can be streamed."""

    @property
    def name(self):
        return "own"


def test_what_cannot_be_held_is_refused_with_its_size(task):
    with pytest.raises(ValueError, match="own must see all messages at once, 420 numbers"):
        Simulator(task, Protocol(aggregator=Own()), T, limits=SMALL)
    huge = MemoryLimits(held=0, block=10**15)
    task_of_many = quadratics(Quadratics.of(np.ones(N), np.ones((N, D))), np.ones(D))
    Simulator(task_of_many, Protocol(aggregator=Median()), T, limits=huge)  # a block is never more


MEASURE = """
import resource, sys
import numpy as np
from verax.learning import Behaviour, Protocol, Seeds, Simulator
from verax.learning.task import Task
from verax.tasks.models import cnn
n, rounds = int(sys.argv[1]), 2
rng = np.random.default_rng(0)
batch = lambda: (rng.integers(0, 255, (4, 28, 28)).astype(np.uint8), rng.integers(0, 62, 4))
model = cnn()
clients = [batch() for _ in range(n)]
task = Task("cnn", clients, clients[:1] * n, model.init, model.loss)
found = Simulator(task, Protocol(batch=4), rounds).run(Seeds.of(0), [Behaviour()])
assert found.norms.shape == (1, rounds, n)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_clients():
    """300 clients of a 6.6 M model need no more than 66 do, give or take 300 MB."""
    few, many = (
        int(subprocess.check_output([sys.executable, "-c", MEASURE, str(n)], text=True))
        for n in (66, 300)
    )
    assert many < few + 300e6
    assert many < 4e9
