"""The profile solver on quadratics, where R and J are exact and stationarity can be checked."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.game import Quadratics
from verax.mechanism import (
    Blocks,
    Price,
    Sensitivities,
    common_profile,
    constant_steps,
    individual_profile,
    refined_blocks,
)
from verax.mechanism.profile import BELOW_FLOOR, NO_PRICE, NO_SOLUTION


def federation(seed=0, clients=4, d=3):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((clients, d, d))
    hessians = np.einsum("nij,nkj->nik", roots, roots) / d + 0.3 * np.eye(d)
    return Quadratics.of(hessians, rng.standard_normal((clients, d)))


def marginal(game, blocks, prices, steps, start):
    """∂U_i/∂a_{i,k} at honesty for every client and block, by the adjoint: independent of R, J."""
    slopes = [game.utility_gradient(i, start, steps, 1.0, prices) for i in range(game.clients)]
    return blocks.sums(np.array(slopes), axis=1).T


def test_blocks():
    blocks = refined_blocks(1000)
    assert blocks.starts[:4] == (1, 501, 751, 876)
    assert blocks.starts[-3:] == (998, 999, 1000)
    assert blocks.lengths.sum() == 1000
    assert_allclose(blocks.sums(np.ones(1000)), blocks.lengths)
    assert refined_blocks(1).starts == (1,)
    assert refined_blocks(2).starts == (1, 2)
    assert len(refined_blocks(1000, per_halving=2)) > len(blocks)
    profile = Price.profile(Blocks((1, 3), 4), [[1.0, 2.0], [3.0, 4.0]])
    assert_allclose(profile.per_round()[1:3], [[1, 2], [3, 4]])


def test_sensitivities_equal_finite_differences():
    game, blocks = federation(), Blocks((1, 4, 6), 8)
    steps = np.linspace(0.2, 0.4, 8)
    start = [1.0, -1.0, 0.5]
    found = game.sensitivities(start, steps, blocks, value=2.0)
    h = 1e-5
    for i in range(game.clients):
        for k in range(len(blocks)):
            runs = []
            for sign in (1, -1):
                scales = np.ones((8, game.clients))
                scales[blocks.of_round == k, i] += sign * h
                runs.append(game.run(start, steps, scales))
            reward = [-2.0 * game.losses(run.points[-1])[i] for run in runs]
            assert found.reward[i, k] == pytest.approx((reward[0] - reward[1]) / (2 * h), rel=1e-6)
            norms = [blocks.sums(run.norms) for run in runs]
            assert_allclose(
                found.measures[i, :, k, :].T, (norms[0] - norms[1]) / (2 * h), rtol=1e-6, atol=1e-9
            )
            assert_allclose(found.measures[i, :, k, :k], 0)


@pytest.mark.parametrize("floor", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_individual_prices_make_honesty_stationary(seed, floor):
    game, blocks = federation(seed), refined_blocks(24)
    steps, start = constant_steps(0.3, 24), game.optimum() + 0.5
    profile = individual_profile(game.sensitivities(start, steps, blocks), blocks, floor)
    left = marginal(game, blocks, profile.price.per_round(), steps, start)
    least = floor * profile.prices.mean(axis=1, keepdims=True)
    charged = profile.prices > least * (1 + 1e-6)
    assert np.any(charged)
    assert_allclose(left[charged], 0, atol=1e-10)
    assert np.all(left[~charged] <= 1e-10)  # over-reporting hurts the client
    assert_allclose(left, profile.residual, atol=1e-10)


def test_the_last_price_is_the_exact_one_step_price():
    """In the last round alone C·2‖g‖² = γ g·∇F_i(θ_{T+1})/N."""
    game, steps = federation(3), constant_steps(0.3, 5)
    run = game.run([0.3] * 3, steps)
    blocks = Blocks((1, 2, 3, 4, 5), 5)
    profile = individual_profile(game.sensitivities([0.3] * 3, steps, blocks), blocks)
    g = run.gradients[-1]
    expected = 0.3 / game.clients * np.sum(g * game.gradients(run.points[-1]), axis=1)
    assert_allclose(profile.prices[-1], np.maximum(expected / (2 * np.sum(g**2, axis=1)), 0))


def test_equal_curvature_at_consensus_has_a_closed_form():
    """C_t = (γv/2N)(1 − γh(N−2)/(N−1))^{T−t}, for every client, in every round."""
    N, T, gamma, h = 5, 12, 0.2, 1.5
    rng = np.random.default_rng(0)
    game = Quadratics.of([h] * N, rng.standard_normal(N))
    blocks = Blocks(tuple(range(1, T + 1)), T)
    found = game.sensitivities(game.optimum(), constant_steps(gamma, T), blocks, value=3.0)
    expected = 3 * gamma / (2 * N) * (1 - gamma * h * (N - 2) / (N - 1)) ** np.arange(T - 1, -1, -1)
    assert_allclose(common_profile(found, blocks).prices, expected[:, None] * np.ones(N), rtol=1e-9)
    assert_allclose(
        individual_profile(found, blocks).prices, expected[:, None] * np.ones(N), rtol=1e-9
    )


def test_common_profile_is_the_least_squares_compromise():
    game, blocks = federation(7), Blocks((1, 5, 8), 8)
    steps = constant_steps(0.3, 8)
    found = game.sensitivities([1.0, 1.0, 1.0], steps, blocks)
    profile = common_profile(found, blocks)
    assert np.all(profile.prices == profile.prices[:, :1])
    last = np.sum(profile.residual[-1] ** 2)
    for factor in (0.99, 1.01):
        worse = profile.price.per_round()
        worse[-1] *= factor
        other = marginal(game, blocks, worse, steps, [1.0, 1.0, 1.0])
        assert np.sum(other[-1] ** 2) > last


def test_no_tried_deviation_gains_at_the_profile():
    """Best responses over all time-varying scales gain next to nothing at the profile."""
    game = federation(2)
    steps, start = constant_steps(0.3, 16), game.optimum() + 0.3
    blocks = Blocks(tuple(range(1, 17)), 16)
    prices = individual_profile(game.sensitivities(start, steps, blocks), blocks).price.per_round()
    rng = np.random.default_rng(0)
    for i in range(game.clients):
        free = game.best_timed(i, start, steps, 0.0, bounds=(1.0, 5.0))
        priced = game.best_timed(i, start, steps, prices, bounds=(1.0, 5.0), rng=rng)
        assert priced.gain <= 0.02 * free.gain


def test_two_alike_clients_leave_nearly_singular_blocks():
    """With N = 2 a long block's payments nearly cancel: the longer the block, the worse."""
    game = Quadratics.of([1.0, 1.0], [-1.0, 1.0])
    conditions = []
    for T in (50, 500, 5000):
        blocks = Blocks((1,), T)
        found = game.sensitivities(game.optimum(), constant_steps(0.3, T), blocks)
        profile = individual_profile(found, blocks)
        conditions.append(profile.condition[0])
    assert conditions[0] < conditions[1] < conditions[2]
    assert conditions[2] > 1000
    assert "nearly singular" in profile.undeterred[0][1]


