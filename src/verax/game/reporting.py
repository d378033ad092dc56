"""How a client turns its true update into a message.

A reporting is a frozen value with a text form. Whoever executes a run applies it to the honest
update: the compiled simulator with JAX arrays, the Flower layer with NumPy arrays, both by the code
in this file. An update is a list of arrays, one per array of the model. A reporting says up to
three things:

- `scales`: a factor a_t for the message of every round t. Most misreports are nothing else, and
  runs that differ in their scales alone share one compiled program.
- `message`: a function of the true update, the last aggregate, the client's own memory and the
  round. Momentum of own updates, noise or the sign flip of one layer are written here.
- `batch`: a function of the samples that the client trains on. Flipped labels or a larger batch
  are written here; only an engine that holds the data can apply it.

The message that is sent is a_t · message(update on batch(samples)). A new reporting is a small
subclass of `Reporting` with one of the three (`docs/how-to/extend.md`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from verax.plugins import is_reference, load, reference

__all__ = [
    "Adaptive",
    "Directional",
    "Honest",
    "Layers",
    "Mixed",
    "Noise",
    "Reporting",
    "Scale",
    "ScaleAndNoise",
    "Seen",
    "Sender",
    "Stretch",
    "Timed",
    "reporting_of",
]

Array = NDArray[np.float64]

#: An update or a message: one array for each array of the model, of NumPy or of JAX.
Layers = Sequence[Any]


class Seen(NamedTuple):
    """What a client knows when it writes the message of a round.

    Attributes:
        round: t, from 1.
        rounds: T.
        parameters: this round's entry of everything in `Reporting.parameters`.
        last_aggregate: by how much the server moved the model in the round before; zero in round 1.
        memory: what `message` returned as memory in the client's previous round, or `start()`.
        normals: k → standard normal numbers in the shapes of the update; each k = 0, 1, … is an
            independent draw.
    """

    round: Any
    rounds: int
    parameters: dict[str, Any]
    last_aggregate: Layers
    memory: Any
    normals: Callable[[int], Layers]


@dataclass(frozen=True)
class Reporting:
    """Base of all reportings; by itself it is honest."""

    #: The name of a built-in reporting in its JSON form; others are named `module:name`.
    kind: ClassVar[str] = ""
    #: How many ordinary batches of samples `batch` is given at once; 0 stands for all samples.
    batches_drawn: ClassVar[int] = 1
    #: Whether `message` takes all its numbers from `seen.parameters`, so that all reportings of
    #: the class share one compiled program.
    shared_program: ClassVar[bool] = False

    def scales(self, rounds: int) -> Array:
        """a_t for every round, shape (T,)."""
        return np.ones(rounds)

    def parameters(self, rounds: int, rng: np.random.Generator) -> dict[str, Array]:
        """Numbers that `message` reads in every round, each of shape (T,)."""
        return {}

    def start(self, update: Layers) -> Any:
        """The client's memory before its first round: any nesting of arrays."""
        return ()

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        """The message before it is scaled, and the client's memory for the next round."""
        return update, seen.memory

    def batch(self, samples: tuple[Any, ...], seen: Seen) -> tuple[Any, ...]:
        """The samples that the client trains on instead of these: arrays with one row each."""
        return samples

    @property
    def changes_message(self) -> bool:
        """Whether messages are more than a multiple of the update on the given samples."""
        return type(self).message is not Reporting.message

    @property
    def changes_batch(self) -> bool:
        """Whether the client trains on other samples."""
        return type(self).batch is not Reporting.batch or self.batches_drawn != 1

    @property
    def program(self) -> Any:
        """What is compiled for it: equal for reportings that can run in one batch."""
        if not (self.changes_message or self.changes_batch):
            return None
        return type(self) if self.shared_program else self

    def honest_rounds(self, rounds: int) -> int:
        """How many rounds are surely honest before the first one that may not be."""
        if self.program is not None:
            return 0
        dishonest = np.flatnonzero(self.scales(rounds) != 1)
        return int(dishonest[0]) if dishonest.size else rounds

    @property
    def constant(self) -> tuple[float, float] | None:
        """(a, b) where the message is a·g + b·ξ with the same numbers in all rounds, else None."""
        return None

    @property
    def covered(self) -> bool:
        """Whether it lies in the action space of the paper's Theorem 1 (a ≥ 1)."""
        return False

    @property
    def text(self) -> str:
        """One JSON object, or `module:name`; `reporting_of` reads it back."""
        if self.kind:
            return json.dumps({"kind": self.kind, **asdict(self)})
        return reference(self, "reporting")

    def describe(self, rounds: int) -> str:
        """The reporting in a few words, for a run of so many rounds."""
        fields = (
            ", ".join(f"{k} {v}" for k, v in asdict(self).items()) if is_dataclass(self) else ""
        )
        name = type(self).__name__
        return f"{name} ({fields})" if fields else name

    def _check(self, **values: float) -> None:
        for name, value in values.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}, must be a finite number")
            if name == "b" and value < 0:
                raise ValueError(f"b is {value:g}, must be ≥ 0: it is the size of the noise")


