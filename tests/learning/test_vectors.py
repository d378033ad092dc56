"""Norms and inner products of clients' updates, against NumPy in float64."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.learning.factored import Factored, dense, keep_factors
from verax.learning.vectors import (
    gram_matrix,
    inner_products,
    size_of,
    squared_norms,
    weighted_sum,
)

LONG = 5000  # beyond what is multiplied all at once


def updates(clients, seed):
    rng = np.random.default_rng(seed)
    shapes = {"bias": (7,), "long": (LONG,), "matrix": (3, 4)}
    return {
        name: rng.normal(size=(clients, *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def flat(tree):
    """Every client's update as one row of float64."""
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.asarray(x, float).reshape(len(x), -1) for x in leaves], axis=1)


@pytest.mark.parametrize("clients", [1, 2, 3, 8, 9])
def test_products_and_sums(clients):
    tree = updates(clients, clients)
    rows = flat(tree)
    norms = np.sqrt(np.sum(rows**2, axis=1))
    cosines = gram_matrix(tree) / np.outer(norms, norms)
    assert_allclose(cosines, rows @ rows.T / np.outer(norms, norms), atol=1e-6)
    assert_allclose(squared_norms(tree), norms**2, rtol=1e-5)
    weights = np.linspace(-1, 2, clients)
    total = weighted_sum(weights, tree)
    assert_allclose(flat(jax.tree.map(lambda x: x[None], total))[0], weights @ rows, atol=1e-4)
    one = jax.tree.map(lambda leaf: leaf[0], tree)
    assert_allclose(inner_products(tree, one), rows @ rows[0], rtol=1e-4, atol=1e-2)
    assert size_of(one) == LONG + 7 + 12


@pytest.mark.parametrize("left_out", [["long"], ["bias", "matrix"]])
def test_without_one_kind_of_array(left_out):
    tree = {name: part for name, part in updates(3, 0).items() if name not in left_out}
    rows = flat(tree)
    assert_allclose(gram_matrix(tree), rows @ rows.T, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("clients", [3, 9])
def test_factors_give_what_their_matrices_give(clients):
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal((clients, 2, *shape)).astype(np.float32)

    tree = {
        "large": Factored(normal(200), normal(150)),
        "tall": Factored(normal(90), normal(7)),
        "bias": rng.standard_normal((clients, 7)).astype(np.float32),
    }
    matrices = dense(tree)
    truth = np.einsum("nbo,nbi->noi", *(np.asarray(x, float) for x in tree["large"]))
    assert_allclose(matrices["large"], truth, rtol=1e-4, atol=1e-5)
    assert matrices["tall"].shape == (clients, 90, 7)
    rows = flat(matrices)
    size = np.sum(rows**2, axis=1).max()
    assert_allclose(gram_matrix(tree), rows @ rows.T, atol=1e-5 * size)
    assert_allclose(squared_norms(tree), np.sum(rows**2, axis=1), rtol=1e-4)
    weights = np.linspace(-1, 2, clients)
    total, expected = weighted_sum(weights, tree), weighted_sum(weights, matrices)
    for name, value in total.items():
        assert_allclose(value, expected[name], rtol=1e-3, atol=1e-4)
    one = jax.tree.map(lambda leaf: leaf[0], matrices)
    assert_allclose(inner_products(tree, one), inner_products(matrices, one), atol=1e-4 * size)


def test_factors_are_kept_only_where_they_pay():
    def factors(samples, rows, columns):
        return Factored(np.ones((3, samples, rows)), np.ones((3, samples, columns)))

    large, small = factors(2, 200, 150), factors(32, 20, 20)
    for gram in (True, False):
        kept = keep_factors([large, small, np.ones((3, 4))], gram=gram)
        assert kept[0] is large
        assert kept[1].shape == (3, 20, 20)
