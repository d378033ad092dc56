"""What computes an audit: batches of runs and derivatives, one job after the other.

Jobs are claimed by creating a file, so that any number of threads or processes can share them, and
each leaves its result as a file.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from verax.audit.plan import Plan, aggregator_of
from verax.audit.record import batch_tables, write_part
from verax.audit.work import Batch, branches, layout, levels_of
from verax.files import write_text, write_with
from verax.learning import (
    Differentiator,
    Seeds,
    Simulator,
    State,
    Task,
    measure_likeness,
    tangent_rounds,
)
from verax.learning.protocol import Record
from verax.mechanism import refined_blocks

__all__ = ["Progress", "StoppedError", "Worker", "load_state", "save_state"]

#: Gradients of all clients together must not be more numbers than this to be compared.
_COMPARED = 100_000_000

#: Seconds between two saved states of a running batch.
_SAVE_EVERY = 2.0

Progress = Callable[[int], None]


class StoppedError(Exception):
    """The audit was asked to stop; finished work is kept."""


class Worker:
    """Does the jobs of a plan that nobody else has claimed.

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
        audited = Simulator(task, plan.make_protocol(), plan.rounds, distances=plan.distances)
        self.simulators = {"": audited}
        for name in plan.robust:
            protocol = replace(plan.make_protocol(), aggregator=aggregator_of(name))
            self.simulators[name] = Simulator(task, protocol, plan.rounds, distances=plan.distances)
        self.batches, together = layout(plan, audited, folder)
        blocks = refined_blocks(plan.rounds, plan.per_halving)
        self.differentiate = Differentiator(
            audited, blocks, plan.make_reward(), plan.deviators, together
        )

    def work(self, k: int) -> None:
        """Do what is unclaimed; whatever begins where an honest run stands, after all of those.

        Every second worker takes the derivatives first, which need no run: it has no reason to
        wait, and not all compile everything.
        """
        first, runs, slopes = self.jobs()
        before, after = (slopes + first, runs[::-1]) if k % 2 else (first, runs + slopes)
        for name in before:
            self._claimed(name)
        while not all(self.done(name) for name in first):
            if self.stop.wait(0.02):
                raise StoppedError
        for name in after:
            self._claimed(name)

    def jobs(self) -> tuple[list[str], list[str], list[str]]:
        """What there is to do, by name: honest runs; those that begin from them; derivatives."""
        named = {f"batch-{b.number:05d}": b.first.role for b in self.batches}
        first = [name for name, role in named.items() if role == "honest"]
        others = [name for name, role in named.items() if role != "honest"]
        return first, others, [f"sensitivity-{seed:05d}" for seed in self.plan.seeds_to_set]

    def do(self, name: str) -> None:
        """Do one job, or tell of its progress if it was done."""
        kind, _, number = name.partition("-")
        if kind == "batch":
            self._batch(self.batches[int(number)])
        else:
            self._sensitivity(int(number))

    def done(self, name: str) -> bool:
        """Whether the results of a job are there."""
        kind, _, number = name.partition("-")
        if kind == "batch":
            return self.files(self.batches[int(number)])[0].exists()
        return self.seed_file(int(number)).exists()

    def needs(self, name: str) -> list[Path]:
        """Files without which a job cannot begin: the state that its runs branch from."""
        kind, _, number = name.partition("-")
        batch = self.batches[int(number)] if kind == "batch" else None
        if batch is None or not batch.first.branch:
            return []
        return [self._branch_file(batch, batch.first.branch)]

    def files(self, batch: Batch) -> tuple[Path, Path]:
        """Where a finished batch's tables are: runs, and rounds."""
        stem = self.folder / "work" / f"batch-{batch.number:05d}"
        return stem.with_suffix(".runs.arrow"), stem.with_suffix(".rounds.arrow")

    def seed_file(self, seed: int) -> Path:
        """Where the derivatives of a replica are."""
        return self.folder / "work" / f"sensitivity-{seed:05d}.npz"

    @property
    def likeness_file(self) -> Path:
        """How alike the clients are, at the start and at the end of an honest run."""
        return self.folder / "likeness.json"

    def _likeness(self, simulator: Simulator, seeds: Seeds, *states: State) -> None:
        N = simulator.task.clients
        if N * simulator.parameters > _COMPARED:
            return
        points = [jax.tree.map(lambda leaf: leaf[0], state.params) for state in states]
        batches = min(8, max(2, self.plan.rounds))  # no more work than a short run is itself
        measured = measure_likeness(simulator, points, seeds, batches)
        found = [
            {
                "round": state.round,
                "cosines": _spread(alike.cosines),
                "zeta": alike.zeta,
                "rho": alike.rho,
            }
            for state, alike in zip(states, measured, strict=True)
        ]
        write_text(self.likeness_file, json.dumps(found))

    def _claimed(self, name: str) -> None:
        if self.stop.is_set():
            raise StoppedError
        claim = self.folder / "work" / "claims" / name
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self.do(name)

    def _batch(self, batch: Batch) -> None:
        """One batch, from where it stands to its tables."""
        runs_file, rounds_file = self.files(batch)
        count = len(batch.runs)
        if runs_file.exists():
            self._progress((self.plan.rounds - batch.first.branch) * count)
            return
        simulator = self.simulators[batch.first.aggregator]
        seeds = Seeds.of(batch.first.seed)
        saved = self.folder / "work" / f"batch-{batch.number:05d}.state.npz"
        start = simulator.start(seeds)
        state: State = start
        done: list[Record] = []
        if saved.exists():
            state, done = load_state(saved, start)
            self._progress(sum(record.loss.shape[1] for record in done) * count)
        elif batch.first.branch:
            state, _ = load_state(self._branch_file(batch, batch.first.branch), start)
        keep = branches(self.plan, simulator.segment) if batch.first.role == "honest" else []
        clock = time.monotonic()

        def after(state: State, records: list[Record], length: int) -> None:
            nonlocal clock
            self._progress(length * count)
            if state.round in keep:
                save_state(self._branch_file(batch, state.round), state.of_run(0), [])
            if self.stop.is_set() or time.monotonic() - clock > _SAVE_EVERY:
                save_state(saved, state, records)
                clock = time.monotonic()
            if self.stop.is_set():
                raise StoppedError

        outcome = simulator.run(
            seeds,
            [levels_of(run, simulator) for run in batch.padded],
            state,
            evaluate_every=self.plan.evaluate_every,
            after_segment=after,
            done=done,
        )
        if batch.first == self.batches[0].first:  # one honest run stands for all
            self._likeness(simulator, seeds, start, outcome.state)
        runs, rounds = batch_tables(batch, outcome)
        write_part(rounds_file, rounds)
        write_part(runs_file, runs)  # last: it marks the batch as done
        saved.unlink(missing_ok=True)

    def _sensitivity(self, seed: int) -> None:
        """R and J of one replica."""
        path = self.seed_file(seed)
        if path.exists():
            differentiate = self.differentiate
            self._progress(tangent_rounds(differentiate.blocks, len(differentiate.clients)))
            return

        def after(done: int) -> None:
            self._progress(done)
            if self.stop.is_set():
                raise StoppedError

        found = self.differentiate(Seeds.of(seed), after)
        write_with(path, lambda f: np.savez(f, reward=found.reward, norms=found.norms))

    def _branch_file(self, batch: Batch, round_: int) -> Path:
        kind = batch.first.aggregator.replace(":", "-") or "audited"
        return self.folder / "work" / f"honest-{kind}-{batch.first.seed:05d}-{round_:06d}.npz"


def save_state(path: Path, state: State, records: list[Record]) -> None:
    """A state and the records so far, bit by bit."""
    arrays = {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state.params))}
    arrays |= {"history": np.asarray(state.history), "round": np.asarray(state.round)}
    if records:
        joined = Record(*(np.concatenate(parts, axis=1) for parts in zip(*records, strict=True)))
        arrays |= joined._asdict()
    write_with(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def load_state(path: Path, like: State) -> tuple[State, list[Record]]:
    """What `save_state` saved; `like` is a state of the same model."""
    with np.load(path) as file:
        count = len(jax.tree.leaves(like.params))
        leaves = [file[f"leaf{k}"] for k in range(count)]
        params = jax.tree.unflatten(jax.tree.structure(like.params), leaves)
        records = [Record(*(file[name] for name in Record._fields))] if "gram" in file else []
        state = State(params, file["history"], int(file["round"]))
    return state, records


def _spread(values: NDArray[np.float64]) -> list[float] | None:
    """(Least, median, most) of those that are known."""
    known = values[np.isfinite(values)]
    return [float(value) for value in np.quantile(known, [0, 0.5, 1])] if known.size else None
