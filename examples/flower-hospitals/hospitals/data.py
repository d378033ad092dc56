"""Each hospital's patients: the Wisconsin breast cancer data, split by the size of the tumour.

Hospitals with a higher number see larger tumours more often, so that their interests differ.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

Samples = tuple[np.ndarray, np.ndarray]


@cache
def patients(hospital: int, hospitals: int) -> tuple[Samples, Samples]:
    """Training and test data of one hospital: features (n, 30) and diagnoses (n,)."""
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    rng = np.random.default_rng(0)
    size = x[:, 0] + 0.8 * rng.standard_normal(len(x))  # mean radius, blurred
    own = np.array_split(np.argsort(size), hospitals)[hospital]
    own = rng.permutation(own)
    test = len(own) // 4
    return (x[own[test:]], y[own[test:]]), (x[own[:test]], y[own[:test]])
