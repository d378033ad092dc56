"""Breast cancer (scikit-learn's Wisconsin data), one hospital per range of tumour sizes.

A logistic regression with an L2 term tells malignant from benign tumours by 30 measured features.
Hospitals differ as referral centres do: each sees tumours of another range of the mean radius.
"""

from __future__ import annotations

import numpy as np

from verax.learning.task import Task
from verax.tasks.embedded import scikit_table, split_task
from verax.tasks.models import perceptron

#: λ of the model.
L2 = 0.01


def cancer(clients: int = 4, seed: int = 0) -> Task:
    """The embedded tabular task.

    Args:
        clients: N, how many hospitals.
        seed: of the split into training and test data.
    """
    table = scikit_table("breast_cancer.csv", header=1)
    features, labels = table[:, :-1], table[:, -1].astype(np.int32)
    if not 2 <= clients <= len(labels) // 4:
        raise ValueError(f"clients is {clients}, must be 2 … {len(labels) // 4}")
    x = ((features - features.mean(axis=0)) / features.std(axis=0)).astype(np.float32)
    by_radius = np.argsort(features[:, 0], kind="stable")
    parts = np.array_split(by_radius, clients)
    network = perceptron((x.shape[1], 2), start="zero", l2=L2)
    return split_task("cancer", (x, labels), parts, np.random.default_rng(seed), network)
