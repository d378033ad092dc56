"""Running a plan: batch by batch, on all cores, resumable after a kill at any moment.

A finished batch is two small tables on disk; an unfinished one leaves the state after its last
saved segment. Whoever starts the same plan in the same folder continues there, with the same
numbers. When all is done the tables are joined and the working files removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import queue
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from verax.audit.files import write_text, write_with
from verax.audit.plan import Plan, aggregator_of
from verax.audit.record import batch_tables, read_table, write_table
from verax.audit.work import Batch, all_runs, batches, branches, levels_of
from verax.learning import Differentiator, Seeds, Simulator, State, Task
from verax.learning.protocol import Record
from verax.mechanism import Sensitivities, refined_blocks

__all__ = ["free_memory", "load_sensitivities", "run", "total_rounds"]

#: Seconds between two saved states of a running batch.
_SAVE_EVERY = 2.0

Progress = Callable[[int], None]


class StoppedError(Exception):
    """The audit was asked to stop; finished work is kept."""


def run(
    plan: Plan,
    task: Task,
    folder: Path,
    *,
    memory: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Compute what the folder does not hold yet.

    Args:
        plan: what to try.
        task: on what.
        folder: of the record; created, or continued if it belongs to the same plan and data.
        memory: bytes that batches may use together (default: half of what is free).
        workers: threads (default: all cores).
        progress: called with the number of run-rounds just done.
    """
    if (folder / "runs.parquet").exists() and _same_plan(plan, task, folder):
        return
    workers = workers or os.cpu_count() or 1
    _claim(plan, task, folder)
    simulator = Simulator(task, plan.make_protocol(), plan.rounds)
    layout = _layout(plan, simulator, folder, (memory or free_memory() // 2) // workers)
    robust = {
        name: Simulator(
            task, replace(plan.make_protocol(), aggregator=aggregator_of(name)), plan.rounds
        )
        for name in plan.robust
    }
    worker = _Worker(plan, folder, {"": simulator, **robust}, progress or (lambda rounds: None))
    blocks = refined_blocks(plan.rounds, plan.per_halving)
    differentiate = Differentiator(simulator, blocks, plan.make_reward())
    honest = [batch for batch in layout if batch.first.role == "honest"]
    others = [batch for batch in layout if batch.first.role != "honest"]
    worker.all([lambda b=batch: worker.batch(b) for batch in honest], workers)
    jobs: list[Callable[[], None]] = [
        lambda s=seed: worker.sensitivity(differentiate, s) for seed in plan.seeds_to_set
    ]
    # Widest first: the two kinds of job compile at the same time, and no long one is left over.
    jobs += [lambda b=batch: worker.batch(b) for batch in others]
    worker.all(_interleaved(jobs, plan.setting_seeds), workers)
    _join(plan, folder, layout)


def total_rounds(plan: Plan, simulator_segment: int = 50) -> int:
    """Run-rounds that the whole plan takes: the length of its progress bar."""
    segment = min(simulator_segment, plan.rounds)
    runs = sum(plan.rounds - run.branch for run in all_runs(plan, segment))
    return runs + plan.rounds * plan.setting_seeds


def load_sensitivities(plan: Plan, folder: Path) -> list[Sensitivities]:
    """R and J of every replica that sets the price."""
    path = folder / "sensitivities.npz"
    try:
        with np.load(path) as file:
            return [
                Sensitivities(reward, norms)
                for reward, norms in zip(file["reward"], file["norms"], strict=True)
            ]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}); remove the folder and rerun") from None


