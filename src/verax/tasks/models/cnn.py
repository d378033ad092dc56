"""The convolutional network of the paper's FEMNIST experiment, for 28 × 28 grey images.

    conv 5×5 → 32, ReLU, 2×2 max-pool, conv 5×5 → 64, ReLU, 2×2 max-pool, linear → hidden, ReLU,
    linear → classes; both convolutions padded to keep the size, so that 7 · 7 · 64 = 3136 remain.

On a CPU the convolutions are matrix products: the first of the 5×5 patches around each pixel with
the filters, the second by Winograd's tiles (`winograd.py`), a third of the arithmetic; a tile's 2×2
outputs are a pool's window. Patches and tiles are made for a few samples at a time, client after
client, used while they are in the cache, and made again on the way back. On other devices it is
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
from verax.tasks.models.winograd import (
    PAD,
    TILE,
    filters_in,
    filters_out,
    outputs,
    outputs_back,
    tiles,
    tiles_back,
)

__all__ = ["cnn"]

Array = jax.Array

SIDE, FILTER = 28, 5
FIRST, SECOND = 32, 64
FEATURES = (SIDE // 4) ** 2 * SECOND

# Samples whose tiles are made at a time: 0.7 MB each in the second layer.
_PART = 4


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
            features = _trail(params, images).second
        else:
            features = _convolved(params, images)
        return _head(params, features.reshape(len(x), FEATURES))[1]

    def pullback(params: Any, x: Array) -> tuple[Array, Callable[[Array], Any]]:
        if jax.default_backend() != "cpu":
            found, pull = jax.vjp(lambda p: scores(p, x), params)
            return found, lambda slope: pull(slope)[0]
        filters = {name: params[name] for name in ("conv1", "conv2")}
        images = _images(x, params["conv1"]["weight"].dtype)
        trail = _one_by_one(_trail)(filters, images)
        features = trail.second.reshape(len(x), FEATURES)
        inner, found = _head(params, features)

        def pull_back(slope: Array) -> Any:
            back = jnp.where(inner > 0, slope @ params["linear2"]["weight"], 0.0)
            ends = (back @ params["linear1"]["weight"]).reshape(trail.second.shape)
            return {
                **_one_by_one(_filter_slopes)(filters, images, trail, ends),
                "linear1": {"weight": Outer(back, features), "bias": jnp.sum(back, axis=0)},
                "linear2": {"weight": Outer(slope, inner), "bias": jnp.sum(slope, axis=0)},
            }

        return found, pull_back

    return Model(init, scores, pullback=pullback)


class _Trail(NamedTuple):
    """The outputs of both pools after ReLU, (samples, side, side, filters).

    And which of its window, 0 to 3, each came from; as floats, for derivatives pass by them.
    """

    first: Array
    first_place: Array
    second: Array
    second_place: Array


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Under `jax.vmap` clients follow one another: together their tiles would not fit a cache."""

    @jax.custom_batching.custom_vmap
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    @call.def_vmap
    def _(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten(arguments)
        own = jax.tree.leaves(batched)
        if not any(own):  # but tangents are
            found = function(*arguments)
            return found, jax.tree.map(lambda _: False, found)

        def one(mapped: list[Array]) -> Any:
            rest = iter(mapped)
            return call(
                *tree.unflatten(
                    [next(rest) if has else leaf for leaf, has in zip(leaves, own, strict=True)]
                )
            )

        found = jax.lax.map(one, [leaf for leaf, has in zip(leaves, own, strict=True) if has])
        return found, jax.tree.map(lambda _: True, found)

    return call


def _images(x: Array, dtype: Any) -> Array:
    if x.dtype == jnp.uint8:
        x = x.astype(dtype) / 255
    return x.reshape(-1, SIDE, SIDE).astype(dtype)


def _head(params: Any, features: Array) -> tuple[Array, Array]:
    inner = features @ params["linear1"]["weight"].T + params["linear1"]["bias"]
    inner = jax.nn.relu(inner)
    return inner, inner @ params["linear2"]["weight"].T + params["linear2"]["bias"]


def _parts(tree: Any) -> Any:
    """(samples, …) → (parts, samples of a part, …)."""

    def split(x: Array) -> Array:
        size = next(size for size in range(_PART, 0, -1) if len(x) % size == 0)
        return x.reshape(-1, size, *x.shape[1:])

    return jax.tree.map(split, tree)


def _trail(filters: Any, images: Array) -> _Trail:
    second = filters_in(filters["conv2"]["weight"])

    def of_part(images: Array) -> _Trail:
        z = jnp.einsum("pwnxy,po->wnxyo", _columns(images), _grey(filters))
        first, first_place = _largest(*z)
        first = jax.nn.relu(first + filters["conv1"]["bias"])
        values = jnp.einsum("klnxyc,klco->klnxyo", tiles(first), second)
        most, second_place = _largest(*outputs(values))
        return _Trail(
            first, first_place, jax.nn.relu(most + filters["conv2"]["bias"]), second_place
        )

    parts = jax.lax.map(of_part, _parts(images))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts)


