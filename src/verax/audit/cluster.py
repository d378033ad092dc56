"""An audit on a Ray cluster: the same jobs, done by hands on other machines.

A job is files in, files out. A *hand* is an actor pinned to one core that does jobs in a folder of
its own and hands back the files they left; only the driver writes to the record. So the record is
that of a local run, whatever the number of hands. Ray puts the task once on each node and restarts
hands that die; what they were doing is done again. A hand has one job to do and one to do next, so
that it never waits for the driver, which holds no more results than that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import IO, Any

from verax.audit.plan import Plan
from verax.audit.worker import Progress, Worker
from verax.files import write_bytes
from verax.learning import Task

__all__ = ["run_on_ray"]

#: How often a job is tried before the audit gives up.
_TRIES = 4

#: No call home, no warning of what will change, no log lines between our own.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}

Files = dict[str, bytes]


def run_on_ray(
    plan: Plan,
    task: Task,
    folder: Path,
    address: str,
    workers: int | None,
    progress: Progress,
) -> None:
    """Do what the folder does not hold yet.

    Args:
        plan: what to try.
        task: on what.
        folder: of the record.
        address: of the cluster, "ray://host:port"; empty: one on this machine for this audit.
        workers: how many hands; default: as many as the cluster has cores.
        progress: called with the number of run-rounds just done.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)  # read when Ray is imported
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs pip install 'verax[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, workers)
    try:
        driver = Worker(plan, task, folder, progress, threading.Event())
        count = workers or int(ray.cluster_resources().get("CPU", 1))
        hand = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_TRIES)(_Hand)
        settings = (folder / "work" / "settings.json").read_bytes()
        shared = ray.put(task)
        hands = [hand.remote(plan.to_toml(), shared, settings) for _ in range(count)]
        first, runs, slopes = driver.jobs()
        # Honest runs end before others begin where they stand.
        for jobs in (first, slopes + runs):
            _do_all(ray, driver, hands, jobs)
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


def _do_all(ray: Any, driver: Worker, hands: list[Any], jobs: list[str]) -> None:
    """Keep two jobs with each hand; write what comes back; try again what failed."""
    waiting, tries = deque(jobs), dict.fromkeys(jobs, 0)
    free, busy = deque([*hands, *hands]), {}
    while waiting or busy:
        while waiting and free:
            name = waiting.popleft()
            if driver.done(name):
                driver.do(name)  # tells the progress bar
                continue
            given = {path.name: path.read_bytes() for path in driver.needs(name)}
            hand = free.popleft()
            busy[hand.do.remote(name, given)] = (hand, name)
        if not busy:
            continue
        (ready,), _ = ray.wait(list(busy), num_returns=1)
        hand, name = busy.pop(ready)
        free.append(hand)
        try:
            left: Files = ray.get(ready)
        except (ray.exceptions.RayError, OSError) as error:
            tries[name] += 1
            if tries[name] >= _TRIES:
                reason = str(error).strip().splitlines()[-1]
                raise OSError(
                    f"job {name} failed {_TRIES} times ({reason}); finished work is kept in "
                    f"{driver.folder}, the same command goes on from there"
                ) from None
            waiting.append(name)
            continue
        for path, content in left.items():
            write_bytes(driver.folder / path, content)
        driver.do(name)


class _Hand:
    """Does jobs on one core, in a folder of its own."""

    def __init__(self, plan: str, task: Task, settings: bytes) -> None:
        self._core = _claim_core()
        import jax

        jax.devices("cpu")  # sees the one core, and makes one thread
        from verax.audit.compiled import remember_compiled

        remember_compiled()
        self._settings, self._folder = settings, Path(tempfile.mkdtemp(prefix="verax-hand-"))
        self._clear()
        parsed = Plan.from_toml(plan)
        self._worker = Worker(parsed, task, self._folder, lambda _: None, threading.Event())

    def do(self, name: str, given: Files) -> Files:
        """The files that a job leaves, by their path in the record."""
        work = self._folder / "work"
        for path, content in given.items():
            write_bytes(work / path, content)
        self._worker.do(name)
        left = {
            str(path.relative_to(self._folder)): path.read_bytes()
            for path in self._folder.rglob("*")
            if path.is_file() and path.name != "settings.json" and path.name not in given
        }
        self._clear()
        return left

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        write_bytes(self._folder / "work" / "settings.json", self._settings)


def _claim_core() -> IO[bytes] | None:
    """Pin this process to a core that no other hand on this machine has; the lock is held open."""
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
