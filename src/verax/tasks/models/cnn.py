"""The convolutional network of the paper's FEMNIST experiment, for 28 × 28 grey images.

    conv 5×5 → 32, ReLU, 2×2 max-pool, conv 5×5 → 64, ReLU, 2×2 max-pool, linear → hidden, ReLU,
    linear → classes; both convolutions padded to keep the size, so that 7 · 7 · 64 = 3136 remain.

On a CPU a convolution is written as a matrix product: rows are the 5×5 patches around each pixel,
columns the filters. Patches take 25 times the image's memory, so few samples at a time have theirs
made and used while they are in the cache, and made again on the way back. On other devices it is
`jax.lax.conv_general_dilated`, and its derivative JAX's own.

At ties the pooling's gradient goes to the first maximum in its window, as in PyTorch. Bias and ReLU
come after pooling, which gives the same numbers as before it and less to do. A grey image repeated
in three channels meets the sum of the filter over its channels.

Weights are laid out as PyTorch's, (out, in, height, width) and (out, in), and initialised as there:
weights and biases uniform in ±1/√fan-in. Only the 3136 features are in another order, (row, column,
filter) instead of (filter, row, column).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from verax.learning.outer import Outer
from verax.tasks.models.model import Model
from verax.tasks.models.start import uniform

__all__ = ["cnn"]

Array = jax.Array

SIDE, FILTER, PAD = 28, 5, 2
FIRST, SECOND = 32, 64
FEATURES = (SIDE // 4) ** 2 * SECOND

# Samples (per client) whose patches are made at a time: 0.6 MB each in the second layer.
_PART = 1


def cnn(classes: int = 62, channels: int = 1, hidden: int = 2048) -> Model:
    """Samples are (batch, 28, 28) or (batch, 784): uint8, taken as /255, or floats.

    Args:
        classes: the labels.
        channels: 3 repeats the grey image in each, as the paper's text has it.
        hidden: width of the layer before the last.
    """
    shapes = {
        "conv1": (FIRST, channels, FILTER, FILTER),
        "conv2": (SECOND, FIRST, FILTER, FILTER),
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
        images = _images(x, params["conv1"]["weight"].dtype)
        if jax.default_backend() == "cpu":
            features = _by_parts(lambda part: _features(params, part), images).second
        else:
            features = _convolved(params, images)
        return _head(params, features.reshape(len(x), FEATURES))[1]

    def pullback(params: Any, x: Array) -> tuple[Array, Callable[[Array], Any]]:
        if jax.default_backend() != "cpu":
            found, pull = jax.vjp(lambda p: scores(p, x), params)
            return found, lambda slope: pull(slope)[0]
        images = _images(x, params["conv1"]["weight"].dtype)
        trail = _by_parts(lambda part: _features(params, part), images)
        features = trail.second.reshape(len(x), FEATURES)
        inner, found = _head(params, features)

        def pull_back(slope: Array) -> Any:
            back = jnp.where(inner > 0, slope @ params["linear2"]["weight"], 0.0)
            ends = back @ params["linear1"]["weight"]
            return {
                **_filter_slopes(params, images, trail, ends),
                "linear1": {"weight": Outer(back, features), "bias": jnp.sum(back, axis=0)},
                "linear2": {"weight": Outer(slope, inner), "bias": jnp.sum(slope, axis=0)},
            }

        return found, pull_back

    return Model(init, scores, pullback=pullback)


class _Trail(NamedTuple):
    """The outputs of both pools after ReLU, (…, side, side, filters), and where each came from."""

    first: Array
    first_place: Array
    second: Array
    second_place: Array


def _images(x: Array, dtype: Any) -> Array:
    if x.dtype == jnp.uint8:
        x = x.astype(dtype) / 255
    return x.reshape(-1, SIDE, SIDE).astype(dtype)


def _head(params: Any, features: Array) -> tuple[Array, Array]:
    inner = features @ params["linear1"]["weight"].T + params["linear1"]["bias"]
    inner = jax.nn.relu(inner)
    return inner, inner @ params["linear2"]["weight"].T + params["linear2"]["bias"]


def _parts(x: Array) -> Array:
    """(samples, …) → (parts, samples of a part, …)."""
    size = next(size for size in range(_PART, 0, -1) if len(x) % size == 0)
    return x.reshape(-1, size, *x.shape[1:])


def _by_parts(function: Callable[[Array], _Trail], images: Array) -> _Trail:
    return jax.lax.map(function, _parts(images))


def _features(params: Any, images: Array) -> _Trail:
    n = len(images)
    filters = jnp.sum(params["conv1"]["weight"], axis=1).reshape(FIRST, -1)
    z = (_columns(images).T @ filters.T).reshape(n, SIDE, SIDE, FIRST)
    most, first_place = _pool(z)
    first = jax.nn.relu(most + params["conv1"]["bias"])
    filters = params["conv2"]["weight"].transpose(2, 3, 1, 0).reshape(-1, SECOND)
    z = (_rows(first) @ filters).reshape(n, SIDE // 2, SIDE // 2, SECOND)
    most, second_place = _pool(z)
    return _Trail(first, first_place, jax.nn.relu(most + params["conv2"]["bias"]), second_place)


def _filter_slopes(params: Any, images: Array, trail: _Trail, ends: Array) -> dict[str, Any]:
    """Slopes in the filters and their biases, from `ends` in the features; part by part."""
    shapes = (FIRST, FILTER * FILTER), (FIRST,), (SECOND, FILTER * FILTER * FIRST), (SECOND,)
    start = tuple(jnp.zeros(shape, ends.dtype) for shape in shapes)

    def step(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, _part_slopes(params, *part)), None

    parts = (_parts(images), trail, ends.reshape(trail.second.shape))
    (first, first_bias, second, second_bias), _ = jax.lax.scan(step, start, parts)
    first = first.reshape(FIRST, 1, FILTER, FILTER)
    second = second.reshape(SECOND, FILTER, FILTER, FIRST).transpose(0, 3, 1, 2)
    return {
        "conv1": {
            "weight": jnp.broadcast_to(first, params["conv1"]["weight"].shape),
            "bias": first_bias,
        },
        "conv2": {"weight": second, "bias": second_bias},
    }


def _part_slopes(params: Any, images: Array, trail: _Trail, ends: Array) -> tuple[Array, ...]:
    ends = jnp.where(trail.second > 0, ends, 0.0)
    z = _unpooled(ends, trail.second_place)
    second = z.T @ _rows(trail.first)
    inner = jnp.where(trail.first > 0, _rows_pulled(params, z), 0.0)
    first = _unpooled(inner, trail.first_place).T @ _columns(images).T
    return first, jnp.sum(inner, axis=(0, 1, 2)), second, jnp.sum(ends, axis=(0, 1, 2))


def _columns(images: Array) -> Array:
    """Patches of (n, side, side) as columns, (25, n · side²): one channel, so by offset first."""
    padded = jnp.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD)))
    wide = jnp.stack([padded[:, :, j : j + SIDE] for j in range(FILTER)])
    return jnp.stack([wide[:, :, i : i + SIDE] for i in range(FILTER)]).reshape(FILTER**2, -1)


def _rows(maps: Array) -> Array:
    """Patches of (n, side, side, channels) as rows, (n · side², 25 · channels)."""
    side, channels = maps.shape[1], maps.shape[3]
    padded = jnp.pad(maps, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
    wide = jnp.concatenate([padded[:, :, j : j + side] for j in range(FILTER)], axis=-1)
    rows = jnp.concatenate([wide[:, i : i + side] for i in range(FILTER)], axis=-1)
    return rows.reshape(-1, FILTER**2 * channels)


def _rows_pulled(params: Any, z: Array) -> Array:
    """The slope in the second layer's input: every patch's slope added where it was taken from."""
    side = SIDE // 2
    filters = params["conv2"]["weight"].transpose(0, 2, 3, 1).reshape(SECOND, -1)
    patches = (z @ filters).reshape(-1, side, side, FILTER, FILTER * FIRST)
    rows = _overlapped([patches[:, :, :, i] for i in range(FILTER)], axis=1)
    rows = rows.reshape(-1, side, side, FILTER, FIRST)
    return _overlapped([rows[:, :, :, j] for j in range(FILTER)], axis=2)


def _overlapped(pieces: list[Array], axis: int) -> Array:
    """Σ_k pieces[k] moved by k − 2 along an axis; what falls outside belonged to the padding."""
    edges = [(0, 0)] * pieces[0].ndim
    edges[axis] = (PAD, PAD)
    size = pieces[0].shape[axis]
    total = jnp.zeros_like(pieces[0])
    for k, piece in enumerate(pieces):
        begin = 2 * PAD - k
        total += jax.lax.slice_in_dim(jnp.pad(piece, edges), begin, begin + size, axis=axis)
    return total


def _pool(z: Array) -> tuple[Array, Array]:
    """The largest of each 2×2 window of (n, side, side, filters) and its place, 0 to 3."""
    n, side, _, filters = z.shape
    z = z.reshape(n, side // 2, 2, side // 2, 2, filters)
    a, b, c, d = z[:, :, 0, :, 0], z[:, :, 0, :, 1], z[:, :, 1, :, 0], z[:, :, 1, :, 1]
    top, bottom = jnp.where(b > a, b, a), jnp.where(d > c, d, c)
    place = jnp.where(bottom > top, jnp.where(d > c, 3, 2), jnp.where(b > a, 1, 0))
    return jnp.where(bottom > top, bottom, top), place.astype(jnp.uint8)


def _unpooled(slope: Array, place: Array) -> Array:
    """The slope where the largest was, else zero, (n · side², filters)."""
    window = jnp.arange(4, dtype=jnp.uint8).reshape(2, 1, 2, 1)
    spread = jnp.where(place[:, :, None, :, None] == window, slope[:, :, None, :, None], 0.0)
    return spread.reshape(-1, slope.shape[-1])


def _convolved(params: Any, images: Array) -> Array:
    """The features by JAX's own convolution."""
    maps = images[..., None]
    for name in ("conv1", "conv2"):
        filters = params[name]["weight"].transpose(2, 3, 1, 0)
        if name == "conv1":
            filters = jnp.sum(filters, axis=2, keepdims=True)
        z = jax.lax.conv_general_dilated(
            maps, filters, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        most, _ = _pool(z)
        maps = jax.nn.relu(most + params[name]["bias"])
    return maps
