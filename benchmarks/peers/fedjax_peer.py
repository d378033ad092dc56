"""Peer: FedJAX, beside versions of JAX that it works with.

Used as its documentation says: an in-memory federated data set, a client sampler that draws every
client each round, and `fedjax.algorithms.fed_avg`, which maps over clients with `for_each_client`
(one compiled step per batch, client after client). FedSGD is FedAvg with one batch. FedJAX fills
the last batch of an epoch up to 32.

The model is written in `jax.numpy`, linear weights (in, out), as is usual there. Images keep their
channels first: channels last made no difference on a CPU.
"""

from __future__ import annotations

from importlib.metadata import version

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from harness import measure, parse_task, peak_rss_mb, report
from work import (
    BATCH,
    LEARNING_RATE,
    MODELS,
    Array,
    Parameters,
    client_data,
    initial_parameters,
)


def flipped(parameters: Parameters) -> Parameters:
    """Between the work's linear weights (out, in) and JAX's (in, out), both ways."""
    return {name: p.T if p.ndim == 2 else p for name, p in parameters.items()}


def logits(model: str, parameters: Parameters, x: jax.Array) -> jax.Array:
    layers = list(MODELS[model].shapes)
    for layer in layers:
        weight, bias = parameters[f"{layer}.weight"], parameters[f"{layer}.bias"]
        if weight.ndim == 4:
            x = jax.lax.conv(x, weight, (1, 1), "SAME")
            x = jax.nn.relu(x + bias[:, None, None])
            window = (1, 1, 2, 2)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        else:
            x = x.reshape(len(x), -1) @ weight + bias
            x = x if layer == layers[-1] else jax.nn.relu(x)
    return x


def gradient(model: str) -> object:
    """FedJAX's gradient of the mean loss of a batch, with the work's L2 term."""

    def example_losses(parameters: Parameters, batch: dict[str, jax.Array], _key: object):
        log_p = jax.nn.log_softmax(logits(model, parameters, batch["x"]))
        return -jnp.take_along_axis(log_p, batch["y"][:, None], axis=1)[:, 0]

    def regularizer(parameters: Parameters) -> jax.Array:
        return MODELS[model].l2 / 2 * sum(jnp.sum(p**2) for p in parameters.values())

    return fedjax.grad(example_losses, regularizer if MODELS[model].l2 else None)


def main() -> None:
    task = parse_task(__doc__)

    def examples(client: int) -> dict[str, Array]:
        x, y = client_data(task.model, client, task.seed)
        return {"x": x, "y": y.astype(np.int32)}

    data = fedjax.InMemoryFederatedData({f"{c:05}": examples(c) for c in range(task.clients)})
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, task.clients, task.seed)
    one_batch = {"num_epochs": None, "num_steps": 1} if task.protocol == "fedsgd" else {}
    algorithm = fed_avg.federated_averaging(
        gradient(task.model),
        client_optimizer=fedjax.optimizers.sgd(LEARNING_RATE),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(BATCH, **one_batch),
    )
    start = flipped(initial_parameters(task.model, task.seed))
    state = algorithm.init(jax.tree_util.tree_map(jnp.asarray, start))

    def one_round() -> None:
        nonlocal state
        state, _ = algorithm.apply(state, sampler.sample())

    timing = measure(task, one_round, wait=lambda: jax.block_until_ready(state.params))
    trained = flipped({name: np.asarray(p) for name, p in state.params.items()})
    report("fedjax", version("fedjax"), task, timing, trained, rss_mb=peak_rss_mb())


if __name__ == "__main__":
    main()
