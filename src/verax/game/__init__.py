"""How clients behave, what the model is worth to them, and the games that can be solved exactly."""

from verax.game.mean_estimation import Bayesian, OneRound
from verax.game.misreports import (
    Absent,
    Adaptive,
    Directional,
    Honest,
    Mixed,
    Noise,
    Piecewise,
    Scale,
    ScaleAndNoise,
    Stretch,
    Timed,
)
from verax.game.parse import reporting_of
from verax.game.policy import LargerBatch, Policy
from verax.game.quadratics import BestResponse, Quadratics, Trajectory, four_clients
from verax.game.reporting import Layers, Reporting, Seen, Sender
from verax.game.reward import (
    REWARDS,
    GroupLoss,
    LogisticReward,
    OwnLoss,
    Reward,
    Rivalry,
    Valued,
    reward_of,
)

__all__ = [
    "REWARDS",
    "Absent",
    "Adaptive",
    "Bayesian",
    "BestResponse",
    "Directional",
    "GroupLoss",
    "Honest",
    "LargerBatch",
    "Layers",
    "LogisticReward",
    "Mixed",
    "Noise",
    "OneRound",
    "OwnLoss",
    "Piecewise",
    "Policy",
    "Quadratics",
    "Reporting",
    "Reward",
    "Rivalry",
    "Scale",
    "ScaleAndNoise",
    "Seen",
    "Sender",
    "Stretch",
    "Timed",
    "Trajectory",
    "Valued",
    "four_clients",
    "reporting_of",
    "reward_of",
]
