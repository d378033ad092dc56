"""Running a plan: on all cores, resumable after a kill at any moment.

A finished batch is two small tables on disk; an unfinished one leaves the state after its last
saved segment. Whoever starts the same plan in the same folder continues there, with the same
numbers. When all is done the tables are joined and the working files removed.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from verax import __version__
from verax.audit.plan import Plan
from verax.audit.run.record import read_part, write_table
from verax.audit.run.runs import all_runs
from verax.audit.run.subject import Progress, StoppedError, Subject
from verax.audit.run.worker import Worker
from verax.files import write_text
from verax.quiet import NO_TELEMETRY


def run(
    plan: Plan,
    subject: Subject,
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
        subject: on what.
        folder: of the record; created, or continued if it belongs to the same plan and data.
        memory: bytes that all processes may use together (default: half of what is free, for runs
            alone).
        workers: how many jobs at a time (default: as many as cores).
        processes: workers are processes rather than threads; faster on a CPU, and possible where
            the plan itself says what the task is.
        on: "ray", or "ray://host:port" of a cluster, instead of this machine's cores.
        progress: called with the number of run-rounds just done.
    """
    fingerprint = subject.fingerprint()
    known = _holds_same_audit(plan, fingerprint, folder)
    if known and (folder / "runs.parquet").exists():
        return
    asked, workers = workers, workers or os.cpu_count() or 1
    settings = subject.settings(memory, workers)
    if not known:
        _claim_folder(plan, fingerprint, folder)
    try:
        _compute(plan, subject, folder, settings, asked, workers, processes, on, progress)
    except ValueError:
        # The audit was refused: what was just created must not stand in the next one's way.
        if not known and not any((folder / "work").glob("*.arrow")):
            shutil.rmtree(folder)
        raise


def _compute(
    plan: Plan,
    subject: Subject,
    folder: Path,
    settings: dict[str, Any],
    asked: int | None,
    workers: int,
    processes: bool,
    on: str,
    progress: Progress | None,
) -> None:
    written = folder / "work" / "settings.json"
    if not written.exists():  # a resumed audit goes on with the same settings
        write_text(written, json.dumps(settings))
    claims = folder / "work" / "claims"
    shutil.rmtree(claims, ignore_errors=True)  # of workers that are gone
    claims.mkdir()
    tick = progress or (lambda rounds: None)
    if on:
        from verax.audit.run.cluster import run_on_ray

        scheme, _, where = on.partition("://")
        if scheme != "ray":
            raise ValueError(f"on is {on!r}, must be ray or ray://host:port")
        run_on_ray(plan, subject, folder, on if where else "", asked, tick)
    elif processes:
        _in_processes(subject.worker_module, folder, workers, tick)
    else:
        _in_threads(plan, subject, folder, workers, tick)
    _join(Worker(plan, subject.engine(plan, folder), folder, tick, threading.Event()))


def total_rounds(plan: Plan, segment: int = 50) -> int:
    """Run-rounds that the whole plan takes."""
    return sum(plan.rounds - run.branch for run in all_runs(plan, min(segment, plan.rounds)))


def _in_threads(
    plan: Plan, subject: Subject, folder: Path, workers: int, progress: Progress
) -> None:
    stop, lock = threading.Event(), threading.Lock()

    def tick(rounds: int) -> None:
        with lock:
            progress(rounds)

    worker = Worker(plan, subject.engine(plan, folder), folder, tick, stop)
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


def _in_processes(module: str, folder: Path, workers: int, progress: Progress) -> None:
    # What workers complain of is not kept in the folder: its disk may be what is full.
    with tempfile.TemporaryDirectory(prefix="verax-") as logs:
        logs_of = [Path(logs) / str(k) for k in range(workers)]
        _watch_processes(module, folder, logs_of, progress)


def _watch_processes(module: str, folder: Path, errors: list[Path], progress: Progress) -> None:
    running: list[subprocess.Popen[str]] = []
    lock = threading.Lock()
    # Parts that the user brought are imported in the workers, too.
    environment = os.environ | NO_TELEMETRY
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))

    def listen(process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            with lock:
                progress(int(line))

    try:
        for k, log in enumerate(errors):
            command = [sys.executable, "-m", module, str(folder), str(k)]
            with log.open("w") as file:
                running.append(
                    subprocess.Popen(
                        command, stdout=subprocess.PIPE, stderr=file, text=True, env=environment
                    )
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


def _holds_same_audit(plan: Plan, fingerprint: str, folder: Path) -> bool:
    """Whether the folder belongs to this plan and data; another audit's folder is refused."""
    path = folder / "plan.toml"
    if not path.exists():
        return False
    if path.read_text(encoding="utf-8") != plan.to_toml():
        raise ValueError(
            f"{folder} holds an audit of another plan; --again replaces it, or choose another --out"
        )
    known = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    if known["data"] != fingerprint:
        raise ValueError(
            f"{folder} holds an audit of other data; --again replaces it, or choose another --out"
        )
    return True


def _claim_folder(plan: Plan, fingerprint: str, folder: Path) -> None:
    """Make the folder this audit's own."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another --out")
    # An audit that was killed before its plan was written leaves this file alone.
    foreign = [path for path in folder.glob("*") if path.name != "versions.json"]
    if foreign:
        raise ValueError(f"{folder} is not empty and holds no audit; choose another --out")
    write_text(folder / "versions.json", json.dumps(_versions() | {"data": fingerprint}, indent=2))
    write_text(folder / "plan.toml", plan.to_toml())


def _versions() -> dict[str, str]:
    versions = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "verax": __version__,
    }
    for name in ("jax", "jaxlib", "numpy", "scipy", "pyarrow"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return versions


def _join(worker: Worker) -> None:
    """Join the tables of all batches and remove the working files."""
    folder = worker.folder
    files = [worker.files(batch) for batch in worker.batches]
    write_table(folder / "rounds.parquet", (read_part(rounds) for _, rounds in files))
    write_table(folder / "runs.parquet", (read_part(runs) for runs, _ in files))
    shutil.rmtree(folder / "work")
