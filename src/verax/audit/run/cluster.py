"""An audit on a Ray cluster: the same batches, computed by workers on other machines.

A remote worker is a Ray actor pinned to one core. It computes batches in a folder of its own and
returns the files they left; only the driver writes to the record. So the record is that of a local
audit, whatever the number of workers. Ray copies the subject once to each node and restarts workers
that die; what they were computing is computed again. Each worker has one batch to compute and one
waiting, so that it never waits for the driver.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import IO, Any

from verax.audit.plan import Plan
from verax.audit.run.runs import RunBatch
from verax.audit.run.subject import REPLIES, Progress, Subject
from verax.audit.run.worker import Worker
from verax.files import write_bytes
from verax.quiet import NO_TELEMETRY

#: How often a batch is tried before the audit gives up.
_TRIES = 4

#: Ray sends no usage statistics and prints no warnings or logs of its own.
_QUIET = NO_TELEMETRY | {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}

Files = dict[str, bytes]


def run_on_ray(
    plan: Plan,
    subject: Subject,
    folder: Path,
    address: str,
    workers: int | None,
    progress: Progress,
) -> None:
    """Do what the folder does not hold yet.

    Args:
        plan: what to try.
        subject: on what.
        folder: of the record.
        address: of the cluster, "ray://host:port"; empty: one on this machine for this audit.
        workers: how many; default: as many as the cluster has cores.
        progress: called with the number of run-rounds just done.
    """
    for name, value in _QUIET.items():
        os.environ[name] = value  # read when Ray is imported
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs pip install '.[ray]' in a clone of Verax") from None
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, workers)
    try:
        driver = Worker(plan, subject.engine(plan, folder), folder, progress, threading.Event())
        count = workers or int(ray.cluster_resources().get("CPU", 1))
        actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_TRIES)(_RemoteWorker)
        settings = (folder / "work" / "settings.json").read_bytes()
        shared = ray.put(subject)
        actors = [actor.remote(plan.to_toml(), shared, settings) for _ in range(count)]
        for batches in driver.jobs():  # honest runs end before others branch off them
            _compute_all(ray, driver, actors, batches)
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, address: str, workers: int | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        if address:
            ray.init(address, **quiet)
        else:
            cores = workers or os.cpu_count() or 1
            ray.init(num_cpus=cores, include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = address or "this machine"
        raise ValueError(f"no Ray cluster at {where}: {str(error).splitlines()[0]}") from None


def _compute_all(ray: Any, driver: Worker, actors: list[Any], batches: list[RunBatch]) -> None:
    """Keep two batches with each worker, write what comes back, and try again what failed."""
    waiting, tries = deque(batches), dict.fromkeys((batch.number for batch in batches), 0)
    free, busy = deque([*actors, *actors]), {}
    while waiting or busy:
        while waiting and free:
            batch = waiting.popleft()
            if driver.is_done(batch):
                driver.compute(batch)  # only moves the progress bar
                continue
            given = {path.name: path.read_bytes() for path in driver.needs(batch)}
            actor = free.popleft()
            busy[actor.compute.remote(batch.number, given)] = (actor, batch)
        if not busy:
            continue
        (ready,), _ = ray.wait(list(busy), num_returns=1)
        actor, batch = busy.pop(ready)
        free.append(actor)
        try:
            files: Files = ray.get(ready)
        except (ray.exceptions.RayError, OSError) as error:
            tries[batch.number] += 1
            if tries[batch.number] >= _TRIES:
                reason = str(error).strip().splitlines()[-1]
                raise OSError(
                    f"{batch.name} failed {_TRIES} times ({reason}); finished work is kept in "
                    f"{driver.folder}, the same command goes on from there"
                ) from None
            waiting.append(batch)
            continue
        for path, content in files.items():
            write_bytes(driver.folder / path, content)
        driver.compute(batch)


class _RemoteWorker:
    """Computes batches on one core, in a folder of its own."""

    def __init__(self, plan: str, subject: Subject, settings: bytes) -> None:
        self._core = _claim_core()
        import jax

        jax.devices("cpu")  # XLA sees the one core, and makes one thread
        from verax.audit.run.compiled import remember_compiled

        remember_compiled()
        self._settings, self._folder = settings, Path(tempfile.mkdtemp(prefix="verax-worker-"))
        self._clear()
        parsed = Plan.from_toml(plan)
        engine = subject.engine(parsed, self._folder)
        self._worker = Worker(parsed, engine, self._folder, lambda _: None, threading.Event())

    def compute(self, number: int, given: Files) -> Files:
        """The files that a batch leaves, by their path in the record."""
        work = self._folder / "work"
        for path, content in given.items():
            write_bytes(work / path, content)
        self._worker.compute(self._worker.batches[number])
        files = {
            str(path.relative_to(self._folder)): path.read_bytes()
            for path in self._left()
            if path.name != "settings.json" and path.name not in given
        }
        self._clear()
        return files

    def _left(self) -> list[Path]:
        """What batches left; what an engine keeps for itself stays with this worker."""
        kept = self._folder / "work" / REPLIES
        return [p for p in self._folder.rglob("*") if p.is_file() and kept not in p.parents]

    def _clear(self) -> None:
        for path in self._left():
            path.unlink()
        write_bytes(self._folder / "work" / "settings.json", self._settings)


def _claim_core() -> IO[bytes] | None:
    """Pin this process to a core that no other worker on this machine has; the lock stays open."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    for core in sorted(os.sched_getaffinity(0)):
        lock = (Path(tempfile.gettempdir()) / f"verax-core-{os.getuid()}-{core}.lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        os.sched_setaffinity(0, {core})
        return lock
    return None
