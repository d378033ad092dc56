"""FEMNIST: handwritten characters by writer, and the paper's convolutional network."""

from __future__ import annotations

from pathlib import Path

from verax.learning.task import Task
from verax.tasks.leaf import group_users, load_leaf
from verax.tasks.leaf.task import leaf_task
from verax.tasks.models import cnn


def femnist(
    path: str | Path,
    clients: int = 3,
    split: str = "shuffled",
    seed: int = 0,
    *,
    channels: int = 3,
) -> Task:
    """LEAF's FEMNIST.

    Args:
        path: LEAF's folder with train/ and test/.
        clients: N.
        split: how users become clients, one of `verax.tasks.leaf.GROUPINGS`.
        seed: of the shuffle.
        channels: of the first layer's input: 3 in the paper's text, 1 in its authors' code. With 3
            the grey image stands in each.
    """
    leaf = load_leaf(path, "femnist")
    groups = group_users(leaf, clients, split, seed)
    return leaf_task(leaf, groups, cnn(leaf.kind.classes, channels=channels))
