"""Handwritten digits (scikit-learn's, 8 × 8 pixels, embedded), split among clients.

`mlp` is the default model, 64-64-10. `softmax` is softmax regression with an L2 term: convex, so
the theory applies, with m = λ and H = λ + ½ max ‖(x, 1)‖².
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from verax.learning.task import Task
from verax.tasks import partition
from verax.tasks.embedded import scikit_table, split_task
from verax.tasks.models import perceptron

#: λ of the softmax model.
SOFTMAX_L2 = 0.01


def digits(
    clients: int = 3,
    model: Literal["mlp", "softmax"] = "mlp",
    split: str = "dirichlet",
    alpha: float = 1.0,
    seed: int = 0,
) -> Task:
    """The embedded task.

    Args:
        clients: N.
        model: "mlp" or "softmax".
        split: "dirichlet" (label skew), "iid", "by-size" or "by-label".
        alpha: of the Dirichlet split.
        seed: of the split.
    """
    table = scikit_table("digits.csv.gz")
    x = (table[:, :-1] / 16).astype(np.float32)
    labels = table[:, -1].astype(np.int32)
    if clients < 2:
        raise ValueError(f"clients is {clients}, a federation needs at least 2")
    if 2 * clients > len(x):
        raise ValueError(f"clients is {clients}, more than half of the {len(x)} samples")
    rng = np.random.default_rng(seed)
    match split:
        case "dirichlet":
            parts = partition.dirichlet(labels, clients, rng, alpha)
        case "iid":
            parts = partition.iid(labels, clients, rng)
        case "by-size":
            parts = partition.by_size(labels, clients, rng)
        case "by-label":
            parts = partition.by_label(labels, clients, rng)
        case _:
            raise ValueError(f"split is {split!r}, must be one of {', '.join(partition.SPLITS)}")
    match model:
        case "mlp":
            network = perceptron((64, 64, 10))
        case "softmax":
            network = perceptron((64, 10), start="zero", l2=SOFTMAX_L2)
        case _:
            raise ValueError(f"model is {model!r}, must be mlp or softmax")
    return split_task("digits", (x, labels), parts, rng, network)


def softmax_constants(task: Task, radius: float) -> tuple[float, float, float]:
    """(m, H, L) of the softmax model's losses for ‖θ‖ ≤ radius.

    Per sample with z = (x, 1): the Hessian of −log softmax lies between 0 and ½ zzᵀ per class, its
    gradient is at most √2 ‖z‖; the L2 term adds λ to m and H, and λ · radius to L.
    """
    longest = max(
        float(np.sqrt(np.max(np.sum(batch[0] ** 2, axis=1)) + 1))
        for part in (task.train, task.test)
        for batch in part
    )
    return (
        SOFTMAX_L2,
        SOFTMAX_L2 + longest**2 / 2,
        float(np.sqrt(2)) * longest + SOFTMAX_L2 * radius,
    )