def test_undeterred_clients_are_named():
    norms = np.zeros((2, 2, 1, 1))
    norms[0, 0] = -1.0  # over-reporting lowers client 0's own charge
    norms[1, 1] = 1.0
    found = individual_profile(
        Sensitivities(np.array([[1.0], [1.0]]), norms), Blocks((1,), 3), floor=0
    )
    assert found.undeterred[0][0] == 0
    assert "client 0 does not raise its own charge" in found.undeterred[0][1]
    assert_allclose(found.prices, [[0.0, 1.0]])


def test_negative_prices_become_zero():
    norms = np.zeros((2, 2, 1, 1))
    norms[0, 0], norms[1, 1] = 2.0, 2.0
    found = individual_profile(
        Sensitivities(np.array([[-1.0], [1.0]]), norms), Blocks((1,), 3), floor=0
    )
    assert_allclose(found.prices, [[0.0, 0.5]])
    assert_allclose(found.residual, [[-1.0, 0.0]])
    flat = common_profile(Sensitivities(np.array([[-1.0], [0.5]]), norms), Blocks((1,), 3))
    assert_allclose(flat.prices, 0)
    nothing = common_profile(
        Sensitivities(np.ones((2, 1)), np.zeros((2, 2, 1, 1))), Blocks((1,), 3)
    )
    assert_allclose(nothing.prices, 0)


