"""How long a plan will take on this machine, and how much memory, from a few measured rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass

from verax.audit.plan import Plan
from verax.audit.room import needed, share
from verax.audit.run import total_rounds
from verax.audit.work import batch_width
from verax.learning import Protocol, Seeds, Simulator, Task, honest

__all__ = ["Estimate", "estimate", "rounds_per_second"]

_MEASURED = 2  # rounds


@dataclass(frozen=True)
class Estimate:
    """What a plan takes.

    Attributes:
        seconds: of wall time, after compiling.
        memory: bytes of all workers together.
        rounds: run-rounds in all, derivatives counted by their tangents.
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
    rounds = min(_MEASURED, plan.rounds)
    protocol = Protocol(step=plan.step, batch=plan.batch, participation=plan.participation)
    simulator = Simulator(task, protocol, rounds, distances=plan.distances)
    runs = [[honest(rounds)] * task.clients]
    simulator.run(Seeds.of(0), runs)  # compiles
    clock = time.perf_counter()
    simulator.run(Seeds.of(0), runs)
    return rounds / (time.perf_counter() - clock)


def estimate(plan: Plan, task: Task, workers: int, memory: int, pace: float) -> Estimate:
    """Reckon from the measured pace.

    Args:
        plan: what to run.
        task: on what.
        workers: how many run at a time.
        memory: bytes that all may use together.
        pace: of `rounds_per_second`; how much workers gain on each other is not known before.
    """
    simulator = Simulator(task, plan.make_protocol(), plan.rounds)
    rate = pace / plan.local_steps
    clients, parameters = task.clients, simulator.parameters
    width = batch_width(clients, parameters, share(memory, workers))
    data = 2 * sum(a.nbytes for part in (task.train, task.test) for b in part for a in b)
    room = needed(plan, clients, parameters, workers, width) + workers * data
    total = total_rounds(plan)
    return Estimate(total / rate, room, total, rate)
