"""Shakespeare: the next character of a role's lines, and the paper's two-layer LSTM."""

from __future__ import annotations

from pathlib import Path

from verax.learning.task import Task
from verax.tasks.leaf import group_users, load_leaf
from verax.tasks.leaf.task import leaf_task
from verax.tasks.models import lstm


def shakespeare(path: str | Path, clients: int = 3, split: str = "shuffled", seed: int = 0) -> Task:
    """LEAF's Shakespeare.

    Args:
        path: LEAF's folder with train/ and test/.
        clients: N.
        split: how roles become clients, one of `verax.tasks.leaf.GROUPINGS`.
        seed: of the shuffle.
    """
    leaf = load_leaf(path, "shakespeare")
    groups = group_users(leaf, clients, split, seed)
    return leaf_task(leaf, groups, lstm(leaf.kind.classes))
