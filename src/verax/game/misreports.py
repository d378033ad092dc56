"""The reportings that come with Verax: scales, timings, noise, turned updates.

The paper's theorems cover a ≥ 1, and turned messages only while a cos φ ≥ 1; everything else is
allowed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verax.game.reporting import (
    Array,
    Layers,
    Reporting,
    Seen,
    check_finite,
    inner_of,
    norm_of,
    size_of,
)


@dataclass(frozen=True)
class ScaleAndNoise(Reporting):
    """m = a g + b ξ in every round, with E‖ξ‖² = 1 over the whole update."""

    a: float
    b: float
    kind: ClassVar[str] = "scale-and-noise"
    shared_program: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_finite(a=self.a, b=self.b)

    @property
    def changes_message(self) -> bool:
        return self.b != 0

    def scales(self, rounds: int) -> Array:
        return np.full(rounds, 1.0 if self.b else self.a)

    def parameters(self, rounds: int, rng: np.random.Generator) -> dict[str, Array]:
        return {"a": np.full(rounds, self.a), "b": np.full(rounds, self.b)}

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        return _with_noise(update, seen), seen.memory

    @property
    def constant(self) -> tuple[float, float]:
        return self.a, self.b

    @property
    def covered(self) -> bool:
        return self.a >= 1

    def describe(self, rounds: int) -> str:
        if self.a == 1:
            return "honest" if self.b == 0 else f"noise {self.b:g}"
        if self.a == 0 and self.b == 0:
            return "free-riding (a = 0)"
        return f"scale {self.a:g}" + (f" and noise {self.b:g}" if self.b else "")


def Honest() -> ScaleAndNoise:
    """The message is the update."""
    return ScaleAndNoise(1.0, 0.0)


def Scale(a: float) -> ScaleAndNoise:
    """M = a g; a = 0 is free-riding, a < 0 reverses the update."""
    return ScaleAndNoise(float(a), 0.0)


def Noise(b: float) -> ScaleAndNoise:
    """M = g + b ξ."""
    return ScaleAndNoise(1.0, float(b))


@dataclass(frozen=True)
class Stretch(Reporting):
    """Scale a in rounds first … last, honest in all others."""

    a: float
    first: int
    last: int
    kind: ClassVar[str] = "stretch"

    def __post_init__(self) -> None:
        check_finite(a=self.a)
        if not 1 <= self.first <= self.last:
            raise ValueError(f"rounds {self.first} … {self.last} are not a stretch of rounds")

    def scales(self, rounds: int) -> Array:
        t = np.arange(1, rounds + 1)
        return np.where((self.first <= t) & (t <= self.last), self.a, 1.0)

    @property
    def covered(self) -> bool:
        return self.a >= 1

    def describe(self, rounds: int) -> str:
        count = self.last - self.first + 1
        if self.last == rounds:
            where = f"the last {count} rounds" if count > 1 else "the last round"
        else:
            where = f"rounds {self.first} to {self.last}" if count > 1 else f"round {self.first}"
        return f"scale {self.a:g} in {where}"


@dataclass(frozen=True)
class Piecewise(Reporting):
    """A scale for each part of the run.

    Attributes:
        a: the scale in each part.
        starts: the first round of each part; the first is 1.
    """

    a: tuple[float, ...]
    starts: tuple[int, ...]
    kind: ClassVar[str] = "piecewise"

    def __post_init__(self) -> None:
        check_finite(**{f"a[{k}]": value for k, value in enumerate(self.a)})
        if len(self.a) != len(self.starts) or self.starts[:1] != (1,):
            raise ValueError(
                f"{len(self.a)} scales have {len(self.starts)} starts, must be as many and begin "
                "with round 1"
            )

    def scales(self, rounds: int) -> Array:
        part = np.searchsorted(self.starts, np.arange(1, rounds + 1), side="right") - 1
        return np.array(self.a)[part]

    def describe(self, rounds: int) -> str:
        return "scale " + " → ".join(f"{value:.3g}" for value in self.a)


@dataclass(frozen=True)
class Absent(Reporting):
    """Takes no part in some stretches of rounds, and is honest in all others.

    Attributes:
        stretches: (first round, last round) of each.
    """

    stretches: tuple[tuple[int, int], ...]
    kind: ClassVar[str] = "absent"

    def __post_init__(self) -> None:
        ordered = [end for stretch in self.stretches for end in stretch]
        if not self.stretches or ordered[0] < 1 or ordered != sorted(ordered):
            raise ValueError(
                f"stretches are {[list(s) for s in self.stretches]}, must be pairs of a first and "
                "a last round ≥ 1, in order"
            )

    def absences(self, rounds: int) -> NDArray[np.bool_]:
        t = np.arange(1, rounds + 1)[:, None]
        first, last = np.array(self.stretches).T
        return np.any((first <= t) & (t <= last), axis=1)

    def describe(self, rounds: int) -> str:
        words = [
            f"round {a}" if a == b else f"rounds {a} to {min(b, rounds)}" for a, b in self.stretches
        ]
        return "absent in " + ", ".join(words)


@dataclass(frozen=True)
class Timed(Reporting):
    """Scale a_early until a share `switch` of the rounds is over, then a_late."""

    a_early: float
    a_late: float
    switch: float
    kind: ClassVar[str] = "timed"

    def __post_init__(self) -> None:
        check_finite(a_early=self.a_early, a_late=self.a_late)
        if not 0 <= self.switch <= 1:
            raise ValueError(f"switch is {self.switch:g}, must be a share of the rounds, 0 … 1")

    def scales(self, rounds: int) -> Array:
        return np.where(np.arange(rounds) < self._early(rounds), self.a_early, self.a_late)

    def _early(self, rounds: int) -> int:
        return math.floor(self.switch * rounds + 0.5)

    @property
    def covered(self) -> bool:
        return min(self.a_early, self.a_late) >= 1

    def describe(self, rounds: int) -> str:
        late = rounds - self._early(rounds)
        where = f"the last {late} rounds" if late != 1 else "the last round"
        return f"scale {self.a_early:g}, then {self.a_late:g} in {where}"


@dataclass(frozen=True)
class Mixed(Reporting):
    """In each round (a, b) is drawn anew from a list, independent of history."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    odds: tuple[float, ...]
    kind: ClassVar[str] = "mixed"
    shared_program: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.a or not len(self.a) == len(self.b) == len(self.odds):
            raise ValueError(
                f"mixed needs as many a as b as odds, got {len(self.a)}, {len(self.b)}, "
                f"{len(self.odds)}"
            )
        for a, b in zip(self.a, self.b, strict=True):
            check_finite(a=a, b=b)
        if min(self.odds) < 0 or not math.isclose(sum(self.odds), 1, abs_tol=1e-9):
            raise ValueError(f"odds must be ≥ 0 and sum to 1, these sum to {sum(self.odds):g}")

    def parameters(self, rounds: int, rng: np.random.Generator) -> dict[str, Array]:
        odds = np.asarray(self.odds)
        drawn = rng.choice(len(self.a), size=rounds, p=odds / odds.sum())
        return {"a": np.asarray(self.a)[drawn], "b": np.asarray(self.b)[drawn]}

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        return _with_noise(update, seen), seen.memory

    @property
    def covered(self) -> bool:
        return min(self.a) >= 1

    def describe(self, rounds: int) -> str:
        parts = zip(self.odds, self.a, self.b, strict=True)
        return "mixed: " + ", ".join(
            f"{odds:.0%} {ScaleAndNoise(a, b).describe(rounds)}" for odds, a, b in parts
        )