@pytest.mark.parametrize("floor", [0.0, 0.25, 0.5])
def test_prices_are_stationary_above_the_floor(floor):
    """Complementarity: A C ≥ r, C ≥ φ·mean(C), equality where C is larger, on random systems."""
    rng, unsolved = np.random.default_rng(4), 0
    for _ in range(200):
        n = int(rng.integers(2, 7))
        norms = rng.standard_normal((n, n, 1, 1)) * 0.8
        norms[np.arange(n), np.arange(n)] = 2.0
        reward = rng.standard_normal((n, 1))
        found = individual_profile(Sensitivities(reward, norms), Blocks((1,), 2), floor)
        prices, least = found.prices[0], floor * found.prices[0].mean()
        if (0, NO_SOLUTION) in found.undeterred:
            unsolved += 1
            continue
        assert np.all(prices >= least * (1 - 1e-9))
        above = prices > least + 1e-9
        assert_allclose(found.residual[0][above], 0, atol=1e-8)
        assert np.all(found.residual[0][~above] <= 1e-8)
        assert ((0, NO_PRICE) in found.undeterred) == (prices.max() == 0)
    assert unsolved < 10


def test_a_price_below_half_of_the_mean_is_reported():
    """With a smaller floor, or none, a member may have too low a price."""
    norms = np.zeros((3, 3, 1, 1))
    norms[np.arange(3), np.arange(3)] = 2.0
    reward = np.array([[1.0], [0.0], [1.0]])
    sensitivities = Sensitivities(reward, norms)
    without = individual_profile(sensitivities, Blocks((1,), 3), floor=0)
    assert_allclose(without.prices, [[0.5, 0.0, 0.5]])
    assert without.undeterred == ((0, BELOW_FLOOR.format(client=1)),)
    assert individual_profile(sensitivities, Blocks((1,), 3)).undeterred == ()


def test_prices_that_the_floor_drives_to_infinity_are_replaced_and_reported():
    """Updates raise the others' norms so strongly that each floor raises the mean beyond it."""
    raises = np.array([[1.0, 2.0, 0.0], [1.6, 1.0, 1.7], [-3.5, 1.8, 1.0]])
    sensitivities = Sensitivities(np.full((3, 1), 0.4), raises[:, :, None, None])
    found = individual_profile(sensitivities, Blocks((1,), 3))
    assert (0, NO_SOLUTION) in found.undeterred
    assert_allclose(found.prices, common_profile(sensitivities, Blocks((1,), 3)).prices)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Blocks((2,), 3), "start at round 1"),
        (lambda: Blocks((1, 1), 3), "must rise"),
        (lambda: Blocks((1, 4), 3), "after the last round 3"),
        (lambda: refined_blocks(0), "must be ≥ 1"),
        (lambda: Sensitivities(np.ones((2, 3)), np.ones((2, 2, 3, 2))), "have shape"),
        (lambda: Sensitivities(np.ones((1, 1)), np.ones((1, 1, 1, 1))), "at least 2 clients"),
        (
            lambda: Sensitivities(np.full((2, 1), np.nan), np.ones((2, 2, 1, 1))),
            "diverged; lower the step",
        ),
        (
            lambda: common_profile(
                Sensitivities(np.ones((2, 1)), np.ones((2, 2, 1, 1))), Blocks((1, 2), 3)
            ),
            "for 1 blocks, got 2",
        ),
    ],
)
def test_wrong_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_prices_from_some_clients_alone():
    """With one client known the common price is its own: Σ_s C_s (J^ii − mean J^ij) = R exactly."""
    rng = np.random.default_rng(3)
    norms = np.abs(rng.normal(size=(1, 4, 3, 3))) * np.triu(np.ones((3, 3)))
    norms[0, 2] += 5 * np.triu(np.ones((3, 3)))
    reward = np.array([[9.0, 5.0, 2.0]])
    known = Sensitivities(reward, norms, np.array([2]))
    found = common_profile(known, Blocks((1, 2, 3), 3))
    others = norms[0, [0, 1, 3]].mean(axis=0)
    prices = np.linalg.solve(norms[0, 2] - others, reward[0])
    assert prices.min() > 0
    assert_allclose(found.prices, np.tile(prices[:, None], (1, 4)))
    assert_allclose(found.residual, 0, atol=1e-12)
    with pytest.raises(ValueError, match="derivatives of all"):
        individual_profile(known, Blocks((1, 2, 3), 3))
