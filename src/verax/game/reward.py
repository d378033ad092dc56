"""What the final model is worth to each client, from all clients' losses F_j(θ).

    own      R_i = −F_i
    logistic R_i = 1/(1 + exp(−1/F_i)), F_i > 0; in (½, 1), rising as the loss falls
    group    R_i = −mean_{j∈S_i} F_j
    rivalry  R_i = −αF_i + (β/(N−1)) Σ_{j≠i} F_j

each plus a fixed amount. The formulas use only arithmetic and so work on NumPy and JAX arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.plugins import is_reference, load, reference

#: max over F > 0 of √(2F) · |d/dF 1/(1+exp(−1/F))|: by smoothness ‖∇F‖ ≤ √(2HF) for F ≥ 0.
_LOGISTIC_GRADIENT = 0.42002


@dataclass(frozen=True)
class Reward:
    """Base of all rewards."""

    def __call__(self, losses: Any) -> Any:
        """R, shape (…, N), from losses of shape (…, N)."""
        raise NotImplementedError

    def lipschitz(
        self, *, gradient_bound: float | None = None, smoothness: float | None = None
    ) -> float | None:
        """L with |R_i(θ) − R_i(θ')| ≤ L‖θ − θ'‖, or None where what is given implies none.

        Args:
            gradient_bound: of every ‖∇F_j‖ on the parameter set.
            smoothness: H of every F_j.
        """
        return None

    @property
    def name(self) -> str:
        """The reward's text in a plan; `reward_of` reads it back."""
        return reference(self, "reward")


@dataclass(frozen=True)
class OwnLoss(Reward):
    """R_i = −v F_i + fixed."""

    value: float = 1.0
    fixed: float = 0.0

    def __call__(self, losses: Any) -> Any:
        return -self.value * losses + self.fixed

    def lipschitz(
        self, *, gradient_bound: float | None = None, smoothness: float | None = None
    ) -> float | None:
        return None if gradient_bound is None else abs(self.value) * gradient_bound

    @property
    def name(self) -> str:
        return _text("own", (self.value, self.fixed), (1.0, 0.0))


@dataclass(frozen=True)
class LogisticReward(Reward):
    """R_i = 1/(1 + exp(−1/F_i)) + fixed, globally Lipschitz with L = 0.42002 √H for F ≥ 0."""

    fixed: float = 0.0

    def __call__(self, losses: Any) -> Any:
        if isinstance(losses, np.ndarray) and np.any(losses <= 0):
            raise ValueError(
                f"the logistic reward needs losses > 0, the lowest is {np.min(losses):g}"
            )
        return 1 / (1 + math.e ** (-1 / losses)) + self.fixed

    def lipschitz(
        self, *, gradient_bound: float | None = None, smoothness: float | None = None
    ) -> float | None:
        return None if smoothness is None else _LOGISTIC_GRADIENT * math.sqrt(smoothness)

    @property
    def name(self) -> str:
        return _text("logistic", (self.fixed,), (0.0,))


@dataclass(frozen=True)
class GroupLoss(Reward):
    """R_i = −mean of F_j over the group that i belongs to + fixed."""

    groups: tuple[int, ...]
    fixed: float = 0.0

    def __call__(self, losses: Any) -> Any:
        member = np.asarray(self.groups)
        if losses.shape[-1] != member.size:
            raise ValueError(
                f"groups name {member.size} clients, losses are for {losses.shape[-1]}"
            )
        same = (member[:, None] == member[None]).astype(float)
        return -losses @ (same / same.sum(axis=0)) + self.fixed

    def lipschitz(
        self, *, gradient_bound: float | None = None, smoothness: float | None = None
    ) -> float | None:
        return gradient_bound

    @property
    def name(self) -> str:
        return _text("group", self.groups, ())


@dataclass(frozen=True)
class Rivalry(Reward):
    """R_i = −αF_i + (β/(N−1)) Σ_{j≠i} F_j + fixed: the others' failure is worth something too."""

    alpha: float = 1.0
    beta: float = 0.5
    fixed: float = 0.0

    def __call__(self, losses: Any) -> Any:
        n = losses.shape[-1]
        if n < 2:
            raise ValueError("rivalry needs at least 2 clients")
        others = (losses.sum(-1)[..., None] - losses) / (n - 1)
        return -self.alpha * losses + self.beta * others + self.fixed

    def lipschitz(
        self, *, gradient_bound: float | None = None, smoothness: float | None = None
    ) -> float | None:
        if gradient_bound is None:
            return None
        return (abs(self.alpha) + abs(self.beta)) * gradient_bound

    @property
    def name(self) -> str:
        return _text("rivalry", (self.alpha, self.beta, self.fixed), (1.0, 0.5, 0.0))


@dataclass(frozen=True)
class Valued(Reward):
    """v_i R_i: a reward in money, where v_i is what a unit of R_i is worth to client i.

    Attributes:
        reward: R, in units of its own.
        worth: v, one number for all clients or one per client.
    """

    reward: Reward
    worth: tuple[float, ...]

    def __call__(self, losses: Any) -> Any:
        return self.reward(losses) * np.asarray(self.worth)

    def lipschitz(
        self, *, gradient_bound: float | None = None, smoothness: float | None = None
    ) -> float | None:
        own = self.reward.lipschitz(gradient_bound=gradient_bound, smoothness=smoothness)
        return None if own is None else max(self.worth) * own

    @property
    def name(self) -> str:
        """The name of the reward itself; a plan states the worth separately."""
        return self.reward.name


#: How plans and command lines write the rewards.
REWARDS = ("own", "logistic", "group:G1,G2,…", "rivalry:ALPHA,BETA", "module:name")


def reward_of(text: str, clients: int) -> Reward:
    """A reward from its text: a name with its numbers behind a colon, or `module:name`."""
    name, _, rest = text.partition(":")
    if name not in {usual.partition(":")[0] for usual in REWARDS} and is_reference(text):
        return load(text, "reward", "name")
    try:
        numbers = [float(part) for part in rest.split(",")] if rest else []
        match name:
            case "own":
                return OwnLoss(*numbers)
            case "logistic":
                return LogisticReward(*numbers)
            case "group":
                if len(numbers) != clients:
                    raise ValueError(f"{clients} clients need as many group numbers")
                return GroupLoss(tuple(int(number) for number in numbers))
            case "rivalry":
                return Rivalry(*numbers)
            case _:
                raise ValueError
    except (ValueError, TypeError) as error:
        why = f" ({error})" if str(error) else ""
        raise ValueError(f"reward is {text!r}{why}, must be one of {', '.join(REWARDS)}") from None


def _text(name: str, numbers: tuple[float, ...], usual: tuple[float, ...]) -> str:
    return name if numbers == usual else f"{name}:" + ",".join(f"{x:g}" for x in numbers)
