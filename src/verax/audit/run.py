"""Running a plan: on all cores, resumable after a kill at any moment.

A finished batch is two small tables on disk; an unfinished one leaves the state after its last
saved segment. Whoever starts the same plan in the same folder continues there, with the same
numbers. When all is done the tables are joined and the working files removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from verax.audit.plan import Plan
from verax.audit.record import read_part, write_table
from verax.audit.room import check_memory, share
from verax.audit.work import all_runs
from verax.audit.worker import Progress, StoppedError, Worker
from verax.files import write_text, write_with
from verax.learning import Batch, Task, tangent_rounds
from verax.mechanism import Sensitivities, refined_blocks
from verax.memory import free_memory
from verax.tasks import named

__all__ = ["load_sensitivities", "run", "task_of", "total_rounds"]


def run(
    plan: Plan,
    task: Task,
    folder: Path,
    *,
    memory: int | None = None,
    workers: int | None = None,
    processes: bool = False,
    on: str = "",
    progress: Progress | None = None,
) -> None:
    """Compute what the folder does not hold yet.

    Args:
        plan: what to try.
        task: on what.
        folder: of the record; created, or continued if it belongs to the same plan and data.
        memory: bytes that all processes may use together (default: half of what is free, for runs
            alone).
        workers: how many jobs at a time (default: as many as cores).
        processes: workers are processes rather than threads; faster on a CPU, and possible where
            the plan itself says what the task is.
        on: "ray", or "ray://host:port" of a cluster, instead of this machine's cores.
        progress: called with the number of run-rounds just done.
    """
    if _same_plan(plan, task, folder) and (folder / "runs.parquet").exists():
        return
    asked, workers = workers, workers or os.cpu_count() or 1
    if memory is not None:
        check_memory(memory, plan, task.clients, task.parameters, workers)
    _claim_folder(plan, task, folder)
    settings = folder / "work" / "settings.json"
    if not settings.exists():
        # Written down so that a resumed audit cuts its batches in the same way.
        each = free_memory() // 2 // workers if memory is None else share(memory, workers)
        write_text(settings, json.dumps({"memory": each}))
    claims = folder / "work" / "claims"
    shutil.rmtree(claims, ignore_errors=True)  # of workers that are gone
    claims.mkdir()
    tick = progress or (lambda rounds: None)
    if on:
        from verax.audit.cluster import run_on_ray

        scheme, _, where = on.partition("://")
        if scheme != "ray":
            raise ValueError(f"on is {on!r}, must be ray or ray://host:port")
        run_on_ray(plan, task, folder, on if where else "", asked, tick)
    elif processes:
        _in_processes(folder, workers, tick)
    else:
        _in_threads(plan, task, folder, workers, tick)
    _join(Worker(plan, task, folder, tick, threading.Event()))


def task_of(plan: Plan, progress: Callable[[int], None] | None = None) -> Task:
    """The task that a plan describes; `progress` hears of texts just encoded."""
    task = named(
        plan.task,
        clients=plan.clients,
        model=plan.model,
        split=plan.split,
        alpha=plan.alpha,
        seed=plan.partition_seed,
        data=plan.data,
        encoder=plan.encoder,
        progress=progress,
    )
    return _fewer_tests(task, plan) if plan.test_samples else task


def _fewer_tests(task: Task, plan: Plan) -> Task:
    def drawn(client: int, batch: Batch) -> Batch:
        rng = np.random.default_rng([plan.partition_seed, client])
        size = len(batch[0])
        rows = np.sort(rng.permutation(size)[: plan.test_samples])
        return tuple(array[rows] for array in batch)

    return replace(task, test=[drawn(i, batch) for i, batch in enumerate(task.test)])


def total_rounds(plan: Plan, segment: int = 50) -> int:
    """Run-rounds that the whole plan takes, derivatives counted by their tangents."""
    runs = sum(plan.rounds - run.branch for run in all_runs(plan, min(segment, plan.rounds)))
    blocks = refined_blocks(plan.rounds, plan.per_halving)
    return runs + plan.setting_seeds * tangent_rounds(blocks, len(plan.deviators))


def load_sensitivities(plan: Plan, folder: Path) -> list[Sensitivities]:
    """R and J of every replica that sets the price."""
    clients = np.array(plan.deviators)
    path = folder / "sensitivities.npz"
    try:
        with np.load(path) as file:
            return [
                Sensitivities(reward, norms, clients)
                for reward, norms in zip(file["reward"], file["norms"], strict=True)
            ]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}); remove the folder and rerun") from None


def _in_threads(plan: Plan, task: Task, folder: Path, workers: int, progress: Progress) -> None:
    stop, lock = threading.Event(), threading.Lock()

    def tick(rounds: int) -> None:
        with lock:
            progress(rounds)

    worker = Worker(plan, task, folder, tick, stop)
    with ThreadPoolExecutor(workers) as pool:
        threads = [pool.submit(worker.work, k) for k in range(workers)]
        try:
            done, _ = wait(threads, return_when=FIRST_EXCEPTION)
            if any(thread.exception() for thread in done):
                stop.set()
        except KeyboardInterrupt:
            stop.set()
            raise
    for thread in threads:
        if (error := thread.exception()) and not isinstance(error, StoppedError):
            raise error


def _in_processes(folder: Path, workers: int, progress: Progress) -> None:
    # What workers complain of is not kept in the folder: its disk may be what is full.
    with tempfile.TemporaryDirectory(prefix="verax-") as logs:
        _watch_processes(folder, [Path(logs) / str(k) for k in range(workers)], progress)


def _watch_processes(folder: Path, errors: list[Path], progress: Progress) -> None:
    running: list[subprocess.Popen[str]] = []
    lock = threading.Lock()

    def listen(process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            with lock:
                progress(int(line))

    try:
        for k, log in enumerate(errors):
            command = [sys.executable, "-m", "verax.audit.process", str(folder), str(k)]
            with log.open("w") as file:
                running.append(
                    subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
                )
        listeners = [threading.Thread(target=listen, args=(p,), daemon=True) for p in running]
        for listener in listeners:
            listener.start()
        failed = _first_failure(running)
        for listener in listeners:
            listener.join()
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    if failed is not None:
        lines = errors[failed].read_text(errors="replace").strip().splitlines() or ["no message"]
        code = running[failed].returncode
        raise OSError(
            f"a worker ended with code {code} ({lines[-1]}); finished work is kept in {folder}, "
            "the same command goes on from there"
        )


def _first_failure(running: list[subprocess.Popen[str]]) -> int | None:
    """Wait for all; the number of the first that failed, the others told to stop."""
    left = dict(enumerate(running))
    while left:
        for k, process in list(left.items()):
            try:
                code = process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
            del left[k]
            if code != 0:
                for other in left.values():
                    other.terminate()
                return k
    return None


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


def _claim_folder(plan: Plan, task: Task, folder: Path) -> None:
    if _same_plan(plan, task, folder):
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another --out")
    strange = [
        path for path in folder.glob("*") if path.name not in ("versions.json", "likeness.json")
    ]
    if strange:
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


def _join(worker: Worker) -> None:
    folder = worker.folder
    loaded: list[dict[str, Any]] = []
    for seed in worker.plan.seeds_to_set:
        with np.load(worker.seed_file(seed)) as file:
            loaded.append({name: file[name] for name in ("reward", "norms")})
    joined = {name: np.stack([one[name] for one in loaded]) for name in ("reward", "norms")}
    write_with(folder / "sensitivities.npz", lambda file: np.savez(file, **joined))  # pyright: ignore
    files = [worker.files(batch) for batch in worker.batches]
    write_table(folder / "rounds.parquet", (read_part(rounds) for _, rounds in files))
    write_table(folder / "runs.parquet", (read_part(runs) for runs, _ in files))
    shutil.rmtree(folder / "work")
