"""What every peer's script shares: the arguments, the clock and the line it prints.

The measure is rounds per *CPU*-second: the CPU time of the whole process, all its threads
included. So a library gains nothing by quietly using a second core, and a busy machine costs less.
The clock starts after a warm-up, in which compilers, caches and workers get ready; everything
before it is `setup_seconds`. Five rounds of it, or fewer where a round takes seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from work import Array

_STARTED = time.perf_counter()


@dataclass(frozen=True)
class Task:
    """One measurement: what to train, how, with how many clients, and for how long."""

    model: str
    protocol: str
    clients: int
    seconds: float
    rounds: int | None
    seed: int

    @property
    def warm_up(self) -> int:
        """Rounds before the clock starts: fewer where a round takes seconds, or minutes."""
        heavy = (self.model == "cnn") * ((self.clients > 10) + (self.protocol == "fedavg"))
        return (5, 2, 1)[heavy]

    def enough(self, rounds: int, seconds: float) -> bool:
        """Whether the measurement may stop after so many rounds and seconds."""
        return seconds >= self.seconds if self.rounds is None else rounds >= self.rounds


def parse_task(description: str | None) -> Task:
    from work import MODELS, PROTOCOLS

    parser = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    parser.add_argument("--model", choices=list(MODELS), default="mlp")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="fedsgd")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, help="so many rounds, instead of --seconds")
    parser.add_argument("--seed", type=int, default=0)
    return Task(**vars(parser.parse_args()))


@dataclass(frozen=True)
class Timing:
    """What the clocks said between start and stop."""

    rounds: int
    seconds: float
    cpu_seconds: float
    setup_seconds: float


class Stopwatch:
    """A wall clock and a CPU clock; the latter is a parameter for peers with many processes."""

    def __init__(self, cpu_clock: Callable[[], float] = time.process_time) -> None:
        self._cpu_clock = cpu_clock

    def start(self) -> None:
        self._cpu = self._cpu_clock()
        self._wall = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def stop(self, rounds: int) -> Timing:
        seconds = self.seconds()
        return Timing(rounds, seconds, self._cpu_clock() - self._cpu, self._wall - _STARTED)


def measure(
    task: Task, one_round: Callable[[], None], wait: Callable[[], object] = lambda: None
) -> Timing:
    """Run rounds until time is up; `wait` returns once all dispatched work is done."""
    for _ in range(task.warm_up):
        one_round()
    wait()
    stopwatch = Stopwatch()
    stopwatch.start()
    rounds = 0
    while not task.enough(rounds, stopwatch.seconds()):
        one_round()
        rounds += 1
    wait()
    return stopwatch.stop(rounds)


def peak_rss_mb() -> float:
    """Peak memory of this process (Linux counts it in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(
    peer: str,
    version: str,
    task: Task,
    timing: Timing,
    parameters: Mapping[str, Array],
    *,
    rss_mb: float,
    threads: int = 1,
) -> None:
    """Print the one line on stdout, but only for a peer whose model has learned something."""
    before, after = _losses(task, parameters)
    print(f"{peer}: loss {before:.4f} before, {after:.4f} after", file=sys.stderr)
    if not after < before:
        raise SystemExit(f"{peer}: not measured, because its model did not learn")
    line = {
        "peer": peer,
        "version": version,
        "model": task.model,
        "protocol": task.protocol,
        "clients": task.clients,
        "rounds": timing.rounds,
        "rounds_per_cpu_second": _four(timing.rounds / timing.cpu_seconds),
        "rounds_per_second": _four(timing.rounds / timing.seconds),
        "setup_seconds": round(timing.setup_seconds, 2),
        "peak_rss_mb": round(rss_mb, 1),
        "threads": threads,
    }
    print(json.dumps(line), flush=True)


def _four(value: float) -> float:
    """To four figures, however small: a round of many clients takes minutes."""
    return float(f"{value:.4g}")


def _losses(task: Task, parameters: Mapping[str, Array]) -> tuple[float, float]:
    import numpy as np
    from work import client_data, initial_parameters, loss

    some = [client_data(task.model, client, task.seed) for client in range(min(task.clients, 3))]
    x = np.concatenate([x[:100] for x, _ in some])
    y = np.concatenate([y[:100] for _, y in some])
    start = initial_parameters(task.model, task.seed)
    return loss(task.model, start, x, y), loss(task.model, parameters, x, y)
