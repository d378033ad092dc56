"""Verax itself on the peers' work: per-client updates, Gram matrix and all, recorded every round.

A *round* is one round of one federation. An audit runs many federations that differ in what one
client reports, and Verax batches them; so does this script (`width` federations of one seed, as
wide as an audit would make it).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import work
from harness import Stopwatch, parse_task, peak_rss_mb, report

from verax import __version__
from verax.audit.run.runs import batch_width
from verax.learning import Behaviour, Protocol, Seeds, Simulator, Task, TrainingState
from verax.tasks.models import cnn, perceptron

SEGMENT = 50


def build(model: str, clients: int, seed: int) -> Task:
    """The shared work as a task of Verax, from the shared starting point."""
    shape = work.MODELS[model]
    start = to_verax(model, work.initial_parameters(model, seed))
    network = cnn(shape.classes) if model == "cnn" else perceptron(_sizes(shape), l2=shape.l2)
    data = [work.client_data(model, client, seed) for client in range(clients)]
    pairs = [(x.reshape(len(x), -1), y.astype(np.int32)) for x, y in data]
    tests = [(x[:1], y[:1]) for x, y in pairs]
    gradient = network.gradient
    return Task("work", pairs, tests, lambda key: start, network.loss, fast_gradient=gradient)


def to_verax(model: str, parameters: work.Parameters) -> Any:
    """Verax keeps a perceptron's weights (in, out), and an image's features filter by filter."""
    layers = {
        name: {
            "weight": jnp.asarray(parameters[f"{name}.weight"]),
            "bias": jnp.asarray(parameters[f"{name}.bias"]),
        }
        for name in work.MODELS[model].shapes
    }
    if model == "cnn":
        layers["linear1"]["weight"] = layers["linear1"]["weight"][:, _ORDER]
        return layers
    return [{"weight": layer["weight"].T, "bias": layer["bias"]} for layer in layers.values()]


def from_verax(model: str, params: Any) -> work.Parameters:
    """The way back."""
    names = list(work.MODELS[model].shapes)
    parameters: work.Parameters = {}
    for k, name in enumerate(names):
        layer = params[name] if model == "cnn" else params[k]
        weight = np.asarray(layer["weight"])
        if model == "cnn" and name == "linear1":
            weight = weight[:, np.argsort(_ORDER)]
        parameters[f"{name}.weight"] = weight if model == "cnn" else weight.T
        parameters[f"{name}.bias"] = np.asarray(layer["bias"])
    return parameters


def _sizes(shape: work.Model) -> tuple[int, ...]:
    matrices = list(shape.shapes.values())
    return (matrices[0][1], *(matrix[0] for matrix in matrices))


# Where PyTorch's (filter, row, column) of a feature stands in Verax's (row, column, filter).
_ORDER = np.arange(64 * 49).reshape(64, 49).T.ravel()


def main() -> None:
    task = parse_task(__doc__)
    fedavg = task.protocol == "fedavg"
    steps = -(-work.SAMPLES // work.BATCH) if fedavg else 1
    protocol = Protocol(task.protocol, work.LEARNING_RATE, work.BATCH, steps)
    length = max(1, task.warm_up - 1) if fedavg or task.clients > 10 else SEGMENT
    rounds = 1000 * length  # more than the seconds allow; scales are laid out over all of them
    simulator = Simulator(build(task.model, task.clients, task.seed), protocol, rounds, length)
    width = batch_width(task.clients, simulator.parameters, 2**31)
    runs = [Behaviour()] * width
    seeds, stopwatch = Seeds.of(task.seed), Stopwatch()
    segments = 0

    class TimeUp(Exception):  # noqa: N818 - it carries the result
        pass

    def after(state: TrainingState, records: list[object], just_done: int) -> None:
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
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[0], state.params)
    parameters = from_verax(task.model, first)
    report("verax", __version__, task, timing, parameters, rss_mb=peak_rss_mb())


if __name__ == "__main__":
    main()
