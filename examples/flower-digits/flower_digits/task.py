"""The task: verax's embedded digits, trained as its simulator trains them, batch for batch."""

from functools import lru_cache

import jax
import numpy as np
from flwr.app import Array, ArrayRecord

from verax.learning import Protocol, Seeds, Task
from verax.learning.batches import batch_indices
from verax.tasks import digits


@lru_cache(maxsize=4)
def load(model: str, clients: int) -> Task:
    """The digits, split among the clients; a run's seed does not change who holds which data."""
    return digits(clients, model)


def protocol_of(config) -> Protocol:
    """How the federation trains, from the run's configuration."""
    return Protocol(
        "fedavg",
        step=float(config["step"]),
        batch=int(config["batch"]),
        local_steps=int(config["local-steps"]),
    )


def initial(task: Task, seed: int) -> ArrayRecord:
    """The model that a run begins with."""
    return to_record(task.init(jax.random.key(Seeds.of(seed).init)))


def to_record(params) -> ArrayRecord:
    """Parameters as a record; Flower accepts NumPy arrays, not JAX arrays."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return ArrayRecord({jax.tree_util.keystr(path): Array(np.asarray(a)) for path, a in leaves})


def from_record(task: Task, record: ArrayRecord):
    """Parameters from a record that Flower received."""
    shape = jax.eval_shape(task.init, jax.random.key(0))
    paths, tree = jax.tree_util.tree_flatten_with_path(shape)
    return tree.unflatten([record[jax.tree_util.keystr(path)].numpy() for path, _ in paths])


@lru_cache(maxsize=4)
def _gradient(task: Task):
    return jax.jit(jax.value_and_grad(task.loss))


@lru_cache(maxsize=4)
def _test(task: Task):
    return jax.jit(lambda params, batch: (task.loss(params, batch), task.accuracy(params, batch)))


def train(task: Task, client: int, params, protocol: Protocol, round_: int, seed: int):
    """A client's local steps in a round, on the same samples as in the simulator."""
    sizes = np.array([len(batch[0]) for batch in task.train])
    steps, batch = protocol.local_steps, protocol.batch
    rows = batch_indices(sizes, Seeds.of(seed).batches, round_ - 1, 1, steps, batch)[0, client]
    first = None
    for own in rows:
        samples = tuple(array[own] for array in task.train[client])
        loss, gradient = _gradient(task)(params, samples)
        params = jax.tree.map(
            lambda p, g: p - np.asarray(protocol.step, p.dtype) * g, params, gradient
        )
        first = float(loss) if first is None else first
    return params, first


def evaluate(task: Task, client: int, params) -> tuple[float, float]:
    """A client's test loss and accuracy."""
    loss, accuracy = _test(task)(params, task.test[client])
    return float(loss), float(accuracy)