@dataclass(frozen=True)
class ScaleAndNoise(Reporting):
    """m = a g + b ξ in every round, with E‖ξ‖² = 1 over the whole update."""

    a: float
    b: float
    kind: ClassVar[str] = "scale-and-noise"
    shared_program: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check(a=self.a, b=self.b)

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
        self._check(a=self.a)
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
class Timed(Reporting):
    """Scale a_early until a share `switch` of the rounds is over, then a_late."""

    a_early: float
    a_late: float
    switch: float
    kind: ClassVar[str] = "timed"

    def __post_init__(self) -> None:
        self._check(a_early=self.a_early, a_late=self.a_late)
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
            self._check(a=a, b=b)
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
        self._check(a=self.a, b=self.b, drift=self.drift, feedback=self.feedback)
        self._check(low=self.low, high=self.high)
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
        return {"sum": 0 * _norm(update), "count": 0 * _norm(update)}

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        now, past, norm = seen.parameters, seen.memory, _norm(update)
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
        self._check(a=self.a, b=self.b, angle=self.angle)
        if not 0 <= self.angle <= math.pi:
            raise ValueError(f"angle is {self.angle:g}, must be 0 … π radians")

    def parameters(self, rounds: int, rng: np.random.Generator) -> dict[str, Array]:
        numbers = {"a": self.a, "b": self.b, "angle": self.angle}
        return {name: np.full(rounds, value) for name, value in numbers.items()}

    def message(self, update: Layers, seen: Seen) -> tuple[Layers, Any]:
        now, norm, normals = seen.parameters, _norm(update), seen.normals(1)
        xp = norm.__array_namespace__()
        square = xp.maximum(norm**2, 1e-60)
        along = _inner(normals, update) / square
        aside = [d - along * g for d, g in zip(normals, update, strict=True)]
        turns = (norm > 0) & (_size(update) > 1)
        angle = xp.where(turns, now["angle"], 0.0)
        reach = xp.where(turns, norm / xp.maximum(_norm(aside), 1e-30), 0.0)
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


_BUILT_IN: tuple[type[Reporting], ...] = (
    ScaleAndNoise,
    Stretch,
    Timed,
    Mixed,
    Adaptive,
    Directional,
)


def reporting_of(text: str) -> Reporting:
    """Read a reporting's text: a JSON object with a "kind", or `module:name`."""
    if is_reference(text):
        return load(text, "reporting", "message", "scales", "batch")
    try:
        fields: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"a reporting is a JSON object or module:name, {text!r} is neither ({error})"
        ) from None
    if not isinstance(fields, dict) or "kind" not in fields:
        raise ValueError('a reporting is a JSON object with a "kind"')
    kinds = {kind.kind: kind for kind in _BUILT_IN}
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


class Sender:
    """One client that reports round by round, with NumPy arrays.

    The compiled simulator applies reportings itself; this class serves the Flower layer.

    Args:
        reporting: how the client turns updates into messages.
        rounds: T.
        seed: of everything that is random in it.
    """

    def __init__(self, reporting: Reporting, rounds: int, seed: int) -> None:
        self.reporting, self.rounds, self._seed = reporting, rounds, seed
        self._scales = reporting.scales(rounds)
        self._parameters = reporting.parameters(rounds, np.random.default_rng([seed, 0]))

    def send(
        self, round_: int, update: Layers, memory: Any = None, last_aggregate: Layers | None = None
    ) -> tuple[list[Any], Any]:
        """The message of round t = 1, 2, … and the memory to give to the next call.

        Args:
            round_: t.
            update: what honest training produced.
            memory: what the last call returned; None in the first round.
            last_aggregate: by how much the server moved the model in the round before.
        """
        if not 1 <= round_ <= self.rounds:
            raise ValueError(f"round {round_} is outside 1 … {self.rounds}")

        def normals(k: int) -> Layers:
            rng = np.random.default_rng([self._seed, round_, k])
            return [rng.standard_normal(np.shape(x)) for x in update]

        seen = Seen(
            round_,
            self.rounds,
            {name: values[round_ - 1] for name, values in self._parameters.items()},
            [np.zeros_like(x) for x in update] if last_aggregate is None else last_aggregate,
            self.reporting.start(update) if memory is None else memory,
            normals,
        )
        sent = update
        if self.reporting.changes_message:
            sent, memory = self.reporting.message(update, seen)
        return [self._scales[round_ - 1] * x for x in sent], memory


def _with_noise(update: Layers, seen: Seen, a: Any = None) -> Layers:
    """A g + b ξ, each coordinate of the noise with standard deviation b/√d."""
    scale = seen.parameters["a"] if a is None else a
    deviation = seen.parameters["b"] / math.sqrt(_size(update))
    return [scale * g + deviation * xi for g, xi in zip(update, seen.normals(0), strict=True)]


def _size(layers: Layers) -> int:
    return sum(math.prod(layer.shape) for layer in layers)


def _inner(one: Layers, other: Layers) -> Any:
    return sum((x * y).sum() for x, y in zip(one, other, strict=True))


def _norm(layers: Layers) -> Any:
    square = _inner(layers, layers)
    return square.__array_namespace__().sqrt(square)
