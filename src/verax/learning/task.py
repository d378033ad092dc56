"""A task: each client's data, a model, and its loss.

Anything with data per client, `init(key)` and `loss(params, batch)` can be audited. A batch is a
tuple of arrays with the same first axis, such as (x, y); `loss` is a mean over that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

#: Arrays with the same first axis: one client's samples, or a part of them.
Batch = tuple[Any, ...]

#: (parameters, batch) → mean loss and its gradient.
Gradient = Callable[[Any, Batch], tuple[jax.Array, Any]]


@dataclass(frozen=True, eq=False)
class PaddedSamples:
    """All clients' samples in arrays of shape (N, largest, …), and how many each really has."""

    arrays: Batch
    sizes: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Task:
    """Data per client, a model and its loss.

    Attributes:
        name: a label.
        train: one batch (tuple of arrays) per client.
        test: the same; rewards are judged on it.
        init: key → parameters (any nesting of float arrays).
        loss: (parameters, batch) → mean loss, a scalar.
        accuracy: (parameters, batch) → mean accuracy, or None.
        names: a label per client; default: "client 0", …
        fast_gradient: (parameters, batch) → loss and gradient, where a model has a faster way than
            differentiating `loss`; matrices may be kept as factors (`verax.learning.factored`).
    """

    name: str
    train: Sequence[Batch]
    test: Sequence[Batch]
    init: Callable[[jax.Array], Any]
    loss: Callable[[Any, Batch], jax.Array]
    accuracy: Callable[[Any, Batch], jax.Array] | None = None
    names: tuple[str, ...] = ()
    fast_gradient: Gradient | None = None

    def __post_init__(self) -> None:
        if len(self.train) < 2:
            raise ValueError(f"{self.name} has {len(self.train)} client(s), a federation needs ≥ 2")
        if len(self.test) != len(self.train):
            raise ValueError(
                f"{self.name} has training data of {len(self.train)} clients, "
                f"test data of {len(self.test)}"
            )
        names = self.names or tuple(f"client {i}" for i in range(len(self.train)))
        if len(names) != len(self.train):
            raise ValueError(f"{len(names)} names for {len(self.train)} clients")
        object.__setattr__(self, "names", names)
        for part in ("train", "test"):
            checked = [
                _checked(batch, f"{part} data of {name}")
                for batch, name in zip(getattr(self, part), names, strict=True)
            ]
            object.__setattr__(self, part, checked)

    @property
    def gradient(self) -> Gradient:
        """(parameters, batch) → loss and gradient."""
        return self.fast_gradient or jax.value_and_grad(self.loss)

    @property
    def clients(self) -> int:
        """N."""
        return len(self.train)

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))

    def padded(self, part: str) -> PaddedSamples:
        """The clients' samples stacked; shorter clients are filled up with zeros."""
        batches: Sequence[Batch] = getattr(self, part)
        sizes = np.array([len(batch[0]) for batch in batches], dtype=np.intp)
        stacked: list[Any] = []
        for arrays in zip(*batches, strict=True):
            shape = (len(arrays), int(sizes.max()), *arrays[0].shape[1:])
            whole = np.zeros(shape, dtype=arrays[0].dtype)
            for row, array in zip(whole, arrays, strict=True):
                if array.shape[1:] != shape[2:]:
                    raise ValueError(f"{self.name}: samples of {array.shape[1:]} and {shape[2:]}")
                row[: len(array)] = array
            stacked.append(whole)
        return PaddedSamples(tuple(stacked), sizes)


def _checked(batch: Batch, what: str) -> Batch:
    arrays = tuple(np.asarray(array) for array in batch)
    if not arrays or any(array.ndim < 1 for array in arrays):
        raise ValueError(f"{what} must be a tuple of arrays with one row per sample")
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ValueError(f"{what} has arrays of different lengths {sorted(lengths)}")
    if lengths == {0}:
        raise ValueError(f"{what} is empty; every client needs at least one sample")
    result: list[NDArray[Any]] = []
    for array in arrays:
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{what} holds {array.dtype}, must be numbers")
        if array.dtype.kind == "f":
            if not np.all(np.isfinite(array)):
                raise ValueError(f"{what} holds a value that is NaN or infinite")
            array = array.astype(np.float64 if jax.config.read("jax_enable_x64") else np.float32)
        elif array.dtype.kind in "iu" and array.dtype.itemsize > 4:
            array = array.astype(np.int32)
        result.append(array)
    return tuple(result)
