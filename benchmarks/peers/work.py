"""The work that every peer does: models, data and protocols, in NumPy and nothing else.

A comparison of speed means something only if everybody computes the same thing. So the shapes,
the starting point, the data and the step sizes are written down once, here, and each peer turns
them into its own kind of model. `loss` is a plain reference that tells, after a run, whether a
peer really trained.

* `fedsgd`: each round, every client takes the gradient of one fresh random batch of 32; the server
  steps by 0.06 times their mean.
* `fedavg`: each round, every client takes one epoch over its 600 samples, freshly shuffled, in
  19 batches of 32 at rate 0.06; the server takes the mean of the clients' models. The last batch
  holds the remaining 24 samples; a peer that fills it up to 32 may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float32]"
Parameters: TypeAlias = "dict[str, Array]"

SAMPLES = 600
BATCH = 32
LEARNING_RATE = 0.06
PROTOCOLS = ("fedsgd", "fedavg")
LABEL_NOISE = 0.2


@dataclass(frozen=True)
class Model:
    """What a model takes and gives; `l2` adds l2/2 ‖θ‖² over all its parameters to the loss.

    Linear weights are (out, in) and convolutions (out, in, height, width), as in PyTorch.
    """

    inputs: tuple[int, ...]
    classes: int
    shapes: Mapping[str, tuple[int, ...]]
    l2: float = 0.0


MODELS = {
    "softmax": Model((64,), 10, {"linear1": (10, 64)}, l2=1e-4),
    "mlp": Model((784,), 10, {"linear1": (128, 784), "linear2": (10, 128)}),
    "cnn": Model(
        (1, 28, 28),
        62,
        {
            "conv1": (32, 1, 5, 5),
            "conv2": (64, 32, 5, 5),
            "linear1": (2048, 3136),
            "linear2": (62, 2048),
        },
    ),
}


def initial_parameters(model: str, seed: int) -> Parameters:
    """Weights and biases, uniform in ±1/√fan-in: the same starting point for every peer."""
    random = np.random.default_rng((seed, 0))
    parameters: Parameters = {}
    for layer, shape in MODELS[model].shapes.items():
        bound = np.prod(shape[1:]) ** -0.5
        parameters[f"{layer}.weight"] = random.uniform(-bound, bound, shape).astype(np.float32)
        parameters[f"{layer}.bias"] = random.uniform(-bound, bound, shape[0]).astype(np.float32)
    return parameters


def client_data(model: str, client: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """One client's 600 samples: a noisy picture of its class, and the class.

    A fifth of the labels is random. Without that, a fast peer would reach a loss of zero, and the
    denormal numbers there could slow it down.
    """
    inputs, classes = MODELS[model].inputs, MODELS[model].classes
    prototypes = np.random.default_rng((seed, 1)).standard_normal((classes, *inputs))
    random = np.random.default_rng((seed, 2, client))
    labels = random.integers(classes, size=SAMPLES)
    x = 0.5 * prototypes[labels] + random.standard_normal((SAMPLES, *inputs))
    noisy = random.random(SAMPLES) < LABEL_NOISE
    return x.astype(np.float32), np.where(noisy, random.integers(classes, size=SAMPLES), labels)


def loss(model: str, parameters: Mapping[str, Array], x: Array, y: NDArray[np.int64]) -> float:
    """Mean cross-entropy and L2 term, computed slowly and plainly."""
    hidden = x
    layers = list(MODELS[model].shapes)
    for layer in layers:
        weight, bias = parameters[f"{layer}.weight"], parameters[f"{layer}.bias"]
        if weight.ndim == 4:
            hidden = _pool(np.maximum(_convolve(hidden, weight, bias), 0))
        else:
            hidden = hidden.reshape(len(hidden), -1) @ weight.T + bias
            if layer != layers[-1]:
                hidden = np.maximum(hidden, 0)
    shifted = hidden - hidden.max(axis=1, keepdims=True)
    log_partition = np.log(np.exp(shifted).sum(axis=1))
    squares = sum(float(np.square(p).sum()) for p in parameters.values())
    cross_entropy = np.mean(log_partition - shifted[np.arange(len(y)), y])
    return float(cross_entropy) + MODELS[model].l2 / 2 * squares


def _convolve(x: Array, weight: Array, bias: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True) + bias[:, None, None]


def _pool(x: Array) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
