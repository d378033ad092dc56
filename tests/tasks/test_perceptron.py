"""The perceptron's gradient kept as factors is the gradient of its plain forward pass."""

import jax
import numpy as np
import pytest

from verax.learning import Behaviour, Protocol, Seeds, Simulator, Task
from verax.learning.factored import Factored, dense
from verax.tasks.models import perceptron


def data(rng, samples, inputs, classes):
    x = rng.normal(size=(samples, inputs)).astype(np.float32)
    return x, rng.integers(0, classes, samples).astype(np.int32)


@pytest.mark.parametrize(
    ("sizes", "relu", "l2"),
    [((5, 3), True, 0.0), ((5, 7, 3), True, 0.0), ((5, 4, 6, 3), False, 0.0), ((5, 3), True, 0.1)],
)
def test_the_factored_gradient_is_the_gradient(sizes, relu, l2):
    model = perceptron(sizes, start="uniform", relu=relu, l2=l2)
    params = model.init(jax.random.key(0))
    batch = data(np.random.default_rng(0), 8, 5, 3)
    value, gradient = jax.value_and_grad(model.loss)(params, batch)
    found, factored = model.gradient(params, batch)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    assert isinstance(factored[0]["weight"], Factored) == (l2 == 0)
    for a, b in zip(jax.tree.leaves(dense(factored)), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_clients_and_runs_at_once_equal_one_by_one():
    model = perceptron((5, 7, 3), start="uniform")
    runs = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    batches = [data(np.random.default_rng(k), 8, 5, 3) for k in range(3)]
    x, y = (np.stack(arrays) for arrays in zip(*batches, strict=True))

    def of_run(params):
        return jax.vmap(lambda x, y: dense(model.gradient(params, (x, y))[1]))(x, y)

    every = jax.jit(jax.vmap(of_run))(runs)
    for r in range(2):
        params = jax.tree.map(lambda leaf, r=r: leaf[r], runs)
        for i, batch in enumerate(batches):
            truth = jax.grad(model.loss)(params, batch)
            for a, b in zip(jax.tree.leaves(every), jax.tree.leaves(truth), strict=True):
                np.testing.assert_allclose(a[r, i], b, rtol=1e-5, atol=1e-6)


def test_a_run_with_factors_is_the_run_with_matrices():
    """A wide layer and small batches, so that the round keeps the factors."""
    rng = np.random.default_rng(1)
    model = perceptron((60, 50, 3), start="uniform")
    clients = [data(rng, 12, 60, 3) for _ in range(3)]
    found = []
    for gradient in (model.gradient, None):
        task = Task("wide", clients, clients, model.init, model.loss, fast_gradient=gradient)
        simulator = Simulator(task, Protocol(step=0.2, batch=2), 3)
        found.append(simulator.run(Seeds.of(0), [Behaviour()]))
    assert Factored(np.zeros((3, 2, 60)), np.zeros((3, 2, 50))).pays_for_gram
    first, second = (run.statistics.gram for run in found)
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found[0].loss, found[1].loss, rtol=1e-4)
