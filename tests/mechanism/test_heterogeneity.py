"""Measured constants against known ones, and exact ones against dense sampling."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.game import Quadratics
from verax.mechanism.heterogeneity import box_points, estimate, exact_for_quadratics

GAME = Quadratics.of([[1.0, 2.0], [1.5, 0.5], [1.0, 1.0]], [[0.0, 0.0], [1.0, 0.0], [0.0, -1.0]])
NOISE = np.array([0.5, 0.3, 0.1])


def noisy(points, samples, rng, growth=0.0):
    true = GAME.gradients(points)
    size = np.sqrt(NOISE**2 + growth * np.sum(true**2, axis=-1))
    shape = (len(points), 3, samples, 2)
    return true[:, :, None] + size[:, :, None, None] * rng.standard_normal(shape) / np.sqrt(2)


def dense(centre, radius, count=200_000):
    rng = np.random.default_rng(9)
    direction = rng.standard_normal((count, 2))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    # half of the points on the rim, where most maxima lie
    reach = np.where(rng.random(count) < 0.5, 1.0, np.sqrt(rng.random(count)))
    return centre + radius * reach[:, None] * direction


@pytest.mark.parametrize(("centre", "radius"), [([0.2, 0.1], 0.8), ([3.0, -2.0], 0.5), ([0, 0], 5)])
def test_exact_constants_are_reached_and_never_passed(centre, radius):
    found = exact_for_quadratics(GAME.hessians, GAME.centres, NOISE**2, centre, radius)
    theta = dense(np.asarray(centre, float), radius)
    g = GAME.gradients(theta)
    mean = g.mean(axis=1)
    own = np.sum(g**2, axis=-1)
    q = own - (own.sum(axis=1, keepdims=True) - own) / 2
    apart = g - mean[:, None]
    jacobian = 2 * np.einsum("ndi,tnd->tni", GAME.hessians, g)
    slope = jacobian - (jacobian.sum(axis=1, keepdims=True) - jacobian) / 2
    sampled = {
        "zeta_squared": np.max(np.abs(own - np.sum(mean**2, axis=-1)[:, None])),
        "first_order_squared": np.max(np.sum(apart**2, axis=-1)),
        "payment_lipschitz": np.max(np.linalg.norm(slope, axis=-1)),
        "reward_lipschitz": np.sqrt(own.max()),
    }
    for name, value in sampled.items():
        exact = getattr(found, name).value
        assert value <= exact * (1 + 1e-9)
        assert value == pytest.approx(exact, rel=1e-3)
    assert found.noise_squared.value == 0.25
    assert found.rho_squared.value == pytest.approx(0.24)
    assert q.shape == own.shape


def test_exact_with_alike_and_flat_clients():
    """Identical clients differ in nothing; a hard case where the linear part vanishes."""
    alike = exact_for_quadratics([np.eye(2)] * 3, [[0.0, 0.0]] * 3, [1, 1, 1], [0.0, 0.0], 2.0)
    assert alike.zeta_squared.value == pytest.approx(0, abs=1e-12)
    assert alike.payment_lipschitz.value == pytest.approx(0, abs=1e-12)
    assert alike.reward_lipschitz.value == pytest.approx(2.0)


def test_estimates_find_the_constants_of_the_points():
    rng = np.random.default_rng(0)
    points = box_points([-1, -1], [1, 1], 12, rng)
    found = estimate(noisy(points, 4000, rng), points, -GAME.losses(points), rng=rng, resamples=50)
    g = GAME.gradients(points)
    own, mean = np.sum(g**2, axis=-1), g.mean(axis=1)
    zeta = np.max(np.abs(own - np.sum(mean**2, axis=-1)[:, None]))
    assert found.zeta_squared.value == pytest.approx(zeta, rel=0.03)
    assert found.zeta_squared.low <= zeta <= found.zeta_squared.high * 1.02
    assert found.noise_squared.value == pytest.approx(0.25, rel=0.05)
    assert found.rho_squared.value == pytest.approx(0.24, rel=0.06)
    first = np.max(np.sum((g - mean[:, None]) ** 2, axis=-1))
    assert found.first_order_squared.value == pytest.approx(first, rel=0.03)
    q = (
        own
        - (own.sum(axis=1, keepdims=True) - own) / 2
        + np.array([0.25 - 0.05, 0.09 - 0.13, 0.01 - 0.17])
    )
    gap = np.linalg.norm(points[:, None] - points[None], axis=-1)
    off = ~np.eye(12, dtype=bool)
    steepest = max(
        np.max((np.abs(q[:, None, i] - q[None, :, i]))[off] / gap[off]) for i in range(3)
    )
    assert found.payment_lipschitz.value == pytest.approx(steepest, rel=0.05)
    assert found.points == 12
    assert found.samples == 4000
    # the bounds that M, M_V, G² and D² stand for
    assert np.all(
        own.mean(axis=1)
        <= 1.02 * found.relaxed_floor.value + found.relaxed_growth.value * np.sum(mean**2, axis=-1)
    )
    assert found.relaxed_growth.value >= 1
    assert found.reward_lipschitz is not None
    assert found.reward_lipschitz.value <= np.sqrt(own.max()) * 1.5
    assert "[" in str(found.zeta_squared)


def test_noise_that_grows_with_the_gradient():
    rng = np.random.default_rng(1)
    points = box_points([-3, -3], [3, 3], 40, rng)
    found = estimate(noisy(points, 600, rng, growth=0.4), points, rng=rng, resamples=20)
    assert found.noise_growth.value == pytest.approx(0.4, rel=0.1)
    assert found.reward_lipschitz is None


def test_squared_means_are_freed_of_noise():
    """Two samples per client: the plain ‖ḡ‖² would be too large by s²/2, far above ζ²."""
    rng = np.random.default_rng(2)
    points = np.zeros((1, 2))
    plain, freed = [], []
    for _ in range(400):
        g = noisy(points, 2, rng)
        plain.append(np.sum(g[0, 0].mean(axis=0) ** 2))
        freed.append(estimate(g, points, rng=rng, resamples=2).zeta_squared.value)
    truth = np.sum(GAME.gradients(points)[0] ** 2, axis=-1)
    assert np.mean(plain) - truth[0] == pytest.approx(0.125, abs=0.04)
    assert np.isfinite(freed).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: estimate(np.ones((2, 3, 1, 2)), np.ones((2, 2)), rng=r), "samples ≥ 2"),
        (lambda r: estimate(np.ones((2, 3, 2, 2)), np.ones((3, 2)), rng=r), "points must have"),
        (lambda r: estimate(np.full((2, 3, 2, 2), np.nan), np.ones((2, 2)), rng=r), "not finite"),
        (
            lambda r: estimate(np.ones((2, 3, 2, 2)), np.eye(2), np.ones((2, 2)), rng=r),
            "rewards must be finite",
        ),
        (lambda r: box_points([1.0], [0.0], 3, r), "low ≤ high"),
    ],
)
def test_wrong_values(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0))


def test_points_that_coincide_have_no_slope():
    rng = np.random.default_rng(3)
    points = np.zeros((2, 2))
    assert_allclose(estimate(noisy(points, 5, rng), points, rng=rng).payment_lipschitz.value, 0)
