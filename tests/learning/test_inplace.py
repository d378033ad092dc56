"""M + LᵀR by BLAS inside compiled programs, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.learning import inplace
from verax.learning.inplace import add_product

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def exact(matrix, left, right):
    return matrix + np.einsum("...bi,...bo->...io", left.astype(float), right.astype(float))


def by_blas(call, *arguments):
    return "verax_add_product" in jax.jit(call).lower(*arguments).as_text()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(200, 400), st.integers(330, 500))
def test_of_any_shape(samples, rows, columns):
    given = normal(rows, columns), normal(samples, rows), normal(samples, columns)
    assert by_blas(add_product, *given)
    np.testing.assert_allclose(jax.jit(add_product)(*given), exact(*given), rtol=0, atol=2e-4)


def test_runs_and_clients_each_with_their_own():
    """Samples are a client's in all runs, slopes a run's and a client's, weights a run's alone."""
    runs, clients, samples, rows, columns = 2, 3, 4, 256, 300
    matrix = normal(runs, clients, rows, columns)
    left = normal(clients, samples, rows)
    right, common = normal(runs, clients, samples, columns), normal(runs, samples, columns)
    inner = jax.vmap(add_product)
    found = jax.jit(jax.vmap(inner, in_axes=(0, None, 0)))(matrix, left, right)
    wanted = exact(matrix, np.broadcast_to(left, (runs, *left.shape)), right)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    found = jax.jit(jax.vmap(jax.vmap(add_product, (0, 0, None)), (0, None, 0)))(
        matrix, left, common
    )
    alike = np.broadcast_to(common[:, None], right.shape)
    wanted = exact(matrix, np.broadcast_to(left, (runs, *left.shape)), alike)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


def test_what_is_given_stays_as_it_is():
    """In place is XLA's affair: whoever still holds the old matrix finds it unchanged."""
    matrix, left, right = map(jnp.asarray, (normal(256, 300), normal(5, 256), normal(5, 300)))
    before = np.array(matrix)

    @jax.jit
    def twice(matrix):
        one = add_product(matrix, left, right)
        return one, matrix * 2.0, add_product(matrix, left, 2 * right)

    one, double, two = twice(matrix)
    np.testing.assert_array_equal(matrix, before)
    np.testing.assert_array_equal(double, 2 * before)
    np.testing.assert_allclose(two - before, 2 * (one - before), rtol=0, atol=1e-4)


def test_derivative_is_that_of_the_formula():
    given = tuple(map(jnp.asarray, (normal(256, 300), normal(5, 256), normal(5, 300))))
    slopes = tuple(map(jnp.asarray, (normal(256, 300), normal(5, 256), normal(5, 300))))
    found = jax.jit(lambda *s: jax.jvp(add_product, given, s)[1])(*slopes)
    wanted = jax.jvp(lambda m, x, d: m + x.T @ d, given, slopes)[1]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    many = jnp.stack([slopes[2], -slopes[2]])
    plus, minus = jax.vmap(lambda r: jax.jvp(add_product, given, (*slopes[:2], r))[1])(many)
    np.testing.assert_allclose(plus, wanted, rtol=0, atol=1e-4)
    assert float(jnp.max(jnp.abs(plus - minus))) > 1


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_types_are_left_to_xla(dtype):
    with jax.enable_x64(True):
        given = [a.astype(dtype) for a in (normal(256, 300), normal(5, 256), normal(5, 300))]
        assert not by_blas(add_product, *given)
        found = add_product(*given)
        assert found.dtype == dtype
        tolerance = 1e-12 if dtype == np.float64 else 0.05
        np.testing.assert_allclose(found, exact(*given), rtol=0, atol=tolerance)


def test_small_ones_are_left_to_xla():
    given = normal(64, 10), normal(5, 64), normal(5, 10)
    assert not by_blas(add_product, *given)
    np.testing.assert_allclose(add_product(*given), exact(*given), rtol=0, atol=1e-5)


def test_where_it_cannot_be_had_only_speed_is_lost(monkeypatch):
    def nothing():
        raise ImportError("no BLAS here")

    monkeypatch.setattr(inplace, "_handler", nothing)
    monkeypatch.setattr(inplace, "_available", inplace._available.__wrapped__)
    given = normal(256, 300), normal(5, 256), normal(5, 300)
    assert not by_blas(add_product, *given)
    np.testing.assert_allclose(add_product(*given), exact(*given), rtol=0, atol=1e-4)
