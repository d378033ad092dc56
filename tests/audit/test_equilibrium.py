"""Everybody strategic: play ends at the equilibria that are known in closed form."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import fsolve

from verax.audit.search.equilibrium import play
from verax.audit.search.everybody import parts_of
from verax.game import Bayesian, Quadratics
from verax.mechanism import refined_blocks


def mean_estimation(game):
    """−E(estimate − μ_i)² of every client if client j sends c_j x̄_j, from second moments."""
    quality, prior = np.array(game.quality), 1 / game.between + 1 / game.common
    N = len(quality)
    moments = np.full((N, N), 1 / game.common) + np.diag(1 / game.between + 1 / quality)
    with_own = np.full((N, N), 1 / game.common) + np.eye(N) / game.between  # E x̄_j μ_i

    def utilities(tables):
        rows = tables[:, 0] / N  # one part, weights of the estimate
        squares = np.einsum("mj,jk,mk->m", rows, moments, rows)
        return -(squares[:, None] - 2 * rows @ with_own + prior)

    return utilities


@pytest.mark.parametrize("start", [1.0, 3.0])
def test_it_finds_the_equilibrium_of_mean_estimation(start):
    game = Bayesian(common=1.0, between=2.0, quality=(1.0, 3.0, 8.0))
    ended = play(mean_estimation(game), np.full((1, 3), start), 200, settled=1e-9)
    assert ended.settled
    assert_allclose(ended.scales[0], game.equilibrium_scales, rtol=1e-6)
    errors = -mean_estimation(game)(game.equilibrium_scales[None, None])[0]
    assert_allclose(errors, game.equilibrium_error, rtol=1e-9)  # the same game as in closed form


def test_it_finds_the_equilibrium_of_one_round_of_quadratics():
    """F_i = ½ h_i (θ − x_i)², one round, a price C on squares: three linear equations in a."""
    curvature, optima, start, step, price = (
        np.array([1.0, 2.0, 0.5]),
        np.array([0.0, 1.5, 3.0]),
        1.0,
        0.5,
        0.02,
    )
    game = Quadratics.of(curvature, optima[:, None])
    gradients = curvature * (start - optima)

    def payments(a):
        squares = (a * gradients) ** 2
        return price * (1.5 * squares - squares.sum(axis=-1, keepdims=True) / 2)

    def utilities(tables):
        a = tables[:, 0]
        ends = [game.run(np.array([start]), np.array([step]), one[None]).points[-1] for one in a]
        return -np.array([game.losses(end) for end in ends]) - payments(a)

    def first_order(a):
        end = start - step * np.mean(a * gradients)
        return step / 3 * curvature * (end - optima) * gradients - 2 * price * a * gradients**2

    exact = fsolve(first_order, np.ones(3))
    ended = play(utilities, np.ones((1, 3)), 200, settled=1e-9)
    assert ended.settled
    assert_allclose(ended.scales[0], exact, rtol=1e-6)
    assert np.abs(exact - 1).max() > 0.2  # honesty is none


def test_a_game_that_runs_away_ends_at_the_limit():
    ended = play(
        lambda tables: tables.sum(axis=(1, 2))[:, None] + 0 * tables[:, 0], np.ones((2, 2))
    )
    assert ended.settled
    assert_allclose(ended.scales, 10.0)


def test_parts_are_groups_of_blocks():
    blocks = refined_blocks(30)
    parts = parts_of(blocks, 3)
    assert len(parts) == 3
    assert set(parts.starts) <= set(blocks.starts)
    assert parts_of(blocks, 100) == blocks
