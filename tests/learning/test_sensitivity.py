"""Differentiating through training: exact on quadratics, finite differences on digits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.game import Levels, LogisticReward, OwnLoss, Quadratics
from verax.learning import (
    Differentiator,
    Median,
    Protocol,
    Seeds,
    Simulator,
    honest,
    tangent_rounds,
)
from verax.learning.sensitivity import stages
from verax.mechanism import Blocks, refined_blocks
from verax.tasks import digits, quadratics


def test_equals_the_exact_tangent_on_quadratics():
    rng = np.random.default_rng(1)
    roots = rng.standard_normal((3, 3, 3))
    hessians = np.einsum("nij,nkj->nik", roots, roots) / 3 + 0.3 * np.eye(3)
    game = Quadratics.of(hessians, rng.standard_normal((3, 3)))
    start, T = [1.0, -1.0, 0.5], 24
    blocks = refined_blocks(T)
    simulator = Simulator(quadratics(game, start), Protocol(step=0.2), T, segment=7)
    found = Differentiator(simulator, blocks, OwnLoss(2.0))(Seeds.of(0))
    truth = game.sensitivities(start, np.full(T, 0.2), blocks, value=2.0)
    assert_allclose(found.reward, truth.reward, rtol=1e-4, atol=1e-5)
    assert_allclose(found.norms, truth.norms, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(step=0.2),
        pytest.param(Protocol("fedavg", 0.2, local_steps=2), marks=pytest.mark.slow),
    ],
)
def test_equals_finite_differences_on_digits(protocol):
    T, blocks = 12, Blocks((1, 7, 12), 12)
    simulator = Simulator(digits(model="softmax"), protocol, T)
    reward = LogisticReward()
    found = Differentiator(simulator, blocks, reward)(Seeds.of(1))
    h = 0.05
    for i, k in ((0, 0), (2, 1), (1, 2)):
        runs = []
        for sign in (1, -1):
            a = np.where(blocks.of_round == k, 1 + sign * h, 1.0)
            run = [honest(T)] * 3
            run[i] = Levels(a, np.zeros(T))
            runs.append(run)
        both = simulator.run(Seeds.of(1), runs)
        worth = reward(both.evaluations[-1].loss)[:, i]
        assert found.reward[i, k] == pytest.approx((worth[0] - worth[1]) / (2 * h), rel=0.02)
        norms = blocks.sums(both.norms, axis=1)
        slope = (norms[0] - norms[1]) / (2 * h)
        scale = np.abs(slope).max()
        assert_allclose(found.norms[i, :, k, :].T, slope, rtol=0.05, atol=0.01 * scale)


def test_robust_aggregators_can_be_differentiated():
    T, blocks = 6, Blocks((1, 4), 6)
    simulator = Simulator(digits(model="softmax"), Protocol(step=0.2, aggregator=Median()), T)
    found = Differentiator(simulator, blocks, OwnLoss())(Seeds.of(0))
    assert np.isfinite(found.reward).all()
    assert np.all(np.diagonal(found.norms[:, :, 1, 1]) > 0)


def test_tangents_in_groups_are_those_at_once():
    centres = np.random.default_rng(0).standard_normal((3, 2))
    game = Quadratics.of(np.stack([h * np.eye(2) for h in (1.0, 2.0, 0.5)]), centres)
    simulator = Simulator(quadratics(game, np.ones(2)), Protocol(step=0.2), 12)
    blocks = refined_blocks(12)
    whole = Differentiator(simulator, blocks, OwnLoss())(Seeds.of(0))
    found = Differentiator(simulator, blocks, OwnLoss(), together=4)(Seeds.of(0))
    assert_allclose(found.reward, whole.reward, rtol=1e-4, atol=1e-6)
    assert_allclose(found.norms, whole.norms, rtol=1e-3, atol=1e-4)


def test_stages_cover_all_rounds_with_the_blocks_begun():
    blocks = refined_blocks(100)
    assert stages(blocks) == [(0, 50, 1), (50, 100, len(blocks))]
    assert stages(Blocks((1, 3), 5)) == [(0, 5, 2)]  # too short to be worth two programs
    with pytest.raises(ValueError, match="blocks cover 5 rounds, the run has 9"):
        Differentiator(Simulator(digits(), Protocol(), 9), Blocks((1,), 5), OwnLoss())


def test_derivatives_of_some_clients_are_those_among_all():
    T, blocks = 6, Blocks((1, 4), 6)
    simulator = Simulator(digits(model="softmax"), Protocol(step=0.2), T)
    everybody = Differentiator(simulator, blocks, OwnLoss())(Seeds.of(0))
    heard = []
    some = Differentiator(simulator, blocks, OwnLoss(), [2])
    found = some(Seeds.of(0), heard.append)
    assert found.clients.tolist() == [2]
    assert_allclose(found.reward, everybody.reward[2:], rtol=1e-4)
    assert_allclose(found.norms, everybody.norms[2:], rtol=1e-3, atol=1e-4)
    assert sum(heard) == tangent_rounds(blocks, 1) == 6 * 2
