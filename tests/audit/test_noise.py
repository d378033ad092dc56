"""What sending less noise is paid: closed forms against enumeration."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.audit.conftest import RESCALINGS
from verax.audit import Plan, audit
from verax.audit.judge.noise import leak, noise_leaks, noise_of_average, share_in_batches
from verax.audit.plan.task import task_of
from verax.audit.search.larger_batch import larger_batches
from verax.game import Quadratics
from verax.learning import Seeds
from verax.learning.inputs import sample_positions
from verax.mechanism import SquaredNorm, pay
from verax.tasks import quadratics

SIGNAL = np.array([0.8, -0.3, 0.5])
NOISE = 0.9  # every coordinate of the noise is ± this, so that expectations can be enumerated


def expected_charge(noise, price, scale=1.0):
    """What client 0 of three pays in expectation, the others sending nothing, by enumeration."""
    signs = np.array(list(itertools.product([-1, 1], repeat=3)))
    messages = scale * (SIGNAL + noise * signs)
    norms = np.stack([np.sum(messages**2, axis=1), np.zeros(8), np.zeros(8)], axis=1)
    return pay(SquaredNorm(), norms, price).amounts[:, 0].mean()


@pytest.mark.parametrize("price", [0.1, 2.0])
def test_the_leak_is_exact_on_a_noisy_update_with_a_linear_reward(price):
    """The reward ℓ a is such that a = 1 is stationary: ℓ = 2 C E‖g‖²."""
    squares = SIGNAL @ SIGNAL + 3 * NOISE**2
    share = SIGNAL @ SIGNAL / squares
    reward = 2 * price * squares
    honest = reward - expected_charge(NOISE, price)
    h = 1e-4
    around = [reward * a - expected_charge(NOISE, price, a) for a in (1 - h, 1 + h)]
    assert_allclose(around, honest, rtol=1e-6)  # stationary
    at_one, best = leak(price, squares, share)
    quiet = reward - expected_charge(0.0, price)
    assert_allclose(quiet - honest, at_one, rtol=1e-12)
    assert_allclose(at_one, price * 3 * NOISE**2, rtol=1e-12)
    scales = np.linspace(0.5, 20, 40_001)
    gains = reward * scales - price * scales**2 * (SIGNAL @ SIGNAL) - honest
    assert_allclose(gains.max(), best, rtol=1e-6)
    assert_allclose(scales[np.argmax(gains)], 1 / share, rtol=1e-3)


def test_the_share_in_larger_batches_is_that_of_less_noise():
    signal, noise = 2.0, 6.0
    assert_allclose(share_in_batches(signal / (signal + noise), 4), signal / (signal + noise / 4))


@pytest.mark.parametrize("memory", [0.5, 0.9])
def test_an_average_keeps_the_sum_of_squared_weights_of_the_noise(memory):
    left = noise_of_average(memory, 12)
    for t in (1, 2, 12):
        weights = (1 - memory) * memory ** np.arange(t)[::-1]
        weights /= weights.sum()
        assert_allclose(left[t - 1], np.sum(weights**2), rtol=1e-12)


def test_the_leak_of_an_audit_is_that_of_a_noisy_quadratic():
    """One round of FedSGD: the noise of each member's draws, and what leaving it out is paid."""
    curvatures, centres = np.array([1.0, 2.0, 0.5]), np.array([[0.0], [1.5], [3.0]])
    start, step, batch = np.array([1.0]), 0.2, 4
    game = Quadratics.of(curvatures, centres, offsets=[1.0, 1.0, 1.0])
    task = quadratics(game, start, noise=1.5)
    found = audit(
        task,
        **{**RESCALINGS, "batches": (0,), "quiet_scales": (1.0,), "rules": ("squared-norm",)},
        scales=(0.5, 1.0, 2.0),
        phases=(),
        surges=(),
        noises=(),
        rounds=1,
        step=step,
        batch=batch,
        setting_seeds=16,
        choosing_seeds=1,
        judging_seeds=64,
    )
    judgement, plan = found.judgement, found.judgement.plan
    signal = (curvatures * (start - centres[:, 0])) ** 2
    protocol, sizes = plan.protocol.make(), np.array([len(own[0]) for own in task.train])
    norms, losses = np.zeros((64, 3)), np.zeros((64, 3))
    for row, seed in enumerate(plan.seeds.judging):
        drawn = sample_positions(protocol, sizes, Seeds.of(seed), 0, 1)[0, :, 0]
        means = [
            np.asarray(own[1])[at, 0].mean() for own, at in zip(task.train, drawn, strict=True)
        ]
        gradients = curvatures * (start - means)
        norms[row], losses[row] = gradients**2, game.losses(start - step * gradients.mean())
    prices = (judgement.multiplier * judgement.best.price.per_round())[0] * np.ones(3)
    charged, rewards = prices * norms.mean(axis=0), losses.mean(axis=0)
    share = signal / norms.mean(axis=0)
    assert np.all(share < 1)
    for row in found.summary["noise"]:
        i = row["client"]
        assert_allclose(row["signal_share"], share[i], rtol=1e-4)
        assert_allclose(row["predicted"], charged[i] * (1 - share[i]) / rewards[i], rtol=1e-4)
        best = charged[i] * (1 / share[i] - 1) / rewards[i]
        assert_allclose(row["predicted_best"], best, rtol=1e-4)
    # With larger batches, from two runs of the first judging seed.
    shares = larger_batches(judgement, found.judgement.subject)
    assert [one.client for one in shares] == [0, 1, 2]
    protocol = plan.changed(batch=4 * batch).protocol.make()
    drawn = sample_positions(protocol, sizes, Seeds.of(plan.seeds.judging[0]), 0, 1)[0, :, 0]
    for one, own, at in zip(shares, task.train, drawn, strict=True):
        i = one.client
        norm = (curvatures[i] * (start - np.asarray(own[1])[at, 0].mean())) ** 2
        share = min(signal[i] / norm.item(), 1.0)
        assert_allclose(one.shares, share, rtol=1e-4)
        (row,) = (row for row in noise_leaks(judgement) if row.client == i)
        assert_allclose(row.with_shares(one.shares), charged[i] * (1 - share) / rewards[i], 1e-4)


def test_an_audit_measures_the_signal_and_judges_smoothed_norms():
    options = {
        **RESCALINGS,
        "batches": (0,),
        "quiet_scales": (1.0,),
        "scales": (1.0, 2.0),
        "phases": (),
        "surges": (),
        "noises": (),
        "rounds": 12,
        "setting_seeds": 1,
        "choosing_seeds": 1,
        "judging_seeds": 2,
        "rules": ("squared-norm", "smoothed-norm"),
    }
    plan = Plan.of(**options, model="softmax", step=0.3)
    summary = audit(task_of(plan), plan).summary
    assert [row["client"] for row in summary["noise"]] == [0, 1, 2]
    for row in summary["noise"]:
        assert len(row["signal_share"]) == len(summary["profile"]["starts"])
        assert 0 < min(row["signal_share"]) < max(row["signal_share"]) <= 1
        assert row["predicted"] > 0
        assert row["source"] == "full batch"
    names = [row["name"] for row in summary["rules"]]
    assert "smoothed-norm, constant" in names
    assert {"less noise", "constant scale"} <= {row["kind"] for row in summary["tried"]}
