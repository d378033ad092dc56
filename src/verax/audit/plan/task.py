"""The task that a plan describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from verax.audit.plan.plan import Plan, TaskPlan
from verax.learning import Batch, Task
from verax.plugins import is_reference, load
from verax.tasks import named

#: The model of a task under a protocol, where it is not the task's own: with local epochs softmax
#: regression learns the digits to the end in a few rounds.
_OWN_MODELS = {("digits", "fedavg"): "softmax"}


def task_of(plan: Plan, progress: Callable[[int], None] | None = None) -> Task:
    """The task that a plan describes; `progress` is told how many texts were just encoded."""
    wanted = plan.task
    if is_reference(wanted.name):
        task: Task = load(wanted.name, "task", "train", "loss")
        if task.clients != wanted.clients:
            raise ValueError(
                f"task {wanted.name} has {task.clients} clients, the plan {wanted.clients}; "
                f"give --clients {task.clients}"
            )
    else:
        task = named(
            wanted.name,
            clients=wanted.clients,
            model=wanted.model or _OWN_MODELS.get((wanted.name, plan.protocol.kind), ""),
            split=wanted.split,
            alpha=wanted.alpha,
            seed=wanted.partition_seed,
            data=wanted.data,
            encoder=wanted.encoder,
            progress=progress,
        )
    return _with_fewer_tests(task, wanted) if wanted.test_samples else task


def _with_fewer_tests(task: Task, plan: TaskPlan) -> Task:
    def drawn(client: int, batch: Batch) -> Batch:
        rng = np.random.default_rng([plan.partition_seed, client])
        rows = np.sort(rng.permutation(len(batch[0]))[: plan.test_samples])
        return tuple(array[rows] for array in batch)

    return replace(task, test=[drawn(i, batch) for i, batch in enumerate(task.test)])
