"""What an audit costs beside its arithmetic: the CPU time of the default audit, all of it.

The arithmetic is its run-rounds at the rate of a batch of runs of one seed on one core, without
compiling. The audit is the command as a user gives it: starting, compiling, running, judging,
drawing. First with nothing compiled before, then again into another folder with the compiled
programs kept. Required: ≤ 1.5 ×.

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
from verax.learning import Behaviour, Seeds, Simulator


def arithmetic(plan: Plan) -> float:
    """CPU seconds of all runs, from one batch that was compiled before."""
    task = task_of(plan)
    simulator = Simulator(task, plan.protocol.make(), plan.rounds)
    width = batch_width(task.clients, simulator.parameters, 2**30)
    runs = [Behaviour()] * width
    simulator.run(Seeds.of(0), runs, until=simulator.segment)
    begin = time.process_time()
    simulator.run(Seeds.of(0), runs)
    return total_rounds(plan) * (time.process_time() - begin) / (width * plan.rounds)


def audited(folder: Path, cache: Path) -> float:
    """CPU seconds of `verax audit`, its workers included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    verax = Path(sys.executable).with_name("verax")
    command = [verax, "audit", "--out", folder]
    environment = os.environ | {"VERAX_CACHE": str(cache)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, again = (audited(folder / part, folder / "cache") for part in ("a", "b"))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    whole = arithmetic(Plan())
    print(f"arithmetic of the default audit  {whole:6.1f} CPU-s")
    print(f"the audit, nothing compiled      {first:6.1f} CPU-s  {first / whole:.2f} × (limit 1.5)")
    print(f"the audit, programs kept         {again:6.1f} CPU-s  {again / whole:.2f} ×")


if __name__ == "__main__":
    main()
