"""Splits, the embedded task and its constants."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_digits

from verax.game import Quadratics
from verax.tasks import cancer, digits, partition, quadratics
from verax.tasks.digits import SOFTMAX_L2, softmax_constants

LABELS = np.random.default_rng(0).integers(0, 10, 500).astype(np.int32)


@given(clients=st.integers(2, 8), seed=st.integers(0, 99))
@settings(max_examples=25)
@pytest.mark.parametrize("split", ["iid", "by_size", "by_label", "dirichlet"])
def test_every_sample_goes_to_exactly_one_client(split, clients, seed):
    parts = getattr(partition, split)(LABELS, clients, np.random.default_rng(seed))
    assert len(parts) == clients
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(500))
    train, test = partition.train_test(parts, np.random.default_rng(seed))
    for own, a, b in zip(parts, train, test, strict=True):
        assert_array_equal(np.sort(np.concatenate([a, b])), own)
        assert len(a) == pytest.approx(0.8 * len(own), abs=1)


def test_splits_differ_as_they_say():
    rng = np.random.default_rng(1)

    def skew(parts):
        shares = [np.bincount(LABELS[p], minlength=10) / len(p) for p in parts]
        return np.std(shares, axis=0).mean()

    assert skew(partition.iid(LABELS, 3, rng)) < skew(partition.dirichlet(LABELS, 3, rng))
    assert skew(partition.dirichlet(LABELS, 3, rng, 100.0)) < skew(
        partition.dirichlet(LABELS, 3, rng, 0.3)
    )
    sizes = [len(p) for p in partition.by_size(LABELS, 3, rng)]
    assert_allclose(sizes, [83, 167, 250], atol=1)
    groups = partition.by_label(LABELS, 3, rng)
    assert not set(LABELS[groups[0]]) & set(LABELS[groups[1]])


def test_the_digits_are_those_that_scikit_learn_loads():
    whole = load_digits()
    task = digits(split="iid")
    own = [batch for part in (task.train, task.test) for batch in part]
    rows = np.column_stack(
        [np.concatenate([x for x, _ in own]) * 16, np.concatenate([y for _, y in own])]
    )
    wanted = np.column_stack([whole.data, whole.target])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, wanted.tolist()))


def test_digits_is_reproducible_and_complete():
    task, again, other = digits(), digits(), digits(seed=1)
    assert task.clients == 3
    assert sum(len(b[0]) for b in task.train) + sum(len(b[0]) for b in task.test) == 1797
    assert_array_equal(task.train[0][0], again.train[0][0])
    assert len(task.train[0][0]) != len(other.train[0][0])
    assert float(task.train[0][0].max()) == 1.0


def test_softmax_constants_bound_the_losses():
    """Curvature between m and H, slope at most L, at random points within the radius."""
    task = digits(model="softmax")
    radius = 3.0
    m, H, L = softmax_constants(task, radius)
    assert m == SOFTMAX_L2
    rng = np.random.default_rng(0)
    batch = tuple(jnp.asarray(a) for a in task.train[0])
    flat, unravel = ravel_pytree(task.init(jax.random.key(0)))

    def loss(v):
        return task.loss(unravel(v), batch)

    gradient = jax.jit(jax.grad(loss))
    bent = jax.jit(lambda v, d: jax.jvp(jax.grad(loss), (v,), (d,))[1] @ d)
    for _ in range(3):
        point = rng.standard_normal(flat.size)
        point = jnp.asarray(point * radius / np.linalg.norm(point), jnp.float32)
        slope = gradient(point)
        assert float(jnp.linalg.norm(slope)) <= L
        for _ in range(3):
            d = rng.standard_normal(flat.size)
            d = jnp.asarray(d / np.linalg.norm(d), jnp.float32)
            bend = float(bent(point, d))
            assert m - 1e-4 <= bend <= H


def test_noisy_quadratics_have_exact_means():
    game = Quadratics.of([1.0, 2.0], [[0.0, 1.0], [3.0, 3.0]])
    task = quadratics(game, [0.0, 0.0], noise=0.5)
    for i in range(2):
        assert_allclose(task.train[i][1].mean(axis=0), game.centres[i], atol=1e-5)
        assert task.train[i][1].std() > 0.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: digits(clients=1), "clients is 1"),
        (lambda: digits(clients=1000), "more than half of the 1797 samples"),
        (lambda: digits(split="random"), "split is 'random', must be one of dirichlet"),
        (lambda: digits(model="cnn"), "model is 'cnn'"),
        (lambda: digits(alpha=0.0), "alpha is 0"),
        (lambda: digits(clients=11, split="by-label"), "10 labels cannot be dealt out to 11"),
        (lambda: digits(clients=300, alpha=0.01), "cannot be split among 300"),
        (
            lambda: partition.train_test([np.array([3])], np.random.default_rng(0)),
            r"client 0 has 1 sample\(s\), needs at least 2",
        ),
    ],
)
def test_wrong_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_cancer_data_are_those_that_scikit_learn_loads():
    whole, task = load_breast_cancer(), cancer(clients=4)
    parts = [*task.train, *task.test]
    labels = np.concatenate([y for _, y in parts])
    assert_array_equal(np.sort(labels), np.sort(whole.target))
    x = np.concatenate([x for x, _ in parts])
    standard = (whole.data - whole.data.mean(axis=0)) / whole.data.std(axis=0)
    assert_allclose(np.sort(x[:, 5]), np.sort(standard[:, 5]), rtol=1e-5, atol=1e-6)
    radii = [np.concatenate([task.train[k][0], task.test[k][0]])[:, 0] for k in range(4)]
    for smaller, larger in itertools.pairwise(radii):  # each hospital sees another range
        assert smaller.max() <= larger.min()
    with pytest.raises(ValueError, match="clients is 1, must be 2"):
        cancer(clients=1)
