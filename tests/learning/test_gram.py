"""Inner products of clients' updates, however they are laid out, against NumPy in float64."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.learning.outer import FEW, Outer
from verax.learning.protocol import gram_matrix

LONG = 5000  # beyond what is multiplied all at once


def updates(clients, seed):
    """Short and long arrays and two layers as factors: wider than high, and higher than wide."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=(clients, *shape)).astype(np.float32)

    return {
        "bias": normal(7),
        "long": normal(LONG),
        "matrix": normal(3, 4),
        "wide": Outer(normal(5, 6), normal(5, 11)),
        "high": Outer(normal(5, 11), normal(5, 2)),
    }


def flat(tree):
    """Every client's update as one row of float64, the layers as whole matrices."""
    rows = []
    for part in tree.values():
        if isinstance(part, Outer):
            left, right = (np.asarray(factor, float) for factor in part)
            part = np.einsum("nbo,nbi->noi", left, right)
        rows.append(np.asarray(part, float).reshape(len(part), -1))
    return np.concatenate(rows, axis=1)


@pytest.mark.parametrize("clients", [1, 2, 3, FEW, FEW + 1])
def test_inner_products(clients):
    tree = updates(clients, clients)
    rows = flat(tree)
    norms = np.sqrt(np.sum(rows**2, axis=1))
    assert_allclose(
        gram_matrix(tree) / np.outer(norms, norms),
        rows @ rows.T / np.outer(norms, norms),
        atol=1e-6,
    )


@pytest.mark.parametrize("left_out", [["long"], ["bias", "matrix"], ["wide", "high"]])
def test_without_one_kind_of_array(left_out):
    tree = {name: part for name, part in updates(3, 0).items() if name not in left_out}
    rows = flat(tree)
    assert_allclose(gram_matrix(tree), rows @ rows.T, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("name", ["wide", "high"])
def test_a_layer_from_its_factors(name):
    part = updates(3, 1)[name]
    left, right = (np.asarray(factor, float) for factor in part)
    assert_allclose(part.whole(), np.einsum("nbo,nbi->noi", left, right), atol=1e-5)
    batched = jax.vmap(lambda each: each.whole())(part)
    assert_allclose(batched, part.whole(), atol=1e-6)
