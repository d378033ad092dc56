"""A worker as a process of its own: `python -m verax.audit.run.process FOLDER K`.

It runs XLA on one thread: a small model's many small operations are fastest that way, and two such
processes use two cores better than one that shares every operation between them. Its progress goes
to standard output, a number of rounds a line; SIGTERM, or a parent that is gone, makes it save its
state and end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import jax

from verax.audit.plan import Plan
from verax.audit.plan.task import task_of
from verax.audit.run.compiled import remember_compiled
from verax.audit.run.simulated import SimulatorEngine
from verax.audit.run.subject import Engine, StoppedError
from verax.audit.run.worker import Worker


def work(folder: Path, k: int, make_engine: Callable[[Plan, Path], Engine]) -> None:
    """Do the jobs of the plan in the folder that nobody else has claimed.

    Args:
        folder: of the record.
        k: this worker's number.
        make_engine: plan and folder → what computes the runs.
    """
    if hasattr(os, "sched_setaffinity"):
        # Libraries make as many threads as they see cores when they start.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[k % len(cores)]})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which tells us

    def progress(rounds: int) -> None:
        try:
            print(rounds, flush=True)
        except BrokenPipeError:
            stop.set()

    plan = Plan.from_toml((folder / "plan.toml").read_text(encoding="utf-8"))
    try:
        Worker(plan, make_engine(plan, folder), folder, progress, stop).work(k)
    except StoppedError:
        return


def _simulator(plan: Plan, folder: Path) -> SimulatorEngine:
    jax.devices("cpu")  # XLA starts, and sees one core
    remember_compiled()
    return SimulatorEngine(plan, task_of(plan), folder)


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), _simulator)
