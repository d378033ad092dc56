"""A worker of an app's audit as a process of its own: `python -m verax.apps.process FOLDER K`.

Its progress goes to standard output, a number of rounds a line. SIGTERM, or a parent that is gone,
makes it end after the run that it is computing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from verax.apps.engine import AppEngine
from verax.audit.plan import Plan
from verax.audit.run.subject import StoppedError
from verax.audit.run.worker import Worker


def main(folder: Path, k: int) -> None:
    """Do the jobs of the plan in the folder that nobody else has claimed."""
    if hasattr(os, "sched_setaffinity"):
        # Frameworks make as many threads as they see cores; each worker has one of them.
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
        Worker(plan, AppEngine(plan, folder), folder, progress, stop).work(k)
    except StoppedError:
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