def free_memory() -> int:
    """Bytes that this machine has free."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        known = dict(line.split(":", 1) for line in lines)
        return int(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 4 * 2**30


class _Worker:
    """Does batches and derivatives, and saves them."""

    def __init__(
        self, plan: Plan, folder: Path, simulators: dict[str, Simulator], progress: Progress
    ) -> None:
        self.plan, self.folder, self.simulators = plan, folder, simulators
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._progress = progress

    def all(self, jobs: list[Callable[[], None]], workers: int) -> None:
        """Do all jobs on a few threads; the first failure, or Ctrl-C, stops the rest."""
        waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)

        def work() -> None:
            while not self.stop.is_set():
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    return
                job()

        with ThreadPoolExecutor(min(workers, max(len(jobs), 1))) as pool:
            threads = [pool.submit(work) for _ in range(workers)]
            try:
                done, _ = wait(threads, return_when=FIRST_EXCEPTION)
            except KeyboardInterrupt:
                self.stop.set()
                raise
            if any(thread.exception() for thread in done):
                self.stop.set()
        for thread in threads:
            if (error := thread.exception()) and not isinstance(error, StoppedError):
                raise error

    def batch(self, batch: Batch) -> None:
        """One batch, from where it stands to its tables."""
        rounds = self.plan.rounds - batch.first.branch
        if _runs_file(self.folder, batch).exists():
            self._tick(rounds * len(batch.runs))
            return
        simulator, seeds = self.simulators[batch.first.aggregator], Seeds.of(batch.first.seed)
        saved = self.folder / "work" / f"batch-{batch.number:05d}.state.npz"
        state, done = self._resume(batch, simulator, seeds, saved)
        self._tick(sum(record.loss.shape[1] for record in done) * len(batch.runs))
        clock = time.monotonic()
        keep = branches(self.plan, simulator.segment) if batch.first.role == "honest" else []

        def after(state: State, records: list[Record], length: int) -> None:
            nonlocal clock
            self._tick(length * len(batch.runs))
            if state.round in keep:
                _save_state(self._branch_file(batch, state.round), state, [])
            if self.stop.is_set() or time.monotonic() - clock > _SAVE_EVERY:
                _save_state(saved, state, records)
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
        runs, table = batch_tables(batch, outcome)
        write_table(_rounds_file(self.folder, batch), [table])
        write_table(_runs_file(self.folder, batch), [runs])  # last: it marks the batch as done
        saved.unlink(missing_ok=True)

    def sensitivity(self, differentiate: Differentiator, seed: int) -> None:
        """R and J of one replica."""
        path = self.folder / "work" / f"sensitivity-{seed:05d}.npz"
        if path.exists():
            self._tick(self.plan.rounds)
            return

        def after(length: int) -> None:
            self._tick(length)
            if self.stop.is_set():
                raise StoppedError

        found = differentiate(Seeds.of(seed), after)
        write_with(path, lambda f: np.savez(f, reward=found.reward, norms=found.norms))

    def _resume(
        self, batch: Batch, simulator: Simulator, seeds: Seeds, saved: Path
    ) -> tuple[State, list[Record]]:
        start = simulator.start(seeds)
        if saved.exists():
            return _load_state(saved, start)
        if batch.first.branch:
            return _load_state(self._branch_file(batch, batch.first.branch), start)
        return start, []

    def _branch_file(self, batch: Batch, round_: int) -> Path:
        kind = batch.first.aggregator.replace(":", "-") or "audited"
        return self.folder / "work" / f"honest-{kind}-{batch.first.seed:05d}-{round_:06d}.npz"

    def _tick(self, rounds: int) -> None:
        with self._lock:
            self._progress(rounds)


def _save_state(path: Path, state: State, records: list[Record]) -> None:
    arrays = {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state.params))}
    arrays |= {"history": np.asarray(state.history), "round": np.asarray(state.round)}
    if records:
        joined = Record(*(np.concatenate(parts, axis=1) for parts in zip(*records, strict=True)))
        arrays |= joined._asdict()
    write_with(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def _load_state(path: Path, like: State) -> tuple[State, list[Record]]:
    with np.load(path) as file:
        count = len(jax.tree.leaves(like.params))
        leaves = [jax.numpy.asarray(file[f"leaf{k}"]) for k in range(count)]
        params = jax.tree.unflatten(jax.tree.structure(like.params), leaves)
        records = [Record(*(file[name] for name in Record._fields))] if "gram" in file else []
        state = State(params, jax.numpy.asarray(file["history"]), int(file["round"]))
    return state, records


def _interleaved(jobs: list[Callable[[], None]], slow: int) -> list[Callable[[], None]]:
    """One of the slow jobs first, then one of the others, and so on."""
    first, rest = jobs[:slow], jobs[slow:]
    paired = [job for pair in zip(first, rest, strict=False) for job in pair]
    return paired + first[len(rest) :] + rest[len(first) :]


def _fingerprint(task: Task) -> str:
    digest = hashlib.sha256(task.name.encode())
    for part in (task.train, task.test):
        for batch in part:
            for array in batch:
                digest.update(str((array.shape, array.dtype)).encode())
                digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _same_plan(plan: Plan, task: Task, folder: Path) -> bool:
    """Whether the folder belongs to this plan and data; another plan's folder is refused."""
    path = folder / "plan.toml"
    if not path.exists():
        return False
    if Plan.from_toml(path.read_text(encoding="utf-8")) != plan:
        raise ValueError(f"{folder} holds an audit of another plan; choose another --out")
    known = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    if known["data"] != _fingerprint(task):
        raise ValueError(f"{folder} holds an audit of other data; choose another --out")
    return True


def _claim(plan: Plan, task: Task, folder: Path) -> None:
    if _same_plan(plan, task, folder):
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no audit; choose another --out")
    write_text(folder / "versions.json", json.dumps(_versions(task), indent=2))
    write_text(folder / "plan.toml", plan.to_toml())


def _versions(task: Task) -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("verax", "jax", "jaxlib", "numpy", "scipy", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found | {"data": _fingerprint(task)}


def _layout(plan: Plan, simulator: Simulator, folder: Path, memory: int) -> list[Batch]:
    """The batches, the same when resumed: how many runs they hold is written down at the start."""
    path = folder / "work" / "layout.json"
    if path.exists():
        memory = json.loads(path.read_text())["memory"]
    else:
        write_text(path, json.dumps({"memory": memory}))
    runs = all_runs(plan, simulator.segment)
    return batches(runs, simulator.task.clients, simulator.parameters, memory)


def _join(plan: Plan, folder: Path, layout: list[Batch]) -> None:
    seeds = [folder / "work" / f"sensitivity-{seed:05d}.npz" for seed in plan.seeds_to_set]
    loaded = [np.load(path) for path in seeds]
    reward = np.stack([file["reward"] for file in loaded])
    norms = np.stack([file["norms"] for file in loaded])
    write_with(
        folder / "sensitivities.npz", lambda file: np.savez(file, reward=reward, norms=norms)
    )
    write_table(folder / "rounds.parquet", (read_table(_rounds_file(folder, b)) for b in layout))
    write_table(folder / "runs.parquet", (read_table(_runs_file(folder, b)) for b in layout))
    shutil.rmtree(folder / "work")


def _runs_file(folder: Path, batch: Batch) -> Path:
    return folder / "work" / f"batch-{batch.number:05d}.runs.parquet"


def _rounds_file(folder: Path, batch: Batch) -> Path:
    return folder / "work" / f"batch-{batch.number:05d}.rounds.parquet"


def memory_of(text: str) -> Any:
    """Bytes from a text such as 2G or 500M."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in units else (text, "")
    try:
        value = float(digits) * units.get(unit, 1)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise ValueError(f"memory is {text!r}, must be a number of bytes > 0 such as 2G or 500M")
    return int(value)