@dataclass(frozen=True)
class Adaptive(Reporting):
    """The scale follows the round and the client's own history.

    a_t = clip(a + drift·(t−1)/(T−1) + feedback·log(‖g_t‖/mean of earlier ‖g‖), low, high).
    """

    a: float
    b: float = 0.0
    drift: float = 0.0
    feedback: float = 0.0
    low: float = 1.0
    high: float = 10.0
    kind: ClassVar[str] = "adaptive"
    shared_program: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_finite(a=self.a, b=self.b, drift=self.drift, feedback=self.feedback)
        check_finite(low=self.low, high=self.high)
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} exceeds high {self.high:g}")

    def parameters(self, rounds: int, rng: np.random.Generator) -> dict[str, Array]:
        progress = np.arange(rounds) / max(rounds - 1, 1)
        fixed = {"b": self.b, "feedback": self.feedback, "low": self.low, "high": self.high}
        return {
            "a": self.a + self.drift * progress,
            **{name: np.full(rounds, value) for name, value in fixed.items()},
        }

    def start(self, update: Layers) -> Any:
        return {"sum": 0 * norm_of(update), "count": 0 * norm_of(update)}

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        now, past, norm = seen.parameters, seen.memory, norm_of(update)
        xp = norm.__array_namespace__()
        known = (past["count"] > 0) & (past["sum"] > 0) & (norm > 0)
        ratio = xp.where(known, norm * past["count"] / xp.where(known, past["sum"], 1.0), 1.0)
        a = xp.clip(now["a"] + now["feedback"] * xp.log(ratio), now["low"], now["high"])
        memory = {"sum": past["sum"] + norm, "count": past["count"] + 1}
        return _with_noise(update, seen, a), memory

    @property
    def covered(self) -> bool:
        return self.low >= 1

    def describe(self, rounds: int) -> str:
        return (
            f"adaptive scale from {self.a:g}, drift {self.drift:g}, feedback {self.feedback:g}, "
            f"within {self.low:g} … {self.high:g}" + (f", noise {self.b:g}" if self.b else "")
        )


