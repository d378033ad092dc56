"""What can be audited: a task that is simulated, or a Flower app that is run as it is.

A subject says what it is, and makes the engine that computes runs of it. Everything else in an
audit (plan, record, judgement, report) is the same for all subjects, because it needs nothing but
runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from verax.audit.plan import Plan
from verax.audit.run.record import RunResults
from verax.audit.run.runs import RunBatch
from verax.learning import Behaviour
from verax.mechanism.audited import MessageKind
from verax.mechanism.weights import WeightKind

#: The part of the working folder in which an engine keeps what it may use again.
REPLIES = "replies"

#: Called with the number of run-rounds just done.
Progress = Callable[[int], None]


class StoppedError(Exception):
    """The audit was asked to stop; finished work is kept."""


@dataclass(frozen=True)
class Description:
    """A subject in words, for report and terms.

    Attributes:
        message: what a client sends, and what is therefore charged.
        protocol: how the federation trains.
        local_work: what a client computes in a round.
        weights: how messages are weighed in the aggregate.
        details: further rows of the report's settings, (what, value).
        label_distances: (least, median, largest) distance of two clients' label shares, if known.
        lower_step: what to do when training diverges.
        error: the relative error of an update that is computed again, if known.
    """

    message: MessageKind
    protocol: str
    local_work: str
    weights: WeightKind
    details: tuple[tuple[str, str], ...] = ()
    label_distances: tuple[float, ...] | None = None
    lower_step: str = "lower the step"
    error: float | None = None


class Engine(Protocol):
    """Computes runs of a subject."""

    #: All runs of the plan, in the batches in which they are computed.
    batches: list[RunBatch]

    def needs(self, batch: RunBatch) -> list[Path]:
        """Files of the working folder without which a batch cannot begin."""
        ...

    def compute(self, batch: RunBatch, progress: Progress, stop: threading.Event) -> RunResults:
        """Compute a batch from where it stands; raises StoppedError when `stop` is set."""
        ...


class Runner(Protocol):
    """Runs a subject with any behaviours, without a record; the search does."""

    #: About how many numbers are computed in a run; 0 if that is not known.
    work: float

    #: How many behaviours fit into one call.
    width: int

    def run(self, seed: int, behaviours: Sequence[Behaviour]) -> RunResults:
        """Run behaviours that have the same program from the first round to the last."""
        ...


class Subject(Protocol):
    """Something that can be audited."""

    @property
    def name(self) -> str:
        """A label."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """A label per client."""
        ...

    #: The module that a worker process runs.
    worker_module: str

    def fingerprint(self) -> str:
        """A digest of the data or the app; a folder of another one is not continued."""
        ...

    def describe(self, plan: Plan) -> Description:
        """The subject in words."""
        ...

    def settings(self, memory: int | None, workers: int) -> dict[str, Any]:
        """What all engines of an audit must agree on, written down when it begins.

        Args:
            memory: bytes that all processes may use together; too few are refused.
            workers: how many processes there are.
        """
        ...

    def engine(self, plan: Plan, folder: Path) -> Engine:
        """An engine that works in the folder of a record."""
        ...

    def runner(self, plan: Plan) -> Runner:
        """What runs it apart from a record."""
        ...
