"""The convolutional layers of `cnn.py` with a derivative that is fast on a CPU.

XLA's own derivative of a convolution is slow on a CPU inside a loop, such as the loop over rounds:
a round of FedSGD takes some twenty times as long with it as with this file. Here the convolutions
are matrix products: the first one multiplies the 5×5 patches around each pixel by the filters, the
second one uses Winograd's algorithm (`winograd.py`), which needs a third of the multiplications.

* A tile of Winograd's algorithm yields the 2×2 outputs of one pooling window, so both layers keep
  the four outputs of a window as four arrays, and the max-pool compares these.
* Bias and ReLU follow the pooling, where there is a quarter of the numbers; the result is the same.
* Patches and tiles are made for a few samples at a time, so that they stay in the processor's
  cache. They are made again for the derivative. For the same reason clients follow one another
  under `jax.vmap`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

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

Array = jax.Array
Filters = dict[str, dict[str, Array]]

SIDE, FILTER = 28, 5
FIRST, SECOND = 32, 64  # filters of the two layers

# Samples whose tiles are made at a time: 0.7 MB each in the second layer.
_SAMPLES = 4


class _Pooled(NamedTuple):
    """The outputs of both layers after pooling and ReLU, (samples, side, side, filters).

    `first_place` and `second_place` say which of the four outputs of its pooling window, 0 to 3,
    each number came from.
    """

    first: Array
    first_place: Array
    second: Array
    second_place: Array


@jax.custom_vjp
def features_on_cpu(filters: Filters, images: Array) -> Array:
    """The outputs of the convolutional layers, (samples, 7, 7, 64).

    Args:
        filters: weight and bias of "conv1" and "conv2".
        images: (samples, 28, 28). The derivative with respect to them is not defined.
    """
    return _forward(filters, images).second


def _features_forward(filters: Filters, images: Array) -> tuple[Array, Any]:
    pooled = _forward(filters, images)
    return pooled.second, (filters, images, pooled)


def _features_backward(kept: Any, gradient: Array) -> tuple[Filters, None]:
    return _backward(*kept, gradient), None


features_on_cpu.defvjp(_features_forward, _features_backward)


@sequential_vmap
def _forward(filters: Filters, images: Array) -> _Pooled:
    second_filters = filters_in(filters["conv2"]["weight"])

    def of_part(images: Array) -> _Pooled:
        z = jnp.einsum("pwnxy,po->wnxyo", _patches(images), _grey_filters(filters))
        first, first_place = _largest(*z)
        first = jax.nn.relu(first + filters["conv1"]["bias"])
        z = outputs(jnp.einsum("klnxyc,klco->klnxyo", tiles(first), second_filters))
        second, second_place = _largest(*z)
        second = jax.nn.relu(second + filters["conv2"]["bias"])
        return _Pooled(first, first_place, second, second_place)

    parts = jax.lax.map(of_part, _split(images))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts)


@sequential_vmap
def _backward(filters: Filters, images: Array, pooled: _Pooled, gradient: Array) -> Filters:
    """The gradient with respect to the filters, from that with respect to the features."""
    second_filters = filters_in(filters["conv2"]["weight"])

    def of_part(images: Array, pooled: _Pooled, gradient: Array) -> tuple[Array, ...]:
        gradient = jnp.where(pooled.second > 0, gradient, 0.0)
        products = outputs_back(_unpooled(gradient, pooled.second_place))
        second = jnp.einsum(
            "kltc,klto->klco",
            tiles(pooled.first).reshape(TILE, TILE, -1, FIRST),
            products.reshape(TILE, TILE, -1, SECOND),
        )
        inner = tiles_back(jnp.einsum("klnxyo,klco->klnxyc", products, second_filters))
        inner = jnp.where(pooled.first > 0, inner, 0.0)
        z = _unpooled(inner, pooled.first_place).reshape(-1, FIRST)
        first = _patches(images).reshape(FILTER**2, -1) @ z
        return first, second, *(jnp.sum(x, axis=(0, 1, 2)) for x in (inner, gradient))

    def add_part(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_part(*part)), None

    shapes = ((FILTER**2, FIRST), (TILE, TILE, FIRST, SECOND), (FIRST,), (SECOND,))
    start = tuple(jnp.zeros(shape, gradient.dtype) for shape in shapes)
    (first, second, first_bias, second_bias), _ = jax.lax.scan(
        add_part, start, _split((images, pooled, gradient))
    )
    first = first.T.reshape(FIRST, 1, FILTER, FILTER)
    # Every channel shows the same grey image, so that its filters have the same gradient.
    first = jnp.broadcast_to(first, filters["conv1"]["weight"].shape)
    return {
        "conv1": {"weight": first, "bias": first_bias},
        "conv2": {"weight": filters_out(second), "bias": second_bias},
    }


def _split(tree: Any) -> Any:
    """(samples, …) → (parts, samples of a part, …)."""

    def split(x: Array) -> Array:
        size = next(size for size in range(_SAMPLES, 0, -1) if len(x) % size == 0)
        return x.reshape(-1, size, *x.shape[1:])

    return jax.tree.map(split, tree)


def _grey_filters(filters: Filters) -> Array:
    """The first layer's filters on one grey channel instead of several equal ones, (25, 32)."""
    return jnp.sum(filters["conv1"]["weight"], axis=1).reshape(FIRST, -1).T


def _patches(images: Array) -> Array:
    """The 5×5 patches of (samples, 28, 28), as (25, 4, samples, 14, 14).

    The second axis is a patch's place in its 2×2 pooling window.
    """
    padded = jnp.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD)))

    def at(i: int, j: int) -> Array:
        return padded[:, i : i + SIDE : 2, j : j + SIDE : 2]

    # The four patches of a window lie within 6×6 pixels: first these, then the patches as slices.
    pixels = jnp.stack([jnp.stack([at(i, j) for j in range(TILE)]) for i in range(TILE)])
    patches = [pixels[a : a + FILTER, b : b + FILTER] for a in range(2) for b in range(2)]
    return jnp.stack(patches, axis=2).reshape(FILTER**2, 4, *pixels.shape[2:])


def _largest(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """The largest of the four numbers of each window and its place; at ties the first."""
    upper, lower = jnp.where(b > a, b, a), jnp.where(d > c, d, c)
    place = jnp.where(lower > upper, jnp.where(d > c, 3, 2), jnp.where(b > a, 1, 0))
    return jnp.where(lower > upper, lower, upper), place.astype(a.dtype)


def _unpooled(gradient: Array, place: Array) -> Array:
    """The gradient at the four places of a window: all of it where the largest number was."""
    return jnp.stack([jnp.where(place == k, gradient, 0.0) for k in range(4)])
