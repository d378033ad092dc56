"""Means over each client's own samples, however they are cut."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.learning.evaluation import Samples


def value(params, batch):
    x, y = batch
    return jnp.stack([jnp.mean(params * x + y), jnp.mean(x**2)])


@settings(max_examples=8)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    together=st.sampled_from([0, 1, 2, 4, 20]),
)
def test_equals_the_plain_mean(sizes, together):
    rng = np.random.default_rng(sum(sizes))
    clients = [
        (rng.normal(size=n).astype(np.float32), rng.normal(size=n).astype(np.float32))
        for n in sizes
    ]
    found = Samples(clients, together).means(value, 3.0)
    wanted = [[np.mean(3 * x + y), np.mean(x**2)] for x, y in clients]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_a_scalar_has_one_mean_per_client():
    clients = [(np.array([1.0, 2.0, 6.0], np.float32),), (np.array([5.0], np.float32),)]
    found = Samples(clients, 2).means(lambda p, batch: p * jnp.mean(batch[0]), 2.0)
    assert found.tolist() == pytest.approx([6.0, 10.0])
