"""The perceptron's written gradient, and forward mode through gradients kept as factors."""

import jax
import numpy as np
import pytest

from verax.game import OwnLoss
from verax.learning import Differentiator, Protocol, Seeds, Simulator, Task
from verax.learning.outer import Outer, dense
from verax.mechanism import Blocks
from verax.tasks.models import perceptron


def data(rng, samples, inputs, classes):
    x = rng.normal(size=(samples, inputs)).astype(np.float32)
    return x, rng.integers(0, classes, samples).astype(np.int32)


@pytest.mark.parametrize(
    ("sizes", "relu", "l2"),
    [((5, 3), True, 0.0), ((5, 7, 3), True, 0.0), ((5, 4, 6, 3), False, 0.0), ((5, 3), True, 0.1)],
)
def test_the_written_gradient_is_the_gradient(sizes, relu, l2):
    model = perceptron(sizes, start="uniform", relu=relu, l2=l2)
    params = model.init(jax.random.key(0))
    batch = data(np.random.default_rng(0), 8, 5, 3)
    value, slope = jax.value_and_grad(model.loss)(params, batch)
    found, written = model.slope(params, batch)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(dense(written)), jax.tree.leaves(slope), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_derivatives_through_factors_are_those_through_matrices():
    """A wide layer and small batches, so that factors are kept; the same run without them."""
    rng = np.random.default_rng(1)
    model = perceptron((60, 50, 3), start="uniform")
    clients = [data(rng, 12, 60, 3) for _ in range(3)]
    found = []
    for slope in (model.slope, None):
        task = Task("wide", clients, clients, model.init, model.loss, slope=slope)
        simulator = Simulator(task, Protocol(step=0.2, batch=2), 2)
        found.append(Differentiator(simulator, Blocks((1, 2), 2), OwnLoss())(Seeds.of(0)))
    kept = Outer(np.zeros((3, 2, 60)), np.zeros((3, 2, 50)))
    assert kept.pays_for_gram
    np.testing.assert_allclose(found[0].reward, found[1].reward, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[0].norms, found[1].norms, rtol=1e-3, atol=1e-5)
