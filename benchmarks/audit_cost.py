"""What an audit costs beside its arithmetic: the CPU time of the default audit, all of it.

The arithmetic is the run-rounds of the list and of the search at the rate of a batch of runs of one
seed on one core, without compiling. The audit is the command as a user gives it: starting three
processes, compiling, running, judging, searching, drawing. First with nothing compiled before, then
again into another folder with the compiled programs kept, and once more without the search.

    python benchmarks/audit_cost.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from verax.audit import Plan
from verax.audit.plan.task import task_of
from verax.audit.run.execute import total_rounds
from verax.audit.run.runs import batch_width
from verax.audit.run.simulated import TaskSubject
from verax.audit.search import search_rounds
from verax.learning import Behaviour, Seeds, Simulator


def arithmetic(plan: Plan) -> tuple[float, float]:
    """CPU seconds of the list's runs and of the search's, from one batch compiled before."""
    task = task_of(plan)
    simulator = Simulator(task, plan.protocol.make(), plan.rounds)
    width = batch_width(task.clients, simulator.parameters, 2**30)
    runs = [Behaviour()] * width
    simulator.run(Seeds.of(0), runs, until=simulator.segment)
    begin = time.process_time()
    simulator.run(Seeds.of(0), runs)
    pace = (time.process_time() - begin) / (width * plan.rounds)
    searched = search_rounds(plan, TaskSubject(task).work(plan))
    return total_rounds(plan) * pace, searched * pace


def audited(folder: Path, cache: Path, *options: str) -> float:
    """CPU seconds of `verax audit`, its workers included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    verax = Path(sys.executable).with_name("verax")
    command = [verax, "audit", "--out", folder, *options]
    environment = os.environ | {"VERAX_CACHE": str(cache)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = folder / "cache"
        first, again = (audited(folder / part, cache) for part in ("a", "b"))
        alone = audited(folder / "c", cache, "--search", "off")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tried, searched = arithmetic(Plan())
    both = tried + searched
    print(f"arithmetic of the list {tried:.1f} CPU-s, of the search {searched:.1f} CPU-s")
    print(f"the audit, nothing compiled      {first:6.1f} CPU-s  {first / both:.2f} × of both")
    print(f"the audit, programs kept         {again:6.1f} CPU-s  {again / both:.2f} × of both")
    print(f"the same without the search      {alone:6.1f} CPU-s  {alone / tried:.2f} × of the list")


if __name__ == "__main__":
    main()
