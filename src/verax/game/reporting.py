"""How a client turns its true update into a message.

A reporting is a frozen value with a text form. Whoever executes a run applies it to the honest
update: the compiled simulator with JAX arrays, the Flower layer with NumPy arrays, both by the code
in this file. An update is a list of arrays, one per array of the model. A reporting says up to
four things:

- `scales`: a factor a_t for the message of every round t. Most misreports are nothing else, and
  runs that differ in their scales alone share one compiled program.
- `absences`: the rounds in which the client sends nothing. It then neither pays nor receives.
- `message`: a function of the true update, the last aggregate, the client's own memory and the
  round. Momentum of own updates, noise or the sign flip of one layer are written here.
- `batch`: a function of the samples that the client trains on. Flipped labels or a larger batch
  are written here; only an engine that holds the data can apply it.

The message that is sent is a_t · message(update on batch(samples)). A new reporting is a small
subclass of `Reporting` with one of the four (`docs/how-to/extend.md`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from verax.plugins import reference

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

    def absences(self, rounds: int) -> NDArray[np.bool_]:
        """In which rounds the client does not take part although it is asked, shape (T,)."""
        return np.zeros(rounds, dtype=np.bool_)

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
        dishonest = np.flatnonzero((self.scales(rounds) != 1) | self.absences(rounds))
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
        self._scales, self._absences = reporting.scales(rounds), reporting.absences(rounds)
        self._parameters = reporting.parameters(rounds, np.random.default_rng([seed, 0]))

    def is_absent(self, round_: int) -> bool:
        """Whether the client does not take part in round t = 1, 2, …."""
        return bool(self._absences[round_ - 1])

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


def flattened(memory: Any) -> list[Any]:
    """The arrays in a client's memory, a nesting of dictionaries, lists and tuples, in order."""
    if isinstance(memory, dict):
        return [leaf for value in memory.values() for leaf in flattened(value)]  # pyright: ignore
    if isinstance(memory, list | tuple):
        return [leaf for value in memory for leaf in flattened(value)]  # pyright: ignore
    return [memory]


def unflattened(like: Any, arrays: Iterator[Any]) -> Any:
    """A memory of the same form as another, with these arrays in it."""
    if isinstance(like, dict):
        return {name: unflattened(value, arrays) for name, value in like.items()}  # pyright: ignore
    if isinstance(like, list | tuple):
        return [unflattened(value, arrays) for value in like]  # pyright: ignore
    return next(arrays)


def check_finite(**values: float) -> None:
    """Refuse numbers that are not finite, and a negative size b of noise."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, must be a finite number")
        if name == "b" and value < 0:
            raise ValueError(f"b is {value:g}, must be ≥ 0: it is the size of the noise")


def size_of(layers: Layers) -> int:
    """How many numbers an update has."""
    return sum(math.prod(layer.shape) for layer in layers)


def inner_of(one: Layers, other: Layers) -> Any:
    """The inner product of two updates."""
    return sum((x * y).sum() for x, y in zip(one, other, strict=True))


def norm_of(layers: Layers) -> Any:
    """The length of an update."""
    square = inner_of(layers, layers)
    return square.__array_namespace__().sqrt(square)
