"""The spot audit: odds, drawn against expected fines, and its bound on every deviation."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.game import Quadratics
from verax.mechanism import SpotAudit, Statistics, pay, schedule
from verax.mechanism.spot_audit import draw, round_odds, spot_audit_gain


def test_odds():
    odds, weight = round_odds([0.1, 0.2], [0.5, 1.0])
    assert_allclose(odds, [0.2, 0.8])
    assert weight == pytest.approx(0.25)
    for steps, influence, message in (
        ([0.1], [-1.0], "≥ 0"),
        ([], [], "T finite numbers"),
        ([0.1], [np.nan], "T finite numbers"),
        ([0.0], [1.0], "not all zero"),
    ):
        with pytest.raises(ValueError, match=message):
            round_odds(steps, influence)


def test_drawn_fines_have_the_expected_mean():
    """5,000 draws; the standard error is about 2 % of the largest payment."""
    rng = np.random.default_rng(0)
    T, N, c, v = 6, 3, 2.0, 1.5
    misreports = rng.exponential(size=(T, N))
    steps, influence = np.full(T, 0.1), np.linspace(0.3, 1, T)
    odds, weight = round_odds(steps, influence)
    price = c * v * weight / (2 * N)
    paid = np.array([draw(misreports, odds, price, rng).payments.amounts for _ in range(5_000)])
    assert_allclose(paid.sum(axis=1), 0, atol=1e-12)
    per_round = schedule.spot_audit(c, v, steps, influence, N).prices
    expected = pay(SpotAudit(), Statistics(misreport=misreports), per_round[:, None]).amounts.sum(
        axis=0
    )
    error = paid.std(axis=0) / np.sqrt(len(paid))
    assert np.all(np.abs(paid.mean(axis=0) - expected) < 4 * error)


def test_honest_members_pay_nothing_on_every_path():
    rng = np.random.default_rng(1)
    odds, _ = round_odds(np.ones(5), np.ones(5))
    for _ in range(50):
        assert not np.any(draw(np.zeros((5, 3)), odds, 7.0, rng).payments.amounts)


def test_no_deviation_gains_more_than_the_bound():
    """Any sign, direction and timing on quadratics: gain ≤ v L² W/(2cN), 600 random deviations."""
    rng = np.random.default_rng(2)
    N, T, gamma, h, v, c = 4, 8, 0.3, 1.0, 2.0, 1.0
    game = Quadratics.of([h] * N, rng.standard_normal((N, 2)))
    steps = np.full(T, gamma)
    influence = (1 - gamma * h) ** np.arange(T - 1, -1, -1.0)
    _, weight = round_odds(steps, influence)
    prices = schedule.spot_audit(c, v, steps, influence, N).prices
    start = np.array([1.0, 1.0])

    def utility(offsets):
        theta, fines, reach = start, 0.0, 0.0
        for t in range(T):
            m = game.gradients(theta)
            m[0] += offsets[t]
            distances = Statistics(misreport=[offsets[t] @ offsets[t], 0, 0, 0])
            fines += pay(SpotAudit(), distances, prices[t]).amounts[0]
            theta = theta - gamma * m.mean(axis=0)
            reach = max(reach, float(np.linalg.norm(game.gradients(theta)[0])))
        return -v * game.losses(theta)[0] - fines, reach

    honest, reach = utility(np.zeros((T, 2)))
    gains = []
    for _ in range(600):
        size = 10.0 ** rng.uniform(-2, 0.5)
        value, far = utility(size * rng.standard_normal((T, 2)) * (rng.random((T, 1)) < 0.5))
        reach = max(reach, far)
        gains.append(value - honest)
    steered = utility(np.tile(-0.5 * (game.centres[0] - game.optimum()), (T, 1)))
    gains.append(steered[0] - honest)
    assert max(gains) > 0
    assert max(gains) <= spot_audit_gain(v, reach, weight, c, N)


def test_wrong_shape():
    with pytest.raises(ValueError, match="rounds × clients for 2 rounds"):
        draw(np.ones((3, 2)), [0.5, 0.5], 1.0, np.random.default_rng(0))
