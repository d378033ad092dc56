"""How clients behave, what the model is worth to them, and the games that can be solved exactly."""

from verax.game.mean_estimation import Bayesian, OneRound
from verax.game.quadratics import BestResponse, Quadratics, Trajectory, four_clients
from verax.game.reporting import (
    Adaptive,
    Directional,
    Honest,
    Levels,
    Mixed,
    Noise,
    Reporting,
    Scale,
    ScaleAndNoise,
    Timed,
    from_json,
    message,
)
from verax.game.reward import GroupLoss, LogisticReward, OwnLoss, Reward, Rivalry

__all__ = [
    "Adaptive",
    "Bayesian",
    "BestResponse",
    "Directional",
    "GroupLoss",
    "Honest",
    "Levels",
    "LogisticReward",
    "Mixed",
    "Noise",
    "OneRound",
    "OwnLoss",
    "Quadratics",
    "Reporting",
    "Reward",
    "Rivalry",
    "Scale",
    "ScaleAndNoise",
    "Timed",
    "Trajectory",
    "four_clients",
    "from_json",
    "message",
]
