"""Rewards by hand, and their Lipschitz constants by search."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.game import GroupLoss, LogisticReward, OwnLoss, Reward, Rivalry, Valued

LOSSES = np.array([[1.0, 2.0, 3.0], [0.5, 0.25, 4.0]])


def test_values():
    assert_allclose(OwnLoss(2.0, fixed=1.0)(LOSSES), 1 - 2 * LOSSES)
    expected = [[1 / (1 + math.exp(-1 / f)) for f in row] for row in LOSSES]
    assert_allclose(LogisticReward()(LOSSES), expected)
    assert_allclose(GroupLoss((0, 0, 1))(LOSSES[0]), [-1.5, -1.5, -3])
    assert_allclose(
        Rivalry(1.0, 0.5, fixed=2.0)(LOSSES[0]), [2 - 1 + 1.25, 2 - 2 + 1, 2 - 3 + 0.75]
    )


def test_worth_multiplies_each_members_reward():
    found = Valued(Rivalry(1.0, 0.5), (2.0, 10.0, 1.0))(LOSSES[0])
    assert_allclose(found, [2 * (-1 + 1.25), 10 * (-2 + 1), -3 + 0.75])
    assert_allclose(Valued(OwnLoss(), (3.0,))(LOSSES), -3 * LOSSES)
    assert Valued(OwnLoss(), (2.0, 5.0)).lipschitz(gradient_bound=3.0) == 15.0
    assert Valued(OwnLoss(), (2.0,)).lipschitz() is None
    assert Valued(OwnLoss(2.0), (5.0,)).name == "own:2,0"


def test_logistic_rises_from_a_half_to_one_as_the_loss_falls():
    found = LogisticReward()(np.array([1e-300, 1e-3, 1.0, 1e3, 1e300]))
    assert np.all(np.diff(found) <= 0)
    assert found[0] == 1.0
    assert found[-1] == pytest.approx(0.5)


def test_logistic_constant_is_the_worst_slope():
    """max of |R'(F)| √(2HF) over F, by a dense search: ‖∇F‖ ≤ √(2HF) for H-smooth F ≥ 0."""
    F = np.geomspace(1e-3, 1e3, 400_001)
    slope = np.abs(np.gradient(LogisticReward()(F), F))
    found = np.max(slope * np.sqrt(2 * F))
    assert LogisticReward().lipschitz(smoothness=1.0) == pytest.approx(found, rel=1e-4)
    assert LogisticReward().lipschitz(smoothness=4.0) == pytest.approx(2 * found, rel=1e-4)


def test_lipschitz_constants():
    assert OwnLoss(-3.0).lipschitz(gradient_bound=2.0) == 6.0
    assert GroupLoss((0, 1)).lipschitz(gradient_bound=2.0) == 2.0
    assert Rivalry(1.0, -0.5).lipschitz(gradient_bound=2.0) == 3.0
    for reward in (OwnLoss(), GroupLoss((0, 1)), Rivalry(), LogisticReward()):
        assert reward.lipschitz() is None


def test_wrong_values():
    with pytest.raises(ValueError, match="losses > 0, the lowest is 0"):
        LogisticReward()(np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="groups name 2 clients, losses are for 3"):
        GroupLoss((0, 1))(LOSSES)
    with pytest.raises(ValueError, match="at least 2 clients"):
        Rivalry()(np.ones(1))
    with pytest.raises(NotImplementedError):
        Reward()(LOSSES)
