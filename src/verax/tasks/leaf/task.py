"""A task from LEAF's data: groups of users as clients, with a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.learning.task import Task
from verax.tasks.leaf.cache import Leaf, Part
from verax.tasks.models import Model


def leaf_task(
    leaf: Leaf,
    groups: Sequence[NDArray[np.intp]],
    model: Model,
    samples: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> Task:
    """Each group of users a client.

    Args:
        leaf: the data.
        groups: the users of each client.
        model: of the task.
        samples: training and test samples in place of the recorded ones, such as embeddings.
    """
    train, test = leaf.train, leaf.test
    if samples is not None:
        train = Part(samples[0], train.labels, train.ends)
        test = Part(samples[1], test.labels, test.ends)
    evaluated = model.for_evaluation()
    single = all(len(group) == 1 for group in groups)
    return Task(
        name=leaf.kind.name,
        train=[train.of(group) for group in groups],
        test=[test.of(group) for group in groups],
        init=model.init,
        loss=evaluated.loss,
        accuracy=evaluated.accuracy,
        fast_gradient=model.gradient,
        names=tuple(
            leaf.users[group[0]] if single else f"group {k}" for k, group in enumerate(groups)
        ),
    )
