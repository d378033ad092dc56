"""Tasks by their names, as a plan or a command line gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verax.learning.task import Task
from verax.tasks.cancer import cancer
from verax.tasks.digits import digits
from verax.tasks.femnist import femnist
from verax.tasks.sent140 import sent140
from verax.tasks.shakespeare import shakespeare

#: The models that each task knows, its own first.
TASKS: dict[str, tuple[str, ...]] = {
    "digits": ("mlp", "softmax"),
    "cancer": ("logistic",),
    "femnist": ("cnn", "cnn-grey"),
    "shakespeare": ("lstm",),
    "sent140": ("head", "head-relu"),
}


def named(
    name: str,
    *,
    clients: int = 3,
    model: str = "",
    split: str = "",
    alpha: float = 1.0,
    seed: int = 0,
    data: str = "",
    encoder: str = "",
    progress: Callable[[int], None] | None = None,
) -> Task:
    """A task by its name.

    Args:
        name: a key of `TASKS`.
        clients: N.
        model: one of the task's models; empty: its own.
        split: how data are split among clients; empty: the task's own way.
        alpha: of the Dirichlet split.
        seed: of the split.
        data: LEAF's folder, for the tasks that are read from one.
        encoder: the encoder's folder, for sent140.
        progress: called with the number of texts just encoded.
    """
    if name not in TASKS:
        raise ValueError(
            f"task is {name!r}, must be one of {', '.join(TASKS)}; others go through the Python API"
        )
    model = model or TASKS[name][0]
    if model not in TASKS[name]:
        raise ValueError(f"model is {model!r}, must be one of {', '.join(TASKS[name])} for {name}")
    if name == "digits":
        return digits(clients, model, split or "dirichlet", alpha, seed)  # pyright: ignore
    if name == "cancer":
        return cancer(clients, seed)
    if not data:
        raise ValueError(f"{name} is read from LEAF's files; say where with --data FOLDER")
    shared: dict[str, Any] = {"clients": clients, "split": split or "shuffled", "seed": seed}
    if name == "femnist":
        return femnist(data, channels=1 if model == "cnn-grey" else 3, **shared)
    if name == "shakespeare":
        return shakespeare(data, **shared)
    if not encoder:
        raise ValueError("sent140 needs a frozen text encoder; say where with --encoder FOLDER")
    return sent140(data, encoder, relu=model == "head-relu", progress=progress, **shared)
