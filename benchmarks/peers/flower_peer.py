"""Peer: Flower's simulation runtime, on Ray.

Used as its documentation says: the Message API, the FedAvg strategy without federated evaluation,
PyTorch in the clients. FedSGD is FedAvg with one local step: the mean of the clients' models is
then the server's step. `run_simulation` is announced to go in favour of `flwr run`, which starts
the very same engine (in-memory grid, Ray workers) behind a SuperLink; here one process is simpler
to measure.

Clients run in Ray's workers, beside Ray's own daemons, so CPU time is summed over this process and
all its living descendants, each with its dead children. It is read twice, around the measured
rounds; Ray keeps its processes for the whole run, so none is missed. (`RUSAGE_CHILDREN` would
include the start-up.) Memory is the sum of proportional set sizes, in which shared pages count
once, at the end of the measured rounds. Flower waits in steps of 0.1 s for messages: its rounds
per second are therefore few even where its CPU is idle.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import flower_client
import psutil
import torch_model
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from harness import Stopwatch, parse_task, report

if TYPE_CHECKING:
    from collections.abc import Iterable

# Flower's default on two cores (two to a client); a second worker took more CPU a round, not less.
WORKERS = 1


class StrictFedAvg(FedAvg):
    """FedAvg that gives up when a client fails: a round with fewer clients would look faster."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        reasons = [reply.error.reason for reply in replies if reply.has_error()]
        if reasons or len(replies) < self.min_train_nodes:
            answered = len(replies) - len(reasons)
            raise RuntimeError(f"only {answered} of {self.min_train_nodes} trained: {reasons[:1]}")
        return super().aggregate_train(server_round, replies)


def family() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def cpu_seconds() -> float:
    return sum(sum(process.cpu_times()[:4]) for process in family())


def memory_mb() -> float:
    return sum(process.memory_full_info().pss for process in family()) / 2**20


def main() -> None:
    task = parse_task(__doc__)
    server = ServerApp()
    results = []

    @server.main()
    def run(grid: Grid, _context: Context) -> None:
        # Nodes register while the server starts: wait for all, and never train fewer.
        strategy = StrictFedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=task.clients,
            min_available_nodes=task.clients,
        )
        config = {"model": task.model, "protocol": task.protocol, "seed": task.seed}
        arrays = ArrayRecord(torch_model.build(task.model, task.seed).state_dict())

        def rounds(number: int) -> None:
            nonlocal arrays
            arrays = strategy.start(
                grid, arrays, num_rounds=number, train_config=ConfigRecord(config)
            ).arrays

        trial = Stopwatch()
        trial.start()
        rounds(1)  # starts the workers
        if task.warm_up > 1:
            trial.start()
            rounds(task.warm_up - 1)
        pace = max(task.warm_up - 1, 1) / trial.seconds()
        number = task.rounds or max(1, round(task.seconds * pace))
        stopwatch = Stopwatch(cpu_seconds)
        stopwatch.start()
        rounds(number)
        timing = stopwatch.stop(number)
        state = {k: v.numpy() for k, v in arrays.to_torch_state_dict().items()}
        results.append((timing, memory_mb(), state))

    run_simulation(
        server,
        flower_client.app,
        num_supernodes=task.clients,
        backend_config={
            "init_args": {"num_cpus": WORKERS, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    timing, rss_mb, state = results[0]
    report("flower", version("flwr"), task, timing, state, rss_mb=rss_mb, threads=WORKERS)


if __name__ == "__main__":
    main()
