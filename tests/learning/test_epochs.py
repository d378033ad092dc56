"""FedAvg with local epochs: every sample once an epoch, as many steps as a client has batches."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from verax.game import LargerBatch
from verax.learning import Behaviour, Protocol, Seeds, Simulator
from verax.learning.batches import epoch_indices
from verax.tasks import digits

SIZES = np.array([10, 7, 4])


def test_an_epoch_uses_every_sample_at_most_once_and_fills_its_batches():
    index = epoch_indices(SIZES, seed=3, first=5, rounds=4, epochs=2, batch=3)
    assert index.shape == (4, 3, 6, 3)
    for client, size in enumerate(SIZES):
        steps = size // 3
        for t in range(4):
            for e in range(2):
                used = index[t, client, e * steps : (e + 1) * steps].ravel()
                assert len(set(used)) == 3 * steps
                assert max(used) < size
        assert_array_equal(index[:, client, 2 * steps :], 0)
    again = epoch_indices(SIZES, seed=3, first=7, rounds=1, epochs=2, batch=3)
    assert_array_equal(again[0], index[2])  # any round can be computed alone
    assert not np.array_equal(index[0], index[1])


def test_clients_take_as_many_steps_as_they_have_batches():
    """Against a loop over the batches of each client, written out."""
    task, step, batch = digits(3, "softmax"), 0.3, 100
    protocol = Protocol("fedavg", step, batch, epochs=2)
    simulator = Simulator(task, protocol, 2)
    found = simulator.run(Seeds.of(1), [Behaviour()])
    model = jax.tree.map(lambda leaf: leaf[0], simulator.start(Seeds.of(1)).params)
    counts = [2 * (len(samples[0]) // batch) for samples in task.train]
    assert len(set(counts)) > 1
    for t in range(2):
        index = simulator.sample_positions(Seeds.of(1), t, 1)[0]
        updates = []
        for client, samples in enumerate(task.train):
            local = model
            for rows in index[client, : counts[client]]:
                gradient = jax.grad(task.loss)(local, tuple(array[rows] for array in samples))
                local = jax.tree.map(lambda p, g: p - step * g, local, gradient)
            updates.append(jax.tree.map(lambda p, q: p - q, model, local))
        norms = [sum(float((x**2).sum()) for x in jax.tree.leaves(update)) for update in updates]
        assert_allclose(found.norms[0, t], norms, rtol=1e-4)
        model = jax.tree.map(lambda p, *moves: p - sum(moves) / 3, model, *updates)
    last = jax.tree.map(lambda leaf: leaf[0], found.state.params)
    jax.tree.map(lambda one, other: assert_allclose(one, other, rtol=1e-4, atol=1e-6), last, model)


def test_a_larger_batch_takes_the_same_number_of_steps():
    """A full batch is deterministic, so that two seeds with the same model give one message."""
    task = digits(3, "softmax")
    simulator = Simulator(task, Protocol("fedavg", 0.3, 100, epochs=1), 1)
    full = [Behaviour(LargerBatch(0), (2,))]
    one, two = (simulator.run(Seeds(0, batches, 0), full).norms[0, 0] for batches in (1, 2))
    assert_allclose(one[2], two[2], rtol=1e-6)
    assert abs(one[0] / two[0] - 1) > 1e-4


def test_an_epoch_needs_a_batch():
    with pytest.raises(ValueError, match="batch is 400, must be at most 359"):
        Simulator(digits(3), Protocol("fedavg", 0.3, 400, epochs=1), 2)
    words = str(Protocol("fedavg", 0.3, 32, epochs=2))
    assert words == "FedAvg with 2 local epochs, step 0.3, batch 32"
