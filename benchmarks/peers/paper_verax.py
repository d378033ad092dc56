"""Verax on the paper's models: FedSGD in the simulator, every client's update and Gram matrix.

A *round* is one round of one federation; `--runs` federations are computed at once.
"""

from __future__ import annotations

import argparse
import json

import jax
import numpy as np
from harness import Stopwatch, peak_rss_mb
from paper_work import CLIENTS, EXPERIMENTS, client_data

from verax.learning import Behaviour, Protocol, Seeds, Simulator, Task, TrainingState
from verax.tasks.models import cnn, lstm, perceptron

MODELS = {"cnn": cnn, "lstm": lstm, "head": lambda: perceptron((768, 384, 2), start="uniform")}
SEGMENT = {"cnn": 10, "lstm": 4, "head": 50}


class TimeUp(Exception):  # noqa: N818 - it carries the result
    """The measurement is over; the state is its argument."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(EXPERIMENTS), required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    work, model = EXPERIMENTS[options.model], MODELS[options.model]()
    data = [client_data(options.model, client) for client in range(CLIENTS)]
    pairs = [(x, y.astype(np.int32)) for x, y in data]
    few = [(x[:64], y[:64]) for x, y in pairs]
    task = Task(
        options.model,
        pairs,
        few,
        model.init,
        model.loss,
        model.accuracy,
        fast_gradient=model.gradient,
    )
    length = SEGMENT[options.model]
    rounds = 1000 * length
    simulator = Simulator(task, Protocol(step=work.step, batch=work.batch), rounds, length)
    stopwatch, segments = Stopwatch(), 0

    def after(state: TrainingState, records: list[object], just_done: int) -> None:
        nonlocal segments
        jax.block_until_ready(state.params)
        records.clear()  # a real run writes them down
        segments += 1
        if segments == 1:  # which compiled
            stopwatch.start()
        elif stopwatch.seconds() > options.seconds:
            raise TimeUp(stopwatch.stop((segments - 1) * length * options.runs), state)

    seeds = Seeds.of(0)
    try:
        simulator.run(seeds, [Behaviour()] * options.runs, after_segment=after)
        raise SystemExit(f"{rounds} rounds took less than {options.seconds} s")
    except TimeUp as up:
        timing, state = up.args
    memory = peak_rss_mb()
    losses = (simulator.evaluate(at).loss.mean() for at in (simulator.start(seeds), state))
    line = {
        "rate": timing.rounds / timing.cpu_seconds,
        "setup": timing.setup_seconds,
        "memory_mb": memory,
        "loss": [float(value) for value in losses],
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
