"""Verax itself on the peers' work: per-client updates, Gram matrix and all, recorded every round.

A *round* is one round of one federation. An audit runs many federations that differ in what one
client reports, and Verax batches them; so does this script (`width` federations of one seed, as
wide as an audit would make it).
"""

from __future__ import annotations

import os

from harness import Stopwatch, one_thread, parse_task, peak_rss_mb, report

one_thread()
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA makes one thread per core it sees

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import work  # noqa: E402

from verax import __version__  # noqa: E402
from verax.audit.work import batch_width  # noqa: E402
from verax.learning import Protocol, Seeds, Simulator, State, Task, honest  # noqa: E402

SEGMENT = 50


def build(model: str, clients: int, seed: int) -> Task:
    """The shared work as a task of Verax."""
    shape = work.MODELS[model]
    start = {
        name: jnp.asarray(value) for name, value in work.initial_parameters(model, seed).items()
    }
    layers = list(shape.shapes)

    def loss(params, batch):
        x, y = batch
        for layer in layers:
            x = x @ params[f"{layer}.weight"].T + params[f"{layer}.bias"]
            x = jax.nn.relu(x) if layer != layers[-1] else x
        own = jnp.take_along_axis(x, y[:, None], axis=-1)[:, 0]
        value = jnp.mean(jax.nn.logsumexp(x, axis=-1) - own)
        if shape.l2:
            value += shape.l2 / 2 * sum(jnp.sum(p**2) for p in params.values())
        return value

    data = [work.client_data(model, client, seed) for client in range(clients)]
    pairs = [(x.reshape(len(x), -1), y.astype(np.int32)) for x, y in data]
    return Task("work", pairs, [(x[:1], y[:1]) for x, y in pairs], lambda key: start, loss)


def main() -> None:
    task = parse_task(__doc__)
    if task.model == "cnn":
        raise SystemExit("verax: not measured, because it has no convolution yet")
    fedavg = task.protocol == "fedavg"
    steps = -(-work.SAMPLES // work.BATCH) if fedavg else 1
    protocol = Protocol(task.protocol, work.LEARNING_RATE, work.BATCH, steps)
    length = 4 if fedavg or task.clients > 10 else SEGMENT
    rounds = 1000 * length  # more than the seconds allow; levels are laid out over all of them
    simulator = Simulator(build(task.model, task.clients, task.seed), protocol, rounds, length)
    width = batch_width(task.clients, simulator.parameters, 2**31)
    runs = [[honest(rounds)] * task.clients] * width
    seeds, stopwatch = Seeds.of(task.seed), Stopwatch()
    segments = 0

    class TimeUp(Exception):  # noqa: N818 - it carries the result
        pass

    def after(state: State, records: list[object], just_done: int) -> None:
        nonlocal segments
        segments += 1
        records.clear()  # a real run writes them down; here they would only fill the memory
        if segments == 1:  # the first segment compiled
            jax.block_until_ready(state.params)
            stopwatch.start()
        elif task.enough((segments - 1) * length * width, stopwatch.seconds()):
            raise TimeUp(state)

    try:
        simulator.run(seeds, runs, after_segment=after)
        raise SystemExit(f"verax: not measured, because {rounds} rounds took less than the time")
    except TimeUp as up:
        state = up.args[0]
    timing = stopwatch.stop((segments - 1) * length * width)
    parameters = {name: np.asarray(leaf[0]) for name, leaf in state.params.items()}
    report("verax", __version__, task, timing, parameters, rss_mb=peak_rss_mb())


if __name__ == "__main__":
    main()
