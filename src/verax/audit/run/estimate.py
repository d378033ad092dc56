"""How long a plan will take on this machine, and how much memory, from a few measured rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from verax.audit.plan import Plan
from verax.audit.run.budget import memory_for_runs, needed
from verax.audit.run.execute import total_rounds
from verax.audit.run.runs import batch_width
from verax.learning import Behaviour, Protocol, Seeds, Simulator, Task

# How many segments of how many rounds are measured.
_SEGMENTS, _LENGTH = 3, 2


@dataclass(frozen=True)
class RunEstimate:
    """What a plan takes.

    Attributes:
        seconds: of wall time, after compiling.
        memory: bytes of all workers together.
        rounds: run-rounds in all.
        rate: run-rounds a second.
    """

    seconds: float
    memory: int
    rounds: int
    rate: float

    def __str__(self) -> str:
        minutes = self.seconds / 60
        long = f"{minutes:.0f} min" if minutes >= 2 else f"{self.seconds:.0f} s"
        return (
            f"about {long} ({self.rounds:,} run-rounds at {self.rate:.3g} a second) and "
            f"{self.memory / 2**30:.1f} GB"
        )


def rounds_per_second(plan: Plan, task: Task) -> float:
    """How many rounds with one gradient a client one process does, measured.

    The protocol's own aggregator, steps and noise are left out, so that figures on one task need
    only one measurement: gradients are what takes the time.
    """
    asked = plan.protocol
    protocol = Protocol(batch=asked.batch, participation=asked.participation)
    # The whole run's length, because that decides how the rounds are compiled.
    rounds = max(plan.rounds, (1 + _SEGMENTS) * _LENGTH)
    simulator = Simulator(task, protocol, rounds, _LENGTH, distances=plan.record.distances)

    def seconds(segments: int) -> float:
        begin = time.perf_counter()
        simulator.run(Seeds.of(0), [Behaviour()], until=segments * _LENGTH)
        return time.perf_counter() - begin

    seconds(1)  # compiles
    # The difference has no evaluation in it, which would outweigh a few rounds of a large model.
    least = seconds(1)
    return _SEGMENTS * _LENGTH / max(seconds(1 + _SEGMENTS) - least, 1e-6)


def estimate(plan: Plan, task: Task, workers: int, memory: int, pace: float) -> RunEstimate:
    """Estimate time and memory from the measured pace.

    Args:
        plan: what to run.
        task: on what.
        workers: how many run at a time.
        memory: bytes that all may use together.
        pace: of `rounds_per_second`; how much workers gain on each other is not known before.
    """
    sizes = np.array([len(batch[0]) for batch in task.train])
    rate = pace / float(np.max(plan.protocol.make().steps_of(sizes)))
    clients, parameters = task.clients, task.parameters
    width = batch_width(clients, parameters, memory_for_runs(memory, workers))
    data = 2 * sum(a.nbytes for part in (task.train, task.test) for b in part for a in b)
    total = total_rounds(plan)
    return RunEstimate(
        total / rate, needed(clients, parameters, workers, width) + workers * data, total, rate
    )
