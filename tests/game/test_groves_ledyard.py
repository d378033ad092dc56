"""Groves-Ledyard on common-Hessian quadratics: no message sequence gains more than v(F − F*)/N."""

import numpy as np
import pytest

from verax.game import Quadratics
from verax.mechanism import GrovesLedyard, Statistics, pay, schedule

V = 1.5


class Federation:
    """N clients with one Hessian h·I in d dimensions; client 0 sends whatever it likes."""

    def __init__(self, seed, clients=4, d=2, rounds=6, gamma=0.4, h=1.2):
        rng = np.random.default_rng(seed)
        self.game = Quadratics.of([h] * clients, rng.standard_normal((clients, d)))
        self.start = rng.standard_normal(d)
        self.steps = np.full(rounds, gamma)
        self.prices = schedule.groves_ledyard(V, self.steps, h, clients).prices
        self.shape = (rounds, d)

    def utility(self, offsets, value=V):
        """Client 0 sends its gradient plus an offset per round; offsets of shape (…, T, d)."""
        offsets = np.reshape(offsets, (-1, *self.shape))
        theta, paid = np.tile(self.start, (len(offsets), 1)), np.zeros(len(offsets))
        for t, gamma in enumerate(self.steps):
            m = self.game.gradients(theta)
            m[:, 0] += offsets[:, t]
            gram = m @ np.swapaxes(m, 1, 2)
            paid += pay(GrovesLedyard(), Statistics.of_gram(gram), self.prices[t]).amounts[:, 0]
            theta = theta - gamma * m.mean(axis=1)
        return -value * self.game.losses(theta)[:, 0] - paid

    def best_gain(self, value=V):
        """The gain of the best of all message sequences, exactly.

        Utility is quadratic in the offsets x: U = U_0 + g·x + ½ xᵀHx, and its coefficients follow
        from its values at ±e_i and e_i + e_j.
        """
        n = int(np.prod(self.shape))
        e = np.eye(n)
        base = self.utility(np.zeros(n), value)[0]
        up, down = self.utility(e, value) - base, self.utility(-e, value) - base
        pairs = self.utility((e[:, None] + e[None]).reshape(-1, n), value).reshape(n, n) - base
        hessian = pairs - up[:, None] - up[None]
        gradient = (up - down) / 2
        assert np.linalg.eigvalsh(hessian).max() < 1e-12  # a best deviation exists
        best = np.linalg.lstsq(-hessian, gradient, rcond=1e-12)[0]
        return float(self.utility(best, value)[0] - base)

    @property
    def slack(self):
        end = self.game.run(self.start, self.steps).points[-1]
        excess = self.game.losses(end).mean() - self.game.losses(self.game.optimum()).mean()
        return V * excess / self.game.clients


@pytest.mark.parametrize("clients", range(3, 51))
def test_balanced(clients):
    rng = np.random.default_rng(clients)
    m = rng.standard_normal((clients, 5))
    amounts = pay(GrovesLedyard(), Statistics.of_gram(m @ m.T)).amounts
    assert abs(amounts.sum()) <= 1e-12 * np.abs(amounts).max() * clients
    assert np.abs(amounts).max() > 0


def test_thousand_random_deviations():
    """Signs, directions, sizes and timings at random, on ten federations."""
    rng = np.random.default_rng(0)
    for seed in range(10):
        f = Federation(seed, clients=3 + seed % 4)
        size = 10.0 ** rng.uniform(-3, 1, (100, 1, 1))
        when = rng.random((100, f.shape[0], 1)) < rng.choice([0.2, 0.5, 1.0], (100, 1, 1))
        gains = f.utility(size * when * rng.standard_normal((100, *f.shape)))
        gains = gains - f.utility(np.zeros(f.shape))
        assert gains.max() <= f.slack + 1e-12


def test_hundred_optimised_deviations():
    for seed in range(100):
        f = Federation(seed, clients=3 + seed % 5, rounds=3 + seed % 4)
        assert -1e-12 <= f.best_gain() <= f.slack + 1e-9


def test_a_wrong_value_gains_what_the_formula_says():
    """For true value kv at rest the gain is v (k−1)² ‖g_i‖²_{H⁻¹}/(2(k+N−1)) over a long run."""
    k, N, h = 3.0, 4, 1.0
    f = Federation(1, clients=N, d=1, rounds=20, gamma=0.5, h=h)
    f.start = f.game.optimum()
    g = f.game.gradients(f.start)[0]
    expected = V * (k - 1) ** 2 * float(g @ g) / h / (2 * (k + N - 1))
    assert f.best_gain(value=k * V) == pytest.approx(expected, rel=1e-3)
    assert f.best_gain() == pytest.approx(0, abs=1e-9)
