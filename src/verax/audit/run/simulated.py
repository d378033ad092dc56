"""Audits of a task: runs are computed by the compiled simulator, many in a batch."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from verax.audit.plan import Plan
from verax.audit.run.budget import check_memory, memory_for_runs
from verax.audit.run.runs import RunBatch, all_runs, batch_width, batches_of, branch_rounds
from verax.audit.run.subject import Description, Progress, StoppedError
from verax.files import write_text, write_with
from verax.learning import (
    Behaviour,
    Outcome,
    Seeds,
    Simulator,
    Task,
    TrainingState,
    label_distances,
    measure_similarity,
)
from verax.learning.outcome import joined_records
from verax.learning.round import RoundMeasurements
from verax.mechanism import Statistics
from verax.memory import free_memory

#: Gradients of all clients are compared only if they have together at most so many numbers.
_COMPARED_NUMBERS = 100_000_000

#: Seconds between two saved states of a running batch.
_SAVE_EVERY = 2.0

_PRICED = {
    True: "gradients, as in the paper; what Flower sends are model differences (see --app)",
    False: "model differences",
}

# Of more clients than this, only the extremes of their sizes are listed.
_MANY = 20


class TaskSubject:
    """A task, audited by simulation."""

    worker_module = "verax.audit.run.process"

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def name(self) -> str:
        """The task's label."""
        return self.task.name

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' labels."""
        return self.task.names

    def fingerprint(self) -> str:
        """A digest of the name and all samples."""
        digest = hashlib.sha256(self.task.name.encode())
        for part in (self.task.train, self.task.test):
            for batch in part:
                for array in batch:
                    digest.update(str((array.shape, array.dtype)).encode())
                    digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def describe(self, plan: Plan) -> Description:
        """The protocol, and how many samples the clients have."""
        counts = [len(batch[0]) for batch in self.task.train]
        sizes = ", ".join(map(str, counts))
        if len(counts) > _MANY:
            sizes = f"{min(counts)} to {max(counts)}, {np.median(counts):g} in the median"
        protocol, distances = plan.protocol.make(), label_distances(self.task.train)
        gradients = protocol.kind == "fedsgd"
        steps = "1 gradient" if gradients else f"{protocol.local_steps} local steps"
        if protocol.epochs:
            steps = f"{protocol.epochs} local epoch" + ("s" if protocol.epochs > 1 else "")
            steps += " in batches"
        return Description(
            message="gradient" if gradients else "model difference",
            protocol=str(protocol),
            local_work=f"{steps} of {protocol.batch} samples",
            weights="equal",
            details=(
                ("prices are for", _PRICED[gradients]),
                ("training samples per client", sizes),
            ),
            label_distances=None if distances is None else _quantiles(distances),
            lower_step=f"lower the step, now {protocol.step:g}",
        )

    def work(self, plan: Plan) -> float:
        """About how many numbers a run computes."""
        sizes = np.array([len(batch[0]) for batch in self.task.train])
        steps = float(plan.protocol.make().steps_of(sizes).sum())
        return plan.rounds * steps * self.task.parameters

    def settings(self, memory: int | None, workers: int) -> dict[str, Any]:
        """The memory of each worker's runs, by which batches are cut."""
        if memory is None:
            return {"memory": free_memory() // 2 // workers}
        check_memory(memory, self.task.clients, self.task.parameters, workers)
        return {"memory": memory_for_runs(memory, workers)}

    def engine(self, plan: Plan, folder: Path) -> SimulatorEngine:
        """Simulators for all aggregators of the plan."""
        return SimulatorEngine(plan, self.task, folder)

    def runner(self, plan: Plan) -> SimulatorRunner:
        """The simulator."""
        return SimulatorRunner(plan, self.task, self.work(plan))


class SimulatorRunner:
    """Runs behaviours with the compiled simulator."""

    def __init__(self, plan: Plan, task: Task, work: float) -> None:
        protocol = plan.protocol.make()
        self._simulator = Simulator(task, protocol, plan.rounds, smoothed=plan.smooths)
        self.work = work
        self.width = batch_width(task.clients, task.parameters, free_memory() // 4)

    def run(self, seed: int, behaviours: Sequence[Behaviour]) -> Outcome:
        """All of them in one batch."""
        return self._simulator.run(Seeds.of(seed), behaviours)


class SimulatorEngine:
    """Computes batches of runs with the compiled simulator.

    Args:
        plan: what to try.
        task: on what.
        folder: of the record.
    """

    def __init__(self, plan: Plan, task: Task, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._simulators = {
            name: Simulator(
                task,
                plan.protocol.make(name),
                plan.rounds,
                distances=plan.record.distances,
                smoothed=plan.smooths,
            )
            for name in ("", *plan.prices.robust)
        }
        self._segment = self._simulators[""].segment
        # Batches are cut by the memory that was written down when the audit began, so that a
        # resumed audit cuts them in the same way.
        memory = json.loads((folder / "work" / "settings.json").read_text())["memory"]
        parameters = self._simulators[""].parameters
        runs = all_runs(plan, self._segment)
        self.batches = batches_of(runs, plan.rounds, task.clients, parameters, memory)

    def needs(self, batch: RunBatch) -> list[Path]:
        """The state that the runs of a batch branch off."""
        return [self._branch_file(batch, batch.first.branch)] if batch.first.branch else []

    def compute(self, batch: RunBatch, progress: Progress, stop: threading.Event) -> Outcome:
        """Compute a batch; its state is saved every few seconds and when it is stopped."""
        first, count = batch.first, len(batch.runs)
        simulator = self._simulators[first.aggregator]
        seeds = Seeds.of(first.seed)
        saved = self._folder / "work" / f"{batch.name}.state.npz"
        behaviours = [run.behaviour(simulator.task.clients) for run in batch.padded]
        start = simulator.start(seeds)
        state: TrainingState = start
        done: list[RoundMeasurements] = []
        if saved.exists():
            state, done = load_state(saved, simulator.start(seeds, behaviours))
            progress(sum(record.loss.shape[1] for record in done) * count)
        elif first.branch:
            state, _ = load_state(self._branch_file(batch, first.branch), start)
        keep = branch_rounds(self._plan, self._segment) if first.role == "honest" else []
        clock = time.monotonic()

        def after(state: TrainingState, records: list[RoundMeasurements], length: int) -> None:
            nonlocal clock
            progress(length * count)
            if state.round in keep:
                honest = state.of_run(0)
                save_state(self._branch_file(batch, state.round), honest._replace(memory=None), [])
            if stop.is_set() or time.monotonic() - clock > _SAVE_EVERY:
                save_state(saved, state, records)
                clock = time.monotonic()
            if stop.is_set():
                raise StoppedError

        outcome = simulator.run(
            seeds,
            behaviours,
            state,
            evaluate_every=self._plan.record.evaluate_every,
            after_segment=after,
            done=done,
        )
        if batch.number == 0:  # one honest run stands for all
            self._compare_clients(simulator, seeds, start, outcome.state)
        saved.unlink(missing_ok=True)
        return outcome

    def _compare_clients(self, simulator: Simulator, seeds: Seeds, *states: TrainingState) -> None:
        """Write down how similar the clients are at these points of an honest run."""
        if simulator.task.clients * simulator.parameters > _COMPARED_NUMBERS:
            return
        points = [jax.tree.map(lambda leaf: leaf[0], state.params) for state in states]
        batches = min(8, max(2, self._plan.rounds))  # no more work than a short run is itself
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
        write_text(self._folder / "similarity.json", json.dumps(rows))

    def _branch_file(self, batch: RunBatch, round_: int) -> Path:
        kind = "".join(c if c.isalnum() else "-" for c in batch.first.aggregator) or "audited"
        return self._folder / "work" / f"honest-{kind}-{batch.first.seed:05d}-{round_:06d}.npz"


def save_state(path: Path, state: TrainingState, records: list[RoundMeasurements]) -> None:
    """Write a state and the records so far, bit by bit."""
    leaves = jax.tree.leaves((state.params, state.memory, state.averages))
    arrays = {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
    arrays["round"] = np.asarray(state.round)
    if records:
        joined = joined_records(records)
        known = {"loss": joined.loss, **joined.statistics._asdict()}
        arrays |= {name: np.asarray(values) for name, values in known.items() if values is not None}
    write_with(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def load_state(path: Path, like: TrainingState) -> tuple[TrainingState, list[RoundMeasurements]]:
    """Read what `save_state` wrote; `like` is a state of the same model and memories."""
    with np.load(path) as file:
        tree = jax.tree.structure((like.params, like.memory, like.averages))
        params, memory, averages = jax.tree.unflatten(
            tree, [file[f"leaf{k}"] for k in range(tree.num_leaves)]
        )
        records: list[RoundMeasurements] = []
        if "loss" in file:
            statistics = {name: file[name] for name in Statistics._fields if name in file}
            records = [RoundMeasurements(Statistics(**statistics), file["loss"])]
        return TrainingState(params, memory, int(file["round"]), averages), records


def _range(values: NDArray[np.float64]) -> list[float] | None:
    """(Least, median, largest) of the values that are known."""
    known = values[np.isfinite(values)]
    return list(_quantiles(known)) if known.size else None


def _quantiles(values: NDArray[np.float64]) -> tuple[float, ...]:
    """(Least, median, largest)."""
    return tuple(float(value) for value in np.quantile(values, [0, 0.5, 1]))
