"""How a client turns its true update into a message, as a description.

    m_t = a_t h_t + b_t ξ_t,   E‖ξ_t‖² = 1 over the whole update,

with h_t = g_t, or for `Directional` g_t turned by an angle φ: h = ‖g‖(cos φ·ĝ + sin φ·u), u a
random direction orthogonal to g. A reporting is a frozen value with a JSON form; the simulator
compiles it, the Flower mod applies it. The paper's theorems cover a ≥ 1, and turned messages only
while a cos φ ≥ 1; everything else is allowed here, and says that no theorem covers it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Adaptive",
    "Directional",
    "History",
    "Honest",
    "Levels",
    "Mixed",
    "Noise",
    "Reporting",
    "Scale",
    "ScaleAndNoise",
    "Timed",
    "from_json",
    "message",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Levels:
    """What a reporting means for a run of T rounds, ready to be compiled.

    Attributes:
        a: scale per round, shape (T,).
        b: size of the noise per round, shape (T,).
        angle: φ, by which the update is turned.
        feedback: how strongly the scale follows the client's own history: the scale of a round is
            a_t + feedback · log(‖g_t‖ / mean of its earlier ‖g‖), kept within `low` … `high`.
        low: least scale under feedback.
        high: largest scale under feedback.
    """

    a: Array
    b: Array
    angle: float = 0.0
    feedback: float = 0.0
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Reporting:
    """Base of all reportings: JSON form, and whether the paper's theorems speak of it."""

    kind: ClassVar[str]

    def levels(self, rounds: int, rng: np.random.Generator) -> Levels:
        """The reporting laid out over T rounds; `rng` draws what is random in advance."""
        raise NotImplementedError

    @property
    def covered(self) -> bool:
        """Whether it lies in the action space of the paper's Theorem 1 (a ≥ 1)."""
        raise NotImplementedError

    def to_json(self) -> str:
        """One JSON object, {"kind": …, …}; `from_json` reads it back."""
        return json.dumps({"kind": self.kind, **asdict(self)})

    def __str__(self) -> str:
        return self.words + ("" if self.covered else " (no theorem covers this)")

    @property
    def words(self) -> str:
        """The reporting in a few words."""
        raise NotImplementedError

    def _check(self, **values: float) -> None:
        for name, value in values.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}, must be a finite number")
            if name == "b" and value < 0:
                raise ValueError(f"b is {value:g}, must be ≥ 0: it is the size of the noise")


@dataclass(frozen=True)
class ScaleAndNoise(Reporting):
    """m = a g + b ξ in every round."""

    a: float
    b: float
    kind: ClassVar[str] = "scale-and-noise"

    def __post_init__(self) -> None:
        self._check(a=self.a, b=self.b)

    def levels(self, rounds: int, rng: np.random.Generator) -> Levels:
        return Levels(np.full(rounds, self.a), np.full(rounds, self.b))

    @property
    def covered(self) -> bool:
        return self.a >= 1

    @property
    def words(self) -> str:
        if self.a == 1:
            return "honest" if self.b == 0 else f"noise {self.b:g}"
        if self.a == 0 and self.b == 0:
            return "free-riding (a = 0)"
        return f"scale {self.a:g}" + (f" and noise {self.b:g}" if self.b else "")


def Honest() -> ScaleAndNoise:
    """M = g."""
    return ScaleAndNoise(1.0, 0.0)


def Scale(a: float) -> ScaleAndNoise:
    """M = a g; a = 0 is free-riding, a < 0 turns the update round."""
    return ScaleAndNoise(float(a), 0.0)


def Noise(b: float) -> ScaleAndNoise:
    """M = g + b ξ."""
    return ScaleAndNoise(1.0, float(b))


