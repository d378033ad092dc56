"""What runs are given: seeds, what the clients do, who takes part, and which samples they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from verax.game import Honest, Reporting
from verax.learning.batches import batch_indices, epoch_indices, participants
from verax.learning.protocol import Protocol


@dataclass(frozen=True)
class Seeds:
    """What is random in a run, each with a seed of its own; nothing is seeded globally."""

    init: int
    batches: int
    noise: int

    @classmethod
    def of(cls, number: int) -> Seeds:
        """The seeds of replica `number`."""
        return cls(init=3 * number, batches=3 * number + 1, noise=3 * number + 2)


@dataclass(frozen=True)
class Behaviour:
    """What the clients do in one run.

    Attributes:
        reporting: of those who deviate; all others are honest.
        deviators: their numbers. A reporting that is more than scaling allows one of them.
    """

    reporting: Reporting = field(default_factory=Honest)
    deviators: tuple[int, ...] = ()

    @property
    def program(self) -> Any:
        """What is compiled for it: runs can be computed together if their programs are equal."""
        program = self.reporting.program if self.deviators else None
        # The number of all samples differs by client, and is part of the compiled program.
        all_samples = program is not None and self.reporting.batches_drawn == 0
        return (program, self.deviators if all_samples else None, self.may_be_absent)

    @property
    def may_be_absent(self) -> bool:
        """Whether somebody may choose not to take part."""
        kinds = {type(self.reporting_of(client)) for client in self.deviators}
        return any(kind.absences is not Reporting.absences for kind in kinds)

    def reporting_of(self, client: int) -> Reporting:
        """The reporting of one client."""
        return self.reporting if client in self.deviators else Honest()

    def scales(self, rounds: int, clients: int) -> NDArray[np.float64]:
        """By what each client multiplies its update in each round, (T, N)."""
        scales = np.ones((rounds, clients))
        for client in self.deviators:
            scales[:, client] = self.reporting_of(client).scales(rounds)
        return scales

    def absences(self, rounds: int, clients: int) -> NDArray[np.bool_]:
        """Who chooses not to take part in each round, (T, N)."""
        absent = np.zeros((rounds, clients), dtype=np.bool_)
        for client in self.deviators:
            absent[:, client] = self.reporting_of(client).absences(rounds)
        return absent


@dataclass(frozen=True)
class JointBehaviour(Behaviour):
    """Several clients deviate, each in its own way; all of them only scale their updates.

    Attributes:
        each: the reporting of each deviator, in the order of `deviators`.
    """

    each: tuple[Reporting, ...] = ()

    def __post_init__(self) -> None:
        if len(self.each) != len(self.deviators):
            raise ValueError(f"{len(self.deviators)} deviators have {len(self.each)} reportings")
        if any(one.program is not None for one in self.each):
            raise ValueError("members that deviate together only scale their updates")

    def reporting_of(self, client: int) -> Reporting:
        """The reporting of one client."""
        return self.each[self.deviators.index(client)] if client in self.deviators else Honest()


class SegmentInputs(NamedTuple):
    """What the rounds of a segment are given; each array has a leading axis of rounds."""

    index: Any  # each client's sample positions, (N, L, batch)
    who: Any  # a mask of those present (N,), or the participants' numbers where rounds are streamed
    number: Any  # the round, from 0
    scales: Any  # (R, N)
    absent: Any  # who chooses not to take part, (R, N), or None if nobody may
    parameters: dict[str, Any]  # of the reporting, (R,) each
    own_index: Any  # sample positions of each run's deviator, (R, L, samples), or None


def who_is_present(
    protocol: Protocol, clients: int, seeds: Seeds, first: int, length: int
) -> NDArray[np.bool_]:
    """Who takes part in `length` rounds from `first` (0-based) on, (length, N)."""
    return participants(clients, protocol.participation, seeds.batches, first, length)


def sample_positions(
    protocol: Protocol, sizes: NDArray[np.intp], seeds: Seeds, first: int, length: int
) -> NDArray[np.int32]:
    """Which samples each client uses in these rounds, (length, N, L, batch)."""
    if protocol.epochs:
        return epoch_indices(sizes, seeds.batches, first, length, protocol.epochs, protocol.batch)
    steps, batch = protocol.local_steps, protocol.batch
    return batch_indices(sizes, seeds.batches, first, length, steps, batch)


class RunInputs:
    """What R runs of one seed are given in every round, as arrays.

    Args:
        protocol: how the federation trains.
        sizes: how many samples each client has.
        rounds: T.
        streamed: whether participants are given by their numbers instead of a mask.
        seeds: of this replica.
        runs: what the clients do in each run; all with the same program.
    """

    def __init__(
        self,
        protocol: Protocol,
        sizes: NDArray[np.intp],
        rounds: int,
        streamed: bool,
        seeds: Seeds,
        runs: Sequence[Behaviour],
    ) -> None:
        if len({run.program for run in runs}) != 1:
            raise ValueError("runs that are computed together must have the same program")
        self._protocol, self._sizes, self._streamed, self.seeds = protocol, sizes, streamed, seeds
        T, N = rounds, len(sizes)
        dtype = np.float64 if jax.config.read("jax_enable_x64") else np.float32
        self._scales = np.stack([run.scales(T, N) for run in runs], axis=1).astype(dtype)
        self.absent = None
        if runs[0].may_be_absent:
            self.absent = np.stack([run.absences(T, N) for run in runs], axis=1)
            if streamed:
                raise ValueError(
                    f"misreports by absence need all messages at once, and those of {N} clients "
                    "are streamed; use fewer clients, or no --absences"
                )
        self.program = runs[0].program
        self.reporting = runs[0].reporting if self.program[0] is not None else None
        self._deviators = [run.deviators[0] if run.deviators else 0 for run in runs]
        self.clients = np.array(self._deviators)
        self._parameters: dict[str, Any] = {}
        if self.reporting is None:
            return
        if any(len(run.deviators) != 1 for run in runs):
            raise ValueError("a reporting that is more than scaling needs exactly one deviator")
        # What a reporting draws in advance depends on the seed alone, as all noise does.
        each = [
            run.reporting.parameters(T, np.random.default_rng([seeds.noise, 7])) for run in runs
        ]
        self._parameters = {
            name: np.stack([own[name] for own in each], axis=1).astype(dtype) for name in each[0]
        }

    def segment(self, first: int, length: int) -> SegmentInputs:
        """What the rounds from `first` (0-based) on are given."""
        rows = slice(first, first + length)
        who = who_is_present(self._protocol, len(self._sizes), self.seeds, first, length)
        return SegmentInputs(
            sample_positions(self._protocol, self._sizes, self.seeds, first, length),
            np.nonzero(who)[1].reshape(length, -1) if self._streamed else who,
            np.arange(first, first + length),
            self._scales[rows],
            None if self.absent is None else self.absent[rows],
            {name: values[rows] for name, values in self._parameters.items()},
            self._own_positions(first, length),
        )

    def _own_positions(self, first: int, length: int) -> NDArray[np.int32] | None:
        """Sample positions of each run's deviator, (length, R, L, samples)."""
        reporting, sizes = self.reporting, self._sizes
        steps = int(np.max(self._protocol.steps_of(sizes)))
        if reporting is None or not reporting.changes_batch:
            return None
        if reporting.batches_drawn == 0:
            everything = np.arange(sizes[self._deviators[0]], dtype=np.int32)
            return np.tile(everything, (length, len(self._deviators), steps, 1))
        batch = reporting.batches_drawn * self._protocol.batch
        drawn = {
            client: batch_indices(
                sizes[client : client + 1], self.seeds.batches, first, length, steps, batch, client
            )
            for client in set(self._deviators)
        }
        return np.concatenate([drawn[client] for client in self._deviators], axis=1)
