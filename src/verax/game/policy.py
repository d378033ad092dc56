"""Misreports that use more than the update of the round: a client's past, the last aggregate, data.

They are what a price on squared norms does not see by itself. A client that averages its own
updates, or trains on more samples, sends less noise and is charged less; one that adds or subtracts
the last aggregate bends the direction of its message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from verax.game.reporting import Array, Layers, Reporting, Seen, check_finite, norm_of

#: Into how many parts the model's list of arrays is cut.
PARTS = 4


@dataclass(frozen=True)
class Policy(Reporting):
    """A message from the update, the client's own past updates and the last aggregate.

    With v the moving average of the client's updates (bias-corrected) and A the last aggregate,
    scaled to the length of the update g,

        m = a · [g + own · (v − g) + aggregate · A],

    and the model's arrays are also multiplied by `layers`: their list is cut into four parts, or
    fewer of equal length, each with a factor of its own. The run is cut into parts, too: `scale`,
    `own` and `aggregate` each hold one number per part.

    Attributes:
        scale: a in each part.
        starts: the first round of each part of `scale`; empty: parts of equal length.
        memory: β of the moving average.
        own: how far the message is replaced by the moving average, in parts of equal length.
        aggregate: how much of the last aggregate is added, in parts of equal length.
        layers: the factors of 1, 2 or 4 parts of the model's list of arrays.
    """

    scale: tuple[float, ...] = (1.0,)
    starts: tuple[int, ...] = ()
    memory: float = 0.0
    own: tuple[float, ...] = (0.0,)
    aggregate: tuple[float, ...] = (0.0,)
    layers: tuple[float, ...] = (1.0,)
    kind: ClassVar[str] = "policy"
    shared_program: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("scale", "own", "aggregate", "layers"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} is empty, must hold a number for each part")
            check_finite(**{f"{name}[{k}]": value for k, value in enumerate(values)})
        if PARTS % len(self.layers):
            raise ValueError(f"layers has {len(self.layers)} factors, must have 1, 2 or {PARTS}")
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory is {self.memory:g}, must be at least 0 and below 1")
        if self.starts and (
            len(self.starts) != len(self.scale)
            or self.starts[0] != 1
            or any(a >= b for a, b in zip(self.starts, self.starts[1:], strict=False))
        ):
            raise ValueError(
                f"starts are {list(self.starts)}, must be 1 and then increasing, one for each of "
                f"the {len(self.scale)} scales"
            )

    def parameters(self, rounds: int, rng: np.random.Generator) -> dict[str, Array]:
        """All numbers of the policy, by round, so that all policies share one program."""
        scale = _by_parts(self.scale, rounds)
        if self.starts:
            part = np.searchsorted(self.starts, np.arange(1, rounds + 1), side="right") - 1
            scale = np.array(self.scale)[part]
        return {
            "scale": scale,
            "own": _by_parts(self.own, rounds),
            "aggregate": _by_parts(self.aggregate, rounds),
            "memory": np.full(rounds, self.memory),
            "layers": np.tile(np.repeat(self.layers, PARTS // len(self.layers)), (rounds, 1)),
        }

    def start(self, update: Layers) -> Any:
        """No past updates, and the weight of those that the average holds."""
        return {"sum": [0 * layer for layer in update], "weight": 0 * norm_of(update)}

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        """The message, and the sum of past updates of which the moving average is made."""
        now, beta = seen.parameters, seen.parameters["memory"]
        total = [beta * v + (1 - beta) * g for v, g in zip(seen.memory["sum"], update, strict=True)]
        weight = beta * seen.memory["weight"] + (1 - beta)
        length, last = norm_of(update), norm_of(seen.last_aggregate)
        xp = length.__array_namespace__()
        push = xp.where(last > 0, now["aggregate"] * length / xp.maximum(last, 1e-30), 0.0)
        message = [
            now["scale"]
            * now["layers"][PARTS * k // len(update)]
            * (g + now["own"] * (v / weight - g) + push * last_move)
            for k, (g, v, last_move) in enumerate(
                zip(update, total, seen.last_aggregate, strict=True)
            )
        ]
        return message, {"sum": total, "weight": weight}

    def describe(self, rounds: int) -> str:
        """What differs from honesty."""
        words: list[str] = []
        if any(self.own) and self.memory:
            words.append(f"own momentum {self.memory:g}{_share(self.own)}")
        if any(self.aggregate):
            toward = "toward" if sum(self.aggregate) > 0 else "away from"
            words.append(f"pushed {toward} the last aggregate by {_list(self.aggregate)}")
        if any(factor != 1 for factor in self.layers):
            words.append(_layers(self.layers))
        if any(a != 1 for a in self.scale):
            words.append(f"scale {_list(self.scale)}")
        return ", ".join(words) or "honest"


@dataclass(frozen=True)
class LargerBatch(Reporting):
    """Trains on several batches of samples at once, or on all samples, and scales the update.

    Attributes:
        batches: how many batches; 0 stands for all samples.
        a: the scale.
    """

    batches: int
    a: float = 1.0
    kind: ClassVar[str] = "larger-batch"

    def __post_init__(self) -> None:
        check_finite(a=self.a)
        if self.batches < 0 or self.batches == 1:
            raise ValueError(f"batches are {self.batches}, must be 0 (all samples) or more than 1")

    @property
    def batches_drawn(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many ordinary batches are drawn at once."""
        return self.batches

    @property
    def program(self) -> Any:
        """Scales are no part of the program."""
        return replace(self, a=1.0)

    def scales(self, rounds: int) -> Array:
        """The same scale in all rounds."""
        return np.full(rounds, self.a)

    def describe(self, rounds: int) -> str:
        """How many samples, and the scale."""
        words = f"{self.batches} batches at once" if self.batches else "full batch"
        return words + (f", scale {self.a:g}" if self.a != 1 else "")


def _layers(factors: tuple[float, ...]) -> str:
    match factors:
        case (first, 1.0):
            return f"the first half of the model times {first:g}"
        case (1.0, second):
            return f"the second half of the model times {second:g}"
        case _:
            return f"parts of the model times {', '.join(f'{a:.3g}' for a in factors)}"


def _by_parts(values: tuple[float, ...], rounds: int) -> Array:
    """One number for each round, from numbers for parts of equal length."""
    part = np.arange(rounds) * len(values) // rounds
    return np.array(values, dtype=np.float64)[part]


def _list(values: tuple[float, ...]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:.3g}"
    return " → ".join(f"{value:.3g}" for value in values)


def _share(own: tuple[float, ...]) -> str:
    return "" if set(own) == {1.0} else f" (share {_list(own)})"
