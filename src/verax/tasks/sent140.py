"""Sent140: the mood of a tweet from a frozen encoder's embedding, and the paper's two layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from verax.learning.task import Task
from verax.tasks.encoder import Encoder, embed
from verax.tasks.leaf import group_users, load_leaf
from verax.tasks.leaf.task import leaf_task
from verax.tasks.models import perceptron


def sent140(
    path: str | Path,
    encoder: str | Path,
    clients: int = 3,
    split: str = "shuffled",
    seed: int = 0,
    *,
    relu: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Task:
    """LEAF's Sent140.

    Args:
        path: LEAF's folder with train/ and test/.
        encoder: a folder in Hugging Face's layout; its width d makes the layers d → d/2 → 2, which
            for BERT are the paper's 768 → 384 → 2.
        clients: N.
        split: how users become clients, one of `verax.tasks.leaf.GROUPINGS`.
        seed: of the shuffle.
        relu: max(·, 0) between the layers; the paper's text names none.
        progress: called with the number of tweets just encoded.
    """
    leaf = load_leaf(path, "sent140")
    groups = group_users(leaf, clients, split, seed)
    frozen = Encoder(encoder)
    train, test = (
        embed(frozen, list(part.samples), progress=progress) for part in (leaf.train, leaf.test)
    )
    width = train.shape[1]
    model = perceptron((width, width // 2, leaf.kind.classes), start="uniform", relu=relu)
    return leaf_task(leaf, groups, model, (train, test))
