"""What the embedded tasks share: scikit-learn's data files and a perceptron."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verax.learning.task import Task
from verax.tasks import partition
from verax.tasks.models import Model


def scikit_table(file: str, header: int = 0) -> NDArray[np.float64]:
    """A table from scikit-learn's own data files.

    Its `load_…` functions read the same files, but importing them takes a second in every process.

    Args:
        file: its name.
        header: how many lines to leave out.
    """
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets" / "data" / file
    return np.loadtxt(path, delimiter=",", skiprows=header)


def split_task(
    name: str,
    samples: tuple[NDArray[np.float32], NDArray[np.int32]],
    parts: partition.Positions,
    rng: np.random.Generator,
    network: Model,
) -> Task:
    """A task whose clients hold these samples, each with a part of its own to test on.

    Args:
        name: of the task.
        samples: features and labels of all.
        parts: which samples each client holds.
        rng: draws the samples to test on.
        network: the model.
    """
    x, labels = samples
    train, test = partition.train_test(parts, rng)
    return Task(
        name=name,
        train=[(x[own], labels[own]) for own in train],
        test=[(x[own], labels[own]) for own in test],
        init=network.init,
        loss=network.loss,
        accuracy=network.accuracy,
        fast_gradient=network.gradient,
    )