@dataclass(frozen=True)
class Directional(Reporting):
    """The update turned by `angle` radians toward a random direction, times a, plus noise b.

    h = ‖g‖ (cos φ · g/‖g‖ + sin φ · u), where u is a random unit vector orthogonal to g. In one
    dimension there is no such u, and a zero update has no direction: then h = g.
    """

    a: float
    angle: float
    b: float = 0.0
    kind: ClassVar[str] = "directional"
    shared_program: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_finite(a=self.a, b=self.b, angle=self.angle)
        if not 0 <= self.angle <= math.pi:
            raise ValueError(f"angle is {self.angle:g}, must be 0 … π radians")

    def parameters(self, rounds: int, rng: np.random.Generator) -> dict[str, Array]:
        numbers = {"a": self.a, "b": self.b, "angle": self.angle}
        return {name: np.full(rounds, value) for name, value in numbers.items()}

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        now, norm, normals = seen.parameters, norm_of(update), seen.normals(1)
        xp = norm.__array_namespace__()
        square = xp.maximum(norm**2, 1e-60)
        along = inner_of(normals, update) / square
        aside = [d - along * g for d, g in zip(normals, update, strict=True)]
        turns = (norm > 0) & (size_of(update) > 1)
        angle = xp.where(turns, now["angle"], 0.0)
        reach = xp.where(turns, norm / xp.maximum(norm_of(aside), 1e-30), 0.0)
        turned = [
            xp.cos(angle) * g + xp.sin(angle) * reach * d
            for g, d in zip(update, aside, strict=True)
        ]
        return _with_noise(turned, seen), seen.memory

    @property
    def covered(self) -> bool:
        return self.a * math.cos(self.angle) >= 1 - 1e-12

    def describe(self, rounds: int) -> str:
        return f"scale {self.a:g} turned by {math.degrees(self.angle):.4g}°" + (
            f" and noise {self.b:g}" if self.b else ""
        )


def _with_noise(update: Layers, seen: Seen, a: Any = None) -> Layers:
    """A g + b ξ, each coordinate of the noise with standard deviation b/√d."""
    scale = seen.parameters["a"] if a is None else a
    deviation = seen.parameters["b"] / math.sqrt(size_of(update))
    return [scale * g + deviation * xi for g, xi in zip(update, seen.normals(0), strict=True)]
