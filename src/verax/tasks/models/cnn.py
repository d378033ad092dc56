"""The convolutional network of the paper's FEMNIST experiment, for 28 × 28 grey images.

    conv 5×5 → 32, ReLU, 2×2 max-pool, conv 5×5 → 64, ReLU, 2×2 max-pool, linear → hidden, ReLU,
    linear → classes

Both convolutions are padded to keep the image's size, so that 7 · 7 · 64 = 3136 features remain.

Weights have PyTorch's shapes, (out, in, height, width) and (out, in), and PyTorch's initialisation:
weights and biases are uniform in ±1/√fan-in. Only the order of the 3136 features differs: it is
(row, column, filter) instead of (filter, row, column).

On a CPU the convolutional layers are those of `cnn_on_cpu.py`: training and evaluation are then
some twenty times as fast.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from verax.tasks.models.cnn_on_cpu import features_on_cpu
from verax.tasks.models.model import Model
from verax.tasks.models.start import uniform

Array = jax.Array

SIDE = 28
FEATURES = (SIDE // 4) ** 2 * 64


def cnn(classes: int = 62, channels: int = 1, hidden: int = 2048) -> Model:
    """Samples are (batch, 28, 28) or (batch, 784): uint8, which is divided by 255, or floats.

    Args:
        classes: the number of labels.
        channels: 3 repeats the grey image in each channel, as the paper's text has it.
        hidden: width of the layer before the last.
    """
    shapes = {
        "conv1": (32, channels, 5, 5),
        "conv2": (64, 32, 5, 5),
        "linear1": (hidden, FEATURES),
        "linear2": (classes, hidden),
    }

    def init(key: Array) -> dict[str, Any]:
        leaves = [
            (part, int(np.prod(shape[1:])))
            for shape in shapes.values()
            for part in (shape, shape[:1])
        ]
        drawn = uniform(key, leaves)
        return {
            name: {"weight": weight, "bias": bias}
            for name, weight, bias in zip(shapes, drawn[::2], drawn[1::2], strict=True)
        }

    def scores(params: Any, x: Array) -> Array:
        return _linear_layers(params, features(params, _images(x, params)))

    def fast_scores(params: Any, x: Array) -> Array:
        filters = {name: params[name] for name in ("conv1", "conv2")}
        return _linear_layers(params, features_on_cpu(filters, _images(x, params)))

    return Model(init, scores, fast_scores=fast_scores, fast_evaluation=True, factored=True)


def features(params: Any, images: Array) -> Array:
    """The outputs of the convolutional layers, (samples, 7, 7, 64), for images of 28 × 28."""
    channels = params["conv1"]["weight"].shape[1]
    x = jnp.repeat(images[..., None], channels, axis=-1)
    for name in ("conv1", "conv2"):
        x = _convolution(x, params[name]["weight"]) + params[name]["bias"]
        x = _max_pool(jax.nn.relu(x))
    return x


def _linear_layers(params: Any, x: Array) -> Array:
    x = x.reshape(len(x), FEATURES)
    x = jax.nn.relu(x @ params["linear1"]["weight"].T + params["linear1"]["bias"])
    return x @ params["linear2"]["weight"].T + params["linear2"]["bias"]


def _images(x: Array, params: Any) -> Array:
    dtype = params["conv1"]["bias"].dtype
    if x.dtype == jnp.uint8:
        x = x.astype(dtype) / 255
    return x.reshape(-1, SIDE, SIDE).astype(dtype)


def _convolution(x: Array, weight: Array) -> Array:
    return jax.lax.conv_general_dilated(
        x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC")
    )


def _max_pool(x: Array) -> Array:
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), padding="VALID"
    )
