"""Exact quadratics: the paper's example, gradients with later payments, and what N = 2 means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from verax.game import Quadratics, four_clients
from verax.mechanism import SquaredNorm, constant_steps, pay


class TestFourClients:
    game = four_clients()

    def test_optimum_and_losses(self):
        assert_allclose(self.game.optimum(), 5 / 4)
        assert_allclose(self.game.optimum([3, 1, 1, 1]), 15 / 16)
        for a in (0.5, 2.0, 7.0):
            assert_allclose(self.game.optimum([a, 1, 1, 1]), 7.5 / (a + 5))
        before, after = self.game.losses([5 / 4]), self.game.losses([15 / 16])
        assert_allclose(before, [25 / 16, 17 / 16, 59 / 16, 57 / 16])
        assert_allclose(after, [225 / 256, 257 / 256, 1379 / 256, 817 / 256])
        assert after[2] - before[2] == pytest.approx(1.699, abs=5e-4)
        assert_allclose([before.mean(), after.mean()], [2.4688, 2.6152], atol=5e-5)

    def test_honest_payments_at_rest(self):
        assert_allclose(self.game.steady_payments(price=3.0), 3 * np.array([-4, -28, 52, -20]) / 3)

    def test_client_two_pays_less_by_over_reporting(self):
        paid = [self.game.steady_payments([1, a, 1, 1])[1] for a in (1.0, 1.1, 1.2, 1.3)]
        assert np.all(np.diff(paid) < 0)


def random_game(seed, clients=3, d=2):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((clients, d, d))
    hessians = np.einsum("nij,nkj->nik", roots, roots) + 0.2 * np.eye(d)
    return Quadratics.of(hessians, rng.standard_normal((clients, d)))


@given(seed=st.integers(0, 2**32), rounds=st.integers(0, 40), a=st.floats(0.1, 3))
def test_closed_form_equals_recursion(seed, rounds, a):
    game = random_game(seed)
    scales = np.array([a, 1.0, 1.0])
    start = [1.0, -1.0]
    run = game.run(start, np.full(rounds, 0.05), scales)
    assert_allclose(run.points[-1], game.final(start, 0.05, rounds, scales), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_gradient_counts_later_payments(seed):
    """Against central differences of the whole utility, for each a_t."""
    game = random_game(seed)
    rng = np.random.default_rng(seed)
    T = 7
    steps, scales = rng.uniform(0.05, 0.2, T), rng.uniform(0.5, 2, (T, 3))
    prices = rng.uniform(0, 0.3, (T, 3))
    found = game.utility_gradient(1, [1.0, 0.5], steps, scales, prices, value=1.5)
    for t in range(T):
        values = []
        for h in (1e-5, -1e-5):
            moved = scales.copy()
            moved[t, 1] += h
            run = game.run([1.0, 0.5], steps, moved)
            values.append(game.utility(1, run, prices, value=1.5))
        assert found[t] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6, abs=1e-8)


def test_best_responses_against_brute_force():
    game = random_game(1)
    steps, start, prices = constant_steps(0.2, 3), [1.0, 1.0], 0.02
    grid = np.linspace(0, 4, 21)
    best = -np.inf
    for a in np.stack(np.meshgrid(grid, grid, grid), -1).reshape(-1, 3)[::5]:
        scales = np.ones((3, 3))
        scales[:, 0] = a
        best = max(best, game.utility(0, game.run(start, steps, scales), prices))
    rng = np.random.default_rng(0)
    timed = game.best_timed(0, start, steps, prices, bounds=(0, 4), rng=rng)
    assert timed.utility >= best - 1e-9
    constant = game.best_constant(0, start, steps, prices, bounds=(0, 4))
    each = [
        game.utility(0, game.run(start, steps, np.array([a, 1.0, 1.0])), prices)
        for a in np.linspace(0, 4, 1001)
    ]
    assert constant.utility == pytest.approx(max(each), abs=1e-6)
    assert constant.utility >= max(each) - 1e-9
    assert timed.gain >= constant.gain >= 0
    alone = game.best_timed(0, start, steps, prices, bounds=(0, 4))
    assert alone.gain <= timed.gain + 1e-9


class TestTwoClients:
    """N = 2 with equal curvature: messages cancel at rest, whatever a is."""

    game = Quadratics.of([1.0, 1.0], [-1.0, 1.0])

    def test_no_price_deters_in_the_long_run(self):
        honest = self.game.losses(self.game.optimum())[0]
        for a in (1.5, 3.0, 10.0):
            rest = self.game.optimum([a, 1.0])
            assert self.game.losses(rest)[0] < honest  # it gains in loss
            for price in (1.0, 1e6):
                assert_allclose(self.game.steady_payments([a, 1.0], price), 0, atol=1e-6)

    def test_three_clients_lose_half_of_the_deterrent(self):
        """At rest dp/da = 2h²d²(N−1)(N−2)/N², d the distance from the others' mean centre."""
        h = 1.0
        for N in (2, 3, 4, 8, 20):
            x = np.zeros(N)
            x[0] = 1.0
            game = Quadratics.of([h] * N, x)
            step = 1e-6
            up, down = np.ones(N), np.ones(N)
            up[0] += step
            down[0] -= step
            slope = (game.steady_payments(up) - game.steady_payments(down))[0] / (2 * step)
            assert slope == pytest.approx(2 * (N - 1) * (N - 2) / N**2, abs=1e-6)

    def test_what_deters_is_the_way_there_alone(self):
        """Leaving rest costs once what staying away never costs again.

        From the honest rest the total payment of a deviation stays bounded as T grows, for every
        a; with three clients it grows without end. The price γv/(2N) makes honesty stationary here
        because of that one-off payment, and for no other reason.
        """
        totals = []
        for T in (200, 2000):
            run = self.game.run(0.0, constant_steps(0.2, T), np.array([2.0, 1.0]))
            totals.append(pay(SquaredNorm(), run.norms).amounts[:, 0].sum())
        assert totals[1] == pytest.approx(totals[0], rel=1e-6)
        steps = constant_steps(0.2, 300)
        slope = self.game.utility_gradient(0, 0.0, steps, 1.0, 0.2 / 4)
        assert_allclose(slope, 0, atol=1e-12)
        three = Quadratics.of([1.0] * 3, [-1.0, 1.0, 1.0])
        grown = [
            pay(
                SquaredNorm(),
                three.run(three.optimum(), constant_steps(0.2, T), np.array([2.0, 1, 1])).norms,
            )
            .amounts[:, 0]
            .sum()
            for T in (200, 2000)
        ]
        assert grown[1] > 5 * grown[0]


def test_shapes_and_errors():
    assert Quadratics.of([1.0, 2.0], [[0.0, 1.0], [1.0, 1.0]]).hessians.shape == (2, 2, 2)
    game = random_game(0)
    run = game.run([0.0, 0.0], constant_steps(0.1, 3))
    assert_allclose(np.diagonal(run.gram, axis1=1, axis2=2), run.norms)
    with pytest.raises(ValueError, match="do not fit centres"):
        Quadratics.of(np.ones((2, 3, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="finite"):
        Quadratics.of([1.0, np.nan], [0.0, 1.0])
    from verax.mechanism import Blocks

    with pytest.raises(ValueError, match="blocks cover 4 rounds, the run has 3"):
        game.sensitivities([0.0, 0.0], constant_steps(0.1, 3), Blocks((1,), 4))
