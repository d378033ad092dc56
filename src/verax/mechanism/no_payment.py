"""No payment at all: the federation as it is without a mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from verax.mechanism.statistics import Array, Mask, Statistic, Statistics


@dataclass(frozen=True)
class NoPayment:
    """n_i = 0."""

    name: ClassVar[str] = "none"
    reads: ClassVar[Statistic] = "norms"
    fewest: ClassVar[int] = 2

    def measure(self, statistics: Statistics[Array], present: Mask) -> Array:
        """Nothing is measured."""
        return np.zeros(present.shape)
