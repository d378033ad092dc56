"""Parts that a user might bring: none of them is known to the package."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from verax.game import Reporting, Reward
from verax.learning import CoordinateWise, Task


@dataclass(frozen=True)
class NormRule:
    """Charges the length of the message instead of its square."""

    name: ClassVar[str] = "norm"
    reads: ClassVar[str] = "norms"
    fewest: ClassVar[int] = 2

    def measure(self, statistics, present):
        return np.sqrt(statistics.norms)


@dataclass(frozen=True)
class MidRange(CoordinateWise):
    """The middle between the largest and the smallest value of each coordinate."""

    def combine(self, values, present):
        here = present.reshape(-1, *[1] * (values.ndim - 1))
        low = jnp.min(jnp.where(here, values, jnp.inf), axis=0)
        high = jnp.max(jnp.where(here, values, -jnp.inf), axis=0)
        return (low + high) / 2


@dataclass(frozen=True)
class FlipBias(Reporting):
    """Reverses the sign of the update's first array."""

    def message(self, update, seen):
        first, *rest = update
        return [-first, *rest], seen.memory


@dataclass(frozen=True)
class FlipLabels(Reporting):
    """Trains on flipped labels."""

    def batch(self, samples, seen):
        x, y = samples
        return x, 1 - y


@dataclass(frozen=True)
class RootReward(Reward):
    """A member's reward is −√F."""

    def __call__(self, losses):
        return -(losses**0.5)


def _clients():
    rng = np.random.default_rng(3)
    truth = rng.standard_normal(4)
    for size, shift in ((60, 0.0), (40, 1.0), (30, -1.0)):
        x = rng.standard_normal((size, 4)) + 0.4 * shift
        yield x, (x @ truth + shift > 0).astype(float)


def _loss(params, batch):
    x, y = batch
    z = x @ params["w"] + params["b"]
    return jnp.mean(jnp.logaddexp(0.0, z) - y * z)


#: A task as an object at the top level of its module.
wards = Task(
    "wards",
    list(_clients()),
    list(_clients()),
    lambda key: {"b": jnp.zeros(()), "w": jnp.zeros(4)},
    _loss,
    names=("north", "south", "west"),
)
