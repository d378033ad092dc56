"""States of runs between rounds, and what runs leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from verax.learning.round import Memory, RoundMeasurements
from verax.mechanism import Statistics

Numbers = NDArray[np.float32]


class TrainingState(NamedTuple):
    """R runs between two rounds."""

    params: Any  # leading axis R
    memory: Memory | None  # of the deviating clients, leading axis R; None if they need none
    round: int  # rounds already done
    averages: Any = None  # of all clients' messages, leading axes R, N; None if not kept

    def of_run(self, run: int) -> TrainingState:
        """The state of one of the runs alone."""
        own = (self.params, self.memory, self.averages)
        params, memory, averages = jax.tree.map(lambda leaf: leaf[run : run + 1], own)
        return TrainingState(params, memory, self.round, averages)


class Evaluation(NamedTuple):
    """Every client's test loss and accuracy (NaN if the task has none), (R, N) each."""

    round: int
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What R runs recorded from round `first` (0-based) on.

    Attributes:
        first: rounds that were done before.
        statistics: of every run and round, (R, T', N) or (R, T', N, N) each.
        loss: training losses, (R, T', N).
        present: who took part, (R, T', N).
        evaluations: in order; the last is after the last round.
        state: after the last round.
    """

    first: int
    statistics: Statistics[Numbers]
    loss: Numbers
    present: NDArray[np.bool_]
    evaluations: list[Evaluation]
    state: TrainingState

    @property
    def norms(self) -> NDArray[np.float64]:
        """‖m_i‖², (R, T', N)."""
        return np.asarray(self.statistics.norms, dtype=np.float64)

    @property
    def diverged(self) -> NDArray[np.intp]:
        """The first round (from 1) whose numbers are not finite, per run; 0 where all are."""
        fine = np.all(np.isfinite(self.norms) & np.isfinite(self.loss), axis=2)
        ended = np.all(np.isfinite(self.evaluations[-1].loss), axis=1)
        rounds = fine.shape[1]
        where = np.where(np.all(fine, axis=1), 0, self.first + np.argmin(fine, axis=1) + 1)
        return np.where((where == 0) & ~ended, self.first + rounds, where)


def joined_records(records: Sequence[RoundMeasurements]) -> RoundMeasurements:
    """Records of consecutive segments, (R, T', …) each, as one."""
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *records)
