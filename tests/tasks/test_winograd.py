"""Winograd's tiles against convolution by its definition, and each map against its transpose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.tasks.models import winograd


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def convolved(maps, filters):
    """Σ over the 25 offsets of the padded map, (samples, side, side, out)."""
    side = maps.shape[1]
    padded = np.pad(maps, ((0, 0), (2, 2), (2, 2), (0, 0)))
    return sum(
        padded[:, i : i + side, j : j + side] @ np.asarray(filters)[:, :, i, j].T
        for i in range(5)
        for j in range(5)
    )


@pytest.mark.parametrize(("side", "channels", "filters"), [(14, 3, 4), (2, 1, 1), (6, 2, 5)])
def test_equals_convolution(side, channels, filters):
    maps, g = normal(0, 2, side, side, channels), normal(1, filters, channels, 5, 5)
    values = jnp.einsum("klnxyc,klco->klnxyo", winograd.tiles(maps), winograd.filters_in(g))
    truth = convolved(maps, g)
    for place, found in enumerate(winograd.outputs(values)):
        i, j = divmod(place, 2)
        assert_allclose(found, truth[:, i::2, j::2], rtol=1e-11, atol=1e-12)


def test_float32_is_near_enough():
    maps, g = normal(2, 4, 14, 14, 32), normal(3, 64, 32, 5, 5)
    truth = convolved(maps, g)
    maps, g = (x.astype(jnp.float32) for x in (maps, g))
    values = jnp.einsum("klnxyc,klco->klnxyo", winograd.tiles(maps), winograd.filters_in(g))
    for place, found in enumerate(winograd.outputs(values)):
        i, j = divmod(place, 2)
        assert np.abs(found - truth[:, i::2, j::2]).max() < 2e-5 * np.abs(truth).max()


@pytest.mark.parametrize("name", ["tiles", "outputs", "filters"])
def test_the_way_back_is_the_transpose(name):
    """⟨f(x), y⟩ = ⟨x, fᵀ(y)⟩ for linear f."""
    if name == "tiles":
        x, y = normal(4, 2, 14, 14, 3), normal(5, 6, 6, 2, 7, 7, 3)
        there, back = winograd.tiles(x), winograd.tiles_back(y)
    elif name == "filters":
        x, y = normal(6, 4, 3, 5, 5), normal(7, 6, 6, 3, 4)
        there, back = winograd.filters_in(x), winograd.filters_out(y)
    else:
        x, y = normal(8, 6, 6, 2, 7, 7, 3), normal(9, 4, 2, 7, 7, 3)
        there, back = winograd.outputs(x), winograd.outputs_back(y)
    assert back.shape == x.shape
    assert_allclose(jnp.vdot(there, y), jnp.vdot(x, back), rtol=1e-11)
