"""A worker computes the batches of an audit, one after the other.

A batch is claimed by creating a file, so that any number of threads or processes can share the
work, and each batch leaves its results as files.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from verax.audit.plan import Plan
from verax.audit.run.record import batch_tables, write_part
from verax.audit.run.runs import RunBatch
from verax.audit.run.subject import Engine, Progress, StoppedError


class Worker:
    """Computes the batches of a plan that nobody else has claimed.

    Args:
        plan: what to try.
        engine: computes runs.
        folder: of the record.
        progress: called with the number of run-rounds just done.
        stop: set to make the worker save its state and end.
    """

    def __init__(
        self, plan: Plan, engine: Engine, folder: Path, progress: Progress, stop: threading.Event
    ) -> None:
        self.folder = folder
        self._plan, self._stop, self._progress = plan, stop, progress
        self._engine, self.batches = engine, engine.batches

    def work(self, number: int) -> None:
        """Compute what nobody has claimed; batches that branch off wait for all honest runs.

        Every second worker goes through the batches from the end, so that not all workers compile
        the same program at the same time.
        """
        honest, others = self.jobs()
        for batch in honest:
            self._claim(batch)
        while not all(self.is_done(batch) for batch in honest):
            if self._stop.wait(0.02):
                raise StoppedError
        for batch in reversed(others) if number % 2 else others:
            self._claim(batch)

    def jobs(self) -> tuple[list[RunBatch], list[RunBatch]]:
        """Batches with an honest run, and those that may branch off one."""
        honest = [batch for batch in self.batches if batch.first.role == "honest"]
        return honest, [batch for batch in self.batches if batch.first.role != "honest"]

    def is_done(self, batch: RunBatch) -> bool:
        """Whether the results of a batch are there."""
        return self.files(batch)[0].exists()

    def needs(self, batch: RunBatch) -> list[Path]:
        """Files without which a batch cannot begin."""
        return self._engine.needs(batch)

    def files(self, batch: RunBatch) -> tuple[Path, Path]:
        """Where a finished batch's tables are: runs, and rounds."""
        work = self.folder / "work"
        return work / f"{batch.name}.runs.arrow", work / f"{batch.name}.rounds.arrow"

    def compute(self, batch: RunBatch) -> None:
        """Compute one batch, from where it stands to its tables."""
        runs_file, rounds_file = self.files(batch)
        if runs_file.exists():
            self._progress((self._plan.rounds - batch.first.branch) * len(batch.runs))
            return
        runs, rounds = batch_tables(batch, self._engine.compute(batch, self._progress, self._stop))
        write_part(rounds_file, rounds)
        write_part(runs_file, runs)  # last: it marks the batch as done

    def _claim(self, batch: RunBatch) -> None:
        if self._stop.is_set():
            raise StoppedError
        claim = self.folder / "work" / "claims" / batch.name
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self.compute(batch)