def _filter_slopes(filters: Any, images: Array, trail: _Trail, ends: Array) -> dict[str, Any]:
    """The slopes in the filters and their biases, from `ends` in the features."""
    weights = filters_in(filters["conv2"]["weight"])

    def of_part(images: Array, trail: _Trail, ends: Array) -> tuple[Array, ...]:
        ends = jnp.where(trail.second > 0, ends, 0.0)
        slopes = outputs_back(_unpooled(ends, trail.second_place))
        second = jnp.einsum(
            "kltc,klto->klco",
            tiles(trail.first).reshape(TILE, TILE, -1, FIRST),
            slopes.reshape(TILE, TILE, -1, SECOND),
        )
        inner = tiles_back(jnp.einsum("klnxyo,klco->klnxyc", slopes, weights))
        inner = jnp.where(trail.first > 0, inner, 0.0)
        z = _unpooled(inner, trail.first_place).reshape(-1, FIRST)
        first = _columns(images).reshape(FILTER**2, -1) @ z
        return first, second, *(jnp.sum(x, axis=(0, 1, 2)) for x in (inner, ends))

    def step(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_part(*part)), None

    shapes = ((FILTER**2, FIRST), (TILE, TILE, FIRST, SECOND), (FIRST,), (SECOND,))
    start = tuple(jnp.zeros(shape, ends.dtype) for shape in shapes)
    parts = _parts((images, trail, ends))
    (first, second, first_bias, second_bias), _ = jax.lax.scan(step, start, parts)
    first = first.T.reshape(FIRST, 1, FILTER, FILTER)
    shape = filters["conv1"]["weight"].shape
    return {
        "conv1": {"weight": jnp.broadcast_to(first, shape), "bias": first_bias},
        "conv2": {"weight": filters_out(second), "bias": second_bias},
    }


def _grey(filters: Any) -> Array:
    """The first layer's filters on a grey image, (25, filters)."""
    return jnp.sum(filters["conv1"]["weight"], axis=1).reshape(FIRST, -1).T


def _columns(images: Array) -> Array:
    """Patches of (samples, side, side), (25, 2·2, samples, side/2, side/2).

    Those at the same place of their pooling window stand together.
    """
    padded = jnp.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD)))

    def at(i: int, j: int) -> Array:
        return padded[:, i : i + SIDE : 2, j : j + SIDE : 2]

    # What all windows see at each place of their 6×6 tile, then the 5×5 of each of its four places.
    seen = jnp.stack([jnp.stack([at(i, j) for j in range(TILE)]) for i in range(TILE)])
    places = [seen[a : a + FILTER, b : b + FILTER] for a in range(2) for b in range(2)]
    return jnp.stack(places, axis=2).reshape(FILTER**2, 4, *seen.shape[2:])


def _largest(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """The largest of each 2×2 window and its place; the first, if some are equal."""
    upper, lower = jnp.where(b > a, b, a), jnp.where(d > c, d, c)
    place = jnp.where(lower > upper, jnp.where(d > c, 3, 2), jnp.where(b > a, 1, 0))
    return jnp.where(lower > upper, lower, upper), place.astype(a.dtype)


def _unpooled(slope: Array, place: Array) -> Array:
    """The slopes at the four places of a window: where the largest was, else zero."""
    return jnp.stack([jnp.where(place == k, slope, 0.0) for k in range(4)])


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
        places = (z[:, i::2, j::2] for i in range(2) for j in range(2))
        maps = jax.nn.relu(_largest(*places)[0] + params[name]["bias"])
    return maps
