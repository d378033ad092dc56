"""Rounds of many clients in chunks: the same numbers, and memory that does not grow."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from verax.game import Levels, Noise, Scale
from verax.learning import (
    Clipped,
    GeometricMedian,
    Mean,
    Median,
    MultiKrum,
    Protocol,
    Seeds,
    Simulator,
    Task,
    TrimmedMean,
    WeightedMean,
    blocks,
    simulator,
    streaming,
)
from verax.learning.outer import Outer
from verax.learning.streaming import chunk_size
from verax.tasks import digits
from verax.tasks.models import perceptron

N, T = 70, 3


@pytest.fixture(scope="module")
def task():
    return digits(N, model="softmax", split="iid")


def levels(reporting):
    return reporting.levels(T, np.random.default_rng(0))


def runs():
    """Everybody honest; and a few who are not."""
    honest = [levels(Scale(1.0))] * N
    other = list(honest)
    other[3], other[69] = levels(Scale(3.0)), levels(Scale(0.0))
    return [honest, other]


def outcome(task, protocol, what=None, *, distances=False):
    return Simulator(task, protocol, T, distances=distances).run(Seeds.of(0), what or runs())


@pytest.mark.parametrize(
    ("aggregator", "share"),
    [
        (Mean(), 1.0),
        (Mean(), 0.3),
        (WeightedMean(tuple(range(1, N + 1))), 1.0),
        (Clipped(0.4), 0.3),
    ],
    ids=["mean", "mean of some", "weighted", "clipped of some"],
)
def test_chunks_change_nothing(task, monkeypatch, aggregator, share):
    protocol = Protocol(step=0.3, batch=4, aggregator=aggregator, participation=share)
    held = outcome(task, protocol)
    monkeypatch.setattr(simulator, "_HELD", 0)
    monkeypatch.setattr(streaming, "CHUNK_NUMBERS", 16 * 650)
    streamed = outcome(task, protocol)
    assert streamed.gram.shape == (2, T, N, 1)
    np.testing.assert_allclose(streamed.norms, held.norms, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(streamed.misreport, held.misreport, rtol=2e-4, atol=1e-6)
    here = held.present
    np.testing.assert_allclose(streamed.loss[:, here], held.loss[:, here], rtol=1e-4)
    np.testing.assert_array_equal(streamed.present, here)
    for a, b in zip(streamed.evaluations, held.evaluations, strict=True):
        np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4)


@pytest.mark.parametrize(("aggregator", "share"), [(Mean(), 1.0), (Clipped(0.4), 0.3)], ids=str)
def test_distances_from_a_second_pass(task, monkeypatch, aggregator, share):
    """‖m_i − mean of the others‖² as of messages that are held; noise is the same both times."""
    protocol = Protocol(step=0.3, batch=4, aggregator=aggregator, participation=share)
    monkeypatch.setattr(streaming, "CHUNK_NUMBERS", 16 * 650)
    held = outcome(task, protocol)
    monkeypatch.setattr(simulator, "_HELD", 0)
    streamed = outcome(task, protocol, distances=True)
    assert streamed.gram.shape == held.gram.shape == (2, T, N, 2)
    np.testing.assert_allclose(streamed.gram, held.gram, rtol=2e-4, atol=1e-6)
    noisy = [[levels(Noise(2.0)), *[levels(Scale(1.0))] * (N - 1)]]
    far = outcome(task, protocol, noisy, distances=True).gram[0, :, 0, 1]
    there = held.present[:, 0]
    assert np.all(far[there] > 2.0)  # E‖2ξ‖² = 4
    assert not np.any(far[~there])


@pytest.mark.parametrize("aggregator", [Mean(), WeightedMean(tuple(range(1, 71)))], ids=str)
def test_many_clients_against_plain_gradients(aggregator):
    """Norms, distances and the step from factors of a large layer, beside jax.grad one by one."""
    rng = np.random.default_rng(0)
    model = perceptron((40, 30, 5))
    assert Outer(np.zeros((N, 4, 40)), np.zeros((N, 4, 30))).pays_for_norms
    data = [
        (rng.normal(size=(4, 40)).astype(np.float32), rng.integers(0, 5, 4).astype(np.int32))
        for _ in range(N)
    ]
    task = Task("many", data, data, model.init, model.loss, slope=model.slope)
    protocol = Protocol(step=0.3, batch=4, aggregator=aggregator)
    run = Simulator(task, protocol, 1)
    everybody = [Scale(float(a)).levels(1, rng) for a in rng.uniform(0, 3, N)]
    found = run.run(Seeds.of(0), [everybody])
    start = jax.tree.map(lambda leaf: leaf[0], run.start(Seeds.of(0)).params)
    index, _, _ = run.inputs(Seeds.of(0), 0, 1)
    sent, slope = [], jax.jit(jax.grad(model.loss))
    for (x, y), rows, levels_ in zip(data, index[0, :, 0], everybody, strict=True):
        gradient = slope(start, (x[rows], y[rows]))
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
        sent.append(levels_.a[0] * flat.astype(np.float64))
    sent = np.array(sent)
    others = (sent.sum(axis=0) - sent) / (N - 1)
    np.testing.assert_allclose(found.gram[0, 0, :, 0], np.sum(sent**2, axis=1), rtol=1e-4)
    far = np.sum((sent - others) ** 2, axis=1)
    np.testing.assert_allclose(found.gram[0, 0, :, 1], far, rtol=1e-4, atol=1e-5)
    weights = np.asarray(getattr(aggregator, "table", np.ones(N)))
    step = 0.3 * weights @ sent / weights.sum()
    before, after = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
        for params in (start, found.state.params)
    )
    np.testing.assert_allclose(before - after, step, rtol=1e-3, atol=1e-6)


def test_fedavg_and_noise_do_not_depend_on_the_chunk(task, monkeypatch):
    protocol = Protocol("fedavg", step=0.3, batch=4, local_steps=2)
    everybody = [levels(Scale(1.0))] * N
    everybody[5] = levels(Noise(2.0))
    monkeypatch.setattr(simulator, "_HELD", 0)
    found = []
    for numbers in (9 * 650, 1 << 26):
        monkeypatch.setattr(streaming, "CHUNK_NUMBERS", numbers)
        found.append(outcome(task, protocol, [everybody]))
    for other in found[1:]:
        np.testing.assert_allclose(other.gram, found[0].gram, rtol=2e-4, atol=1e-7)
    # E‖ξ‖² = 1 over the whole update; 650 coordinates make it 1 ± 5.5 %
    np.testing.assert_allclose(found[0].misreport[0, :, 5], 4.0, rtol=0.2)
    assert not found[0].misreport[0, :, :5].any()


def test_a_feedback_follows_the_client_through_chunks(task, monkeypatch):
    """What a client sends may depend on its own past: histories go with it, absent or not."""
    everybody = [levels(Scale(1.0))] * N
    everybody[7] = Levels(np.ones(T), np.zeros(T), 0.0, 0.5, 0.0, 5.0)
    protocol = Protocol(step=0.3, batch=4, participation=0.8)
    held = outcome(task, protocol, [everybody])
    monkeypatch.setattr(simulator, "_HELD", 0)
    monkeypatch.setattr(streaming, "CHUNK_NUMBERS", 16 * 650)
    streamed = outcome(task, protocol, [everybody])
    here = held.present[:, 7]
    np.testing.assert_allclose(
        streamed.norms[0, here, 7], held.norms[0, here, 7], rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize(
    ("parameters", "participants", "chunk"),
    [(650, 10_000, 250), (6_600_000, 1000, 10), (6_600_000, 25, 9), (10**9, 70, 1), (650, 7, 7)],
)
def test_chunks_are_alike_and_bounded(parameters, participants, chunk):
    assert chunk_size(parameters, participants) == chunk


@pytest.mark.parametrize(
    ("aggregator", "share"),
    [(Median(), 1.0), (TrimmedMean(0.2), 0.3), (MultiKrum(5, 30), 0.8), (GeometricMedian(), 1.0)],
    ids=str,
)
def test_blocks_change_nothing(task, monkeypatch, aggregator, share):
    """650 coordinates of 70 messages in seven blocks, the last of them not full."""
    protocol = Protocol(step=0.3, batch=4, aggregator=aggregator, participation=share)
    held = outcome(task, protocol)
    monkeypatch.setattr(simulator, "_HELD", 0)
    monkeypatch.setattr(streaming, "CHUNK_NUMBERS", 16 * 650)
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", round(share * N) * 100)
    streamed = outcome(task, protocol)
    assert streamed.gram.shape == (2, T, N, 1)
    np.testing.assert_allclose(streamed.norms, held.norms, rtol=1e-3, atol=1e-6)
    for a, b in zip(streamed.evaluations, held.evaluations, strict=True):
        np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4)


def test_a_block_that_cannot_be_held_is_refused_with_its_size(task, monkeypatch):
    monkeypatch.setattr(simulator, "_HELD", 0)
    monkeypatch.setattr(simulator, "free_memory", lambda: 10_000)
    with pytest.raises(ValueError, match=r"0\.0 GB of which 0\.0 are free; use fewer clients"):
        Simulator(task, Protocol(aggregator=Median()), T)


MEASURE = """
import resource, sys, time
import numpy as np
from verax.learning import Protocol, Seeds, Simulator, honest
from verax.learning.task import Task
from verax.tasks.models import cnn
n, rounds = int(sys.argv[1]), 2
rng = np.random.default_rng(0)
batch = lambda: (rng.integers(0, 255, (4, 28, 28)).astype(np.uint8), rng.integers(0, 62, 4))
model = cnn()
clients = [batch() for _ in range(n)]
task = Task("cnn", clients, clients[:1] * n, model.init, model.loss, slope=model.slope)
found = Simulator(task, Protocol(batch=4), rounds).run(Seeds.of(0), [[honest(rounds)] * n])
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
