"""Mean estimation against Monte Carlo, the linear best-response system and Gaussian algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.game import Bayesian, OneRound


def test_one_round_against_monte_carlo():
    """400,000 draws: the standard error of the MSE is about 0.3 %."""
    game = OneRound((2.0, 1.0, 0.5, -0.5), noise=0.8)
    rng = np.random.default_rng(0)
    x = np.asarray(game.means) + 0.8 * rng.standard_normal((400_000, 4))
    for c in (1.0, game.best_scale, 3.0):
        estimate = (x.sum(axis=1) + (c - 1) * x[:, 0]) / 4
        assert game.mse(c) == pytest.approx(np.mean((estimate - 2.0) ** 2), rel=0.01)
    assert game.truthful_mse == pytest.approx(float(game.mse(1.0)))
    assert game.best_mse == pytest.approx(float(game.mse(game.best_scale)))


def test_one_round_best_scale_and_range_by_search():
    game = OneRound((2.0, 1.0, 0.5, -0.5), noise=0.8)
    c = np.linspace(0, 10, 100_001)
    assert c[game.mse(c).argmin()] == pytest.approx(game.best_scale, abs=1e-4)
    helps = c[game.mse(c) < game.truthful_mse]
    assert_allclose([helps[0], helps[-1]], game.helpful_scales, atol=2e-4)
    modest = OneRound((1.0, 2.0, 2.0), noise=0.5)  # on the inner side: under-reporting helps
    assert modest.helpful_scales[0] < modest.helpful_scales[1] == 1.0


def instance(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    common, between = rng.uniform(0.2, 5, 2)
    return Bayesian(common, between, tuple(rng.uniform(0.1, 20, n)))


def moments(game):
    """E x̄_i x̄_j and E x̄_j μ_i from the model, nothing else."""
    n = len(game.quality)
    pairs = np.full((n, n), 1 / game.common)
    cross = pairs + np.eye(n) / game.between
    return cross + np.diag(1 / np.asarray(game.quality)), cross


@pytest.mark.parametrize("seed", range(10))
def test_equilibrium_solves_the_linear_best_response_system(seed):
    game = instance(seed)
    square, cross = moments(game)
    n = len(square)
    c = np.linalg.solve(square / n, np.diag(cross))  # Σ_j c_j E x̄_i x̄_j / N = E x̄_i μ_i
    assert_allclose(game.equilibrium_scales, c, rtol=1e-10)
    own = 1 / game.common + 1 / game.between

    def error(scales):
        return scales @ square @ scales / n**2 - 2 * cross @ scales / n + own

    assert_allclose(game.equilibrium_error, error(c), rtol=1e-10)
    truthful = error(np.ones(n))
    assert_allclose(truthful, game.truthful_error, rtol=1e-10)
    assert game.printed_truthful_error != pytest.approx(game.truthful_error)
    assert_allclose(game.equilibrium_is_worse, error(c) > truthful)


@pytest.mark.parametrize("seed", range(5))
def test_posterior_equals_gaussian_conditioning(seed):
    game = instance(seed)
    square, cross = moments(game)
    x = np.random.default_rng(seed).standard_normal(len(square))
    weights = np.linalg.solve(square, cross)
    variance = 1 / game.common + 1 / game.between - np.sum(cross * weights, axis=0)
    mean, precision = game.posterior(x)
    assert_allclose(mean, weights.T @ x, rtol=1e-9)
    assert_allclose(1 / precision, variance, rtol=1e-9)


def test_limits_and_when_the_equilibrium_is_worse():
    large = Bayesian(2.0, 3.0, (1.5,) * 200_000)
    assert large.equilibrium_error[0] == pytest.approx(large.limits[0], rel=1e-4)
    assert large.truthful_error == pytest.approx(large.limits[1], rel=1e-4)
    assert large.limits == (1 / 3 + 2 / 9, 1 / 3)
    # equal quality: worse exactly when Nρ > τ, that is c_eq > 1
    for quality in (0.1, 0.5, 1.0, 3.0, 20.0):
        game = Bayesian(1.0, 4.0, (quality,) * 3)
        assert bool(game.equilibrium_is_worse[0]) == bool(game.equilibrium_scales[0] > 1)


def test_unequal_quality_can_gain_from_the_equilibrium():
    """τ = (50, 9 × 0.02): the errors 0.18 and 1.96 against a truthful 5.40."""
    game = Bayesian(1.0, 1.0, (50.0, *[0.02] * 9))
    assert_allclose(game.equilibrium_error[:2], [0.18, 1.96], atol=0.01)
    assert game.truthful_error == pytest.approx(5.40, abs=0.01)
    assert not game.equilibrium_is_worse.any()


def test_wrong_values():
    with pytest.raises(ValueError, match="at least 2 clients"):
        OneRound((1.0,), 1.0)
    with pytest.raises(ValueError, match="noise"):
        OneRound((1.0, 2.0), -1.0)
    with pytest.raises(ValueError, match="always sends 0"):
        OneRound((0.0, 2.0), 0.0)
    with pytest.raises(ValueError, match="precisions"):
        Bayesian(1.0, 0.0, (1.0, 2.0))
    with pytest.raises(ValueError, match="precisions"):
        Bayesian(1.0, 1.0, (1.0,))
