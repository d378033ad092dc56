"""What an audit costs beside its arithmetic: the CPU time of the default audit, all of it.

The arithmetic is its run-rounds at the rate of a batch of runs of one seed on one core, without
compiling, and its derivatives at the rate of theirs. The audit is the command as a user gives it:
starting, compiling, running, judging, drawing. First with nothing compiled before, then again into
another folder with the compiled programs kept. Required: ≤ 1.5 ×.

    python benchmarks/audit_cost.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verax.audit import Plan
from verax.audit.run import task_of, total_rounds
from verax.audit.work import batch_width
from verax.learning import Differentiator, Seeds, Simulator, honest, tangent_rounds
from verax.mechanism import refined_blocks


def spent(call: Callable[[], Any]) -> float:
    """CPU seconds of the second of two calls: the first one compiles."""
    call()
    begin = time.process_time()
    call()
    return time.process_time() - begin


def arithmetic(plan: Plan) -> tuple[float, float]:
    """CPU seconds of all runs, and of all derivatives."""
    task = task_of(plan)
    simulator = Simulator(task, plan.make_protocol(), plan.rounds)
    width = batch_width(task.clients, simulator.parameters, 2**30)
    runs = [[honest(plan.rounds)] * task.clients] * width
    batch = spent(lambda: simulator.run(Seeds.of(0), runs))
    blocks = refined_blocks(plan.rounds, plan.per_halving)
    slopes = Differentiator(simulator, blocks, plan.make_reward(), plan.deviators)
    replica = spent(lambda: slopes(Seeds.of(0)))
    derived = plan.setting_seeds * tangent_rounds(blocks, len(plan.deviators))
    rounds = total_rounds(plan) - derived
    return rounds * batch / (width * plan.rounds), plan.setting_seeds * replica


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
    runs, derived = arithmetic(Plan())
    whole = runs + derived
    print(
        f"arithmetic of the default audit  {whole:6.1f} CPU-s ({runs:.1f} runs, {derived:.1f} R, J)"
    )
    print(f"the audit, nothing compiled      {first:6.1f} CPU-s  {first / whole:.2f} × (limit 1.5)")
    print(f"the audit, programs kept         {again:6.1f} CPU-s  {again / whole:.2f} ×")


if __name__ == "__main__":
    main()
