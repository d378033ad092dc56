"""No payment at all: the federation as it is without a mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from verax.mechanism.rule import Array, Mask, Statistic

__all__ = ["NoPayment"]


@dataclass(frozen=True)
class NoPayment:
    """n_i = 0."""

    name: ClassVar[str] = "none"
    statistic: ClassVar[Statistic] = "norms"
    fewest: ClassVar[int] = 2

    def measure(self, statistics: Array, present: Mask) -> Array:
        """Nothing is measured."""
        return np.zeros_like(statistics)
