"""The mean of a loss over each client's own samples, however many each has.

A large model takes samples in full batches, whose means are weighed by their size; what is left of
each client's samples, and everything for a small model, goes one by one and at once. So no sample
is padded, none is counted twice, and what layers hold stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from verax.learning.task import Batch

Array = jax.Array


class Samples:
    """All clients' samples.

    Args:
        clients: one batch of arrays per client.
        together: samples of a full batch; 0: all go one by one.
    """

    def __init__(self, clients: Sequence[Batch], together: int) -> None:
        sizes = np.array([len(batch[0]) for batch in clients])
        self._arrays = tuple(
            jnp.asarray(np.concatenate(arrays)) for arrays in zip(*clients, strict=True)
        )
        self._sizes = jnp.asarray(sizes)
        self._together = together
        starts = np.cumsum(sizes) - sizes
        full = sizes // together if together else np.zeros_like(sizes)
        # Where each full batch begins, and which samples are left, with their owners.
        self._first = _runs(starts, full, together)
        self._first_owner = np.repeat(np.arange(len(sizes)), full)
        self._rest = _runs(starts + full * together, sizes - full * together, 1)
        self._rest_owner = np.repeat(np.arange(len(sizes)), sizes - full * together)

    def means(self, value: Callable[[Any, Batch], Array], params: Any) -> Array:
        """(N, …): the mean of `value(params, batch)`, itself a mean, over each client's samples."""

        def batch(first: Array) -> Array:
            rows = tuple(
                jax.lax.dynamic_slice_in_dim(array, first, self._together) for array in self._arrays
            )
            return value(params, rows)

        def sample(place: Array) -> Array:
            return value(params, tuple(array[place][None] for array in self._arrays))

        like = jax.eval_shape(sample, 0)
        total = jnp.zeros((len(self._sizes), *like.shape), like.dtype)
        if len(self._first):
            each = jax.lax.map(batch, self._first)
            total = total.at[self._first_owner].add(self._together * each)
        if len(self._rest):
            if self._together:
                each = jax.lax.map(sample, self._rest, batch_size=self._together)
            else:
                each = jax.vmap(sample)(self._rest)
            total = total.at[self._rest_owner].add(each)
        return total / self._sizes.reshape(-1, *(1,) * len(like.shape))


def _runs(starts: Any, counts: Any, step: int) -> Any:
    """starts[i], starts[i] + step, …, counts[i] of them, one client after the other."""
    before = np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + step * (np.arange(counts.sum()) - before)