@dataclass(frozen=True)
class Mixed(Reporting):
    """In each round (a, b) is drawn anew from a list, independent of history."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    odds: tuple[float, ...]
    kind: ClassVar[str] = "mixed"

    def __post_init__(self) -> None:
        if not self.a or not len(self.a) == len(self.b) == len(self.odds):
            raise ValueError(
                f"mixed needs as many a as b as odds, got {len(self.a)}, {len(self.b)}, "
                f"{len(self.odds)}"
            )
        for a, b in zip(self.a, self.b, strict=True):
            self._check(a=a, b=b)
        if min(self.odds) < 0 or not math.isclose(sum(self.odds), 1, abs_tol=1e-9):
            raise ValueError(f"odds must be ≥ 0 and sum to 1, these sum to {sum(self.odds):g}")

    def levels(self, rounds: int, rng: np.random.Generator) -> Levels:
        odds = np.asarray(self.odds)
        drawn = rng.choice(len(self.a), size=rounds, p=odds / odds.sum())
        return Levels(np.asarray(self.a)[drawn], np.asarray(self.b)[drawn])

    @property
    def covered(self) -> bool:
        return min(self.a) >= 1

    @property
    def words(self) -> str:
        parts = zip(self.odds, self.a, self.b, strict=True)
        return "mixed: " + ", ".join(
            f"{odds:.0%} {ScaleAndNoise(a, b).words}" for odds, a, b in parts
        )


@dataclass(frozen=True)
class Timed(Reporting):
    """a_early until a share `switch` of the rounds is over, then a_late."""

    a_early: float
    a_late: float
    switch: float
    kind: ClassVar[str] = "timed"

    def __post_init__(self) -> None:
        self._check(a_early=self.a_early, a_late=self.a_late)
        if not 0 <= self.switch <= 1:
            raise ValueError(f"switch is {self.switch:g}, must be a share of the rounds, 0 … 1")

    def first_late(self, rounds: int) -> int:
        """How many rounds are early: the nearest whole number to switch · T."""
        return math.floor(self.switch * rounds + 0.5)

    def levels(self, rounds: int, rng: np.random.Generator) -> Levels:
        early = np.arange(rounds) < self.first_late(rounds)
        return Levels(np.where(early, self.a_early, self.a_late), np.zeros(rounds))

    @property
    def covered(self) -> bool:
        return min(self.a_early, self.a_late) >= 1

    @property
    def words(self) -> str:
        return f"scale {self.a_early:g}, then {self.a_late:g} after {self.switch:.4g} of the rounds"


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

    def __post_init__(self) -> None:
        self._check(a=self.a, b=self.b, drift=self.drift, feedback=self.feedback)
        self._check(low=self.low, high=self.high)
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} exceeds high {self.high:g}")

    def levels(self, rounds: int, rng: np.random.Generator) -> Levels:
        progress = np.arange(rounds) / max(rounds - 1, 1)
        a, b = self.a + self.drift * progress, np.full(rounds, self.b)
        if self.feedback == 0:
            a = np.clip(a, self.low, self.high)
        return Levels(a, b, 0.0, self.feedback, self.low, self.high)

    @property
    def covered(self) -> bool:
        return self.low >= 1

    @property
    def words(self) -> str:
        return (
            f"adaptive scale from {self.a:g}, drift {self.drift:g}, feedback {self.feedback:g}, "
            f"within {self.low:g} … {self.high:g}" + (f", noise {self.b:g}" if self.b else "")
        )


@dataclass(frozen=True)
class Directional(Reporting):
    """‖h‖ = a‖g‖, turned by `angle` radians off the true update (plus noise b)."""

    a: float
    angle: float
    b: float = 0.0
    kind: ClassVar[str] = "directional"

    def __post_init__(self) -> None:
        self._check(a=self.a, b=self.b, angle=self.angle)
        if not 0 <= self.angle <= math.pi:
            raise ValueError(f"angle is {self.angle:g}, must be 0 … π radians")

    def levels(self, rounds: int, rng: np.random.Generator) -> Levels:
        return Levels(np.full(rounds, self.a), np.full(rounds, self.b), self.angle)

    @property
    def covered(self) -> bool:
        return self.a * math.cos(self.angle) >= 1 - 1e-12

    @property
    def words(self) -> str:
        return f"scale {self.a:g} turned by {math.degrees(self.angle):.4g}°" + (
            f" and noise {self.b:g}" if self.b else ""
        )


KINDS: tuple[type[Reporting], ...] = (ScaleAndNoise, Mixed, Timed, Adaptive, Directional)


def from_json(text: str) -> Reporting:
    """Read the JSON form; an unknown kind or field is refused by name."""
    try:
        fields: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"a reporting is a JSON object, this is not JSON: {error}") from None
    if not isinstance(fields, dict) or "kind" not in fields:
        raise ValueError('a reporting is a JSON object with a "kind"')
    kinds = {kind.kind: kind for kind in KINDS}
    kind: Any = fields.pop("kind")  # pyright: ignore[reportUnknownMemberType]
    if kind not in kinds:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(kinds)}")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value  # pyright: ignore
        for name, value in fields.items()  # pyright: ignore[reportUnknownVariableType]
    }
    try:
        return kinds[kind](**values)
    except TypeError as error:
        raise ValueError(f"{kind}: {error}".replace("__init__() ", "")) from None


@dataclass
class History:
    """A client's own past: the sum of the norms of its true updates, and how many."""

    total: float = 0.0
    count: int = 0


def message(
    levels: Levels,
    round_: int,
    update: Array,
    rng: np.random.Generator,
    history: History | None = None,
) -> Array:
    """The message of round t = 1, 2, … for a true update (any shape), in NumPy.

    The compiled simulator has its own version; this one serves the Flower mod and the tests.
    `history` is brought up to date.
    """
    norm = float(np.linalg.norm(update))
    a = float(levels.a[round_ - 1])
    if levels.feedback and history is not None and history.count and norm > 0:
        ratio = norm * history.count / history.total if history.total > 0 else 1.0
        a = a + levels.feedback * math.log(ratio)
    a = min(max(a, levels.low), levels.high)
    if history is not None:
        history.total += norm
        history.count += 1
    sent = a * _turned(update, norm, levels.angle, rng)
    b = float(levels.b[round_ - 1])
    if b:
        sent = sent + b * rng.standard_normal(update.shape) / math.sqrt(update.size)
    return sent


def _turned(update: Array, norm: float, angle: float, rng: np.random.Generator) -> Array:
    if angle == 0 or update.size < 2 or norm == 0:
        return update
    unit = update / norm
    other = rng.standard_normal(update.shape)
    other = other - np.vdot(other, unit) * unit
    other = other / np.linalg.norm(other)
    return norm * (math.cos(angle) * unit + math.sin(angle) * other)
