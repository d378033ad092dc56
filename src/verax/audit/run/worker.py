"""A worker computes the batches of an audit, one after the other.

A batch is claimed by creating a file, so that any number of threads or processes can share the
work, and each batch leaves its results as files.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from verax.audit.plan import Plan
from verax.audit.run.record import batch_tables, write_part
from verax.audit.run.runs import RunBatch, all_runs, batches_of, branch_rounds
from verax.files import write_text, write_with
from verax.learning import Seeds, Simulator, Task, TrainingState, measure_similarity
from verax.learning.round import RoundRecord
from verax.learning.simulator import joined_records
from verax.mechanism import Statistics

#: Gradients of all clients are compared only if they have together at most so many numbers.
_COMPARED_NUMBERS = 100_000_000

#: Seconds between two saved states of a running batch.
_SAVE_EVERY = 2.0

Progress = Callable[[int], None]


class StoppedError(Exception):
    """The audit was asked to stop; finished work is kept."""


class Worker:
    """Computes the batches of a plan that nobody else has claimed.

    Args:
        plan: what to try.
        task: on what.
        folder: of the record.
        progress: called with the number of run-rounds just done.
        stop: set to make the worker save its state and end.
    """

    def __init__(
        self, plan: Plan, task: Task, folder: Path, progress: Progress, stop: threading.Event
    ) -> None:
        self.plan, self.folder, self.stop, self._progress = plan, folder, stop, progress
        self.simulators = {
            name: Simulator(
                task, plan.protocol.make(name), plan.rounds, distances=plan.record.distances
            )
            for name in ("", *plan.prices.robust)
        }
        self._segment = self.simulators[""].segment
        # Batches are cut by the memory that was written down when the audit began, so that a
        # resumed audit cuts them in the same way.
        memory = json.loads((folder / "work" / "settings.json").read_text())["memory"]
        parameters = self.simulators[""].parameters
        runs = all_runs(plan, self._segment)
        self.batches = batches_of(runs, plan.rounds, task.clients, parameters, memory)

    def work(self, number: int) -> None:
        """Compute what nobody has claimed; batches that branch off wait for all honest runs.

        Every second worker goes through the batches from the end, so that not all workers compile
        the same program at the same time.
        """
        honest, others = self.jobs()
        for batch in honest:
            self._claim(batch)
        while not all(self.is_done(batch) for batch in honest):
            if self.stop.wait(0.02):
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
        """Files without which a batch cannot begin: the state that its runs branch off."""
        return [self._branch_file(batch, batch.first.branch)] if batch.first.branch else []

    def files(self, batch: RunBatch) -> tuple[Path, Path]:
        """Where a finished batch's tables are: runs, and rounds."""
        work = self.folder / "work"
        return work / f"{batch.name}.runs.arrow", work / f"{batch.name}.rounds.arrow"

    def compute(self, batch: RunBatch) -> None:
        """Compute one batch, from where it stands to its tables."""
        runs_file, rounds_file = self.files(batch)
        first, count = batch.first, len(batch.runs)
        if runs_file.exists():
            self._progress((self.plan.rounds - first.branch) * count)
            return
        simulator = self.simulators[first.aggregator]
        seeds = Seeds.of(first.seed)
        saved = self.folder / "work" / f"{batch.name}.state.npz"
        behaviours = [run.behaviour(simulator.task.clients) for run in batch.padded]
        start = simulator.start(seeds)
        state: TrainingState = start
        done: list[RoundRecord] = []
        if saved.exists():
            state, done = load_state(saved, simulator.start(seeds, behaviours))
            self._progress(sum(record.loss.shape[1] for record in done) * count)
        elif first.branch:
            state, _ = load_state(self._branch_file(batch, first.branch), start)
        keep = branch_rounds(self.plan, self._segment) if first.role == "honest" else []
        clock = time.monotonic()

        def after(state: TrainingState, records: list[RoundRecord], length: int) -> None:
            nonlocal clock
            self._progress(length * count)
            if state.round in keep:
                honest = state.of_run(0)
                save_state(self._branch_file(batch, state.round), honest._replace(memory=None), [])
            if self.stop.is_set() or time.monotonic() - clock > _SAVE_EVERY:
                save_state(saved, state, records)
                clock = time.monotonic()
            if self.stop.is_set():
                raise StoppedError

        outcome = simulator.run(
            seeds,
            behaviours,
            state,
            evaluate_every=self.plan.record.evaluate_every,
            after_segment=after,
            done=done,
        )
        if batch.number == 0:  # one honest run stands for all
            self._compare_clients(simulator, seeds, start, outcome.state)
        runs, rounds = batch_tables(batch, outcome)
        write_part(rounds_file, rounds)
        write_part(runs_file, runs)  # last: it marks the batch as done
        saved.unlink(missing_ok=True)

    def _claim(self, batch: RunBatch) -> None:
        if self.stop.is_set():
            raise StoppedError
        claim = self.folder / "work" / "claims" / batch.name
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self.compute(batch)

    def _compare_clients(self, simulator: Simulator, seeds: Seeds, *states: TrainingState) -> None:
        """Write down how similar the clients are at these points of an honest run."""
        if simulator.task.clients * simulator.parameters > _COMPARED_NUMBERS:
            return
        points = [jax.tree.map(lambda leaf: leaf[0], state.params) for state in states]
        batches = min(8, max(2, self.plan.rounds))  # no more work than a short run is itself
        measured = measure_similarity(simulator, points, seeds, batches)
        rows = [
            {
                "round": state.round,
                "cosines": _range(one.cosines),
                "zeta": one.zeta,
                "rho": one.rho,
            }
            for state, one in zip(states, measured, strict=True)
        ]
        write_text(self.folder / "similarity.json", json.dumps(rows))

    def _branch_file(self, batch: RunBatch, round_: int) -> Path:
        kind = "".join(c if c.isalnum() else "-" for c in batch.first.aggregator) or "audited"
        return self.folder / "work" / f"honest-{kind}-{batch.first.seed:05d}-{round_:06d}.npz"


def save_state(path: Path, state: TrainingState, records: list[RoundRecord]) -> None:
    """Write a state and the records so far, bit by bit."""
    leaves = jax.tree.leaves((state.params, state.memory))
    arrays = {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
    arrays["round"] = np.asarray(state.round)
    if records:
        joined = joined_records(records)
        known = {"loss": joined.loss, **joined.statistics._asdict()}
        arrays |= {name: np.asarray(values) for name, values in known.items() if values is not None}
    write_with(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def load_state(path: Path, like: TrainingState) -> tuple[TrainingState, list[RoundRecord]]:
    """Read what `save_state` wrote; `like` is a state of the same model and memories."""
    with np.load(path) as file:
        tree = jax.tree.structure((like.params, like.memory))
        params, memory = jax.tree.unflatten(
            tree, [file[f"leaf{k}"] for k in range(tree.num_leaves)]
        )
        records: list[RoundRecord] = []
        if "loss" in file:
            statistics = {name: file[name] for name in Statistics._fields if name in file}
            records = [RoundRecord(Statistics(**statistics), file["loss"])]
        return TrainingState(params, memory, int(file["round"])), records


def _range(values: NDArray[np.float64]) -> list[float] | None:
    """(Least, median, largest) of the values that are known."""
    known = values[np.isfinite(values)]
    return [float(value) for value in np.quantile(known, [0, 0.5, 1])] if known.size else None
