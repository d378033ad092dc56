"""A client is measured by how far its message lies from the others' mean.

    n_i = ‖m_i − m̄_{−i}‖² = (N/(N−1))² ‖m_i − m̄‖²

Balanced as every rule here, p_i = C (N/(N−1))³ (‖m_i − m̄‖² − mean_j ‖m_j − m̄‖²): up to a factor
that depends on N alone this is the Groves-Ledyard rule without its price. With two clients both
distances are the same and nobody ever pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from verax.mechanism.statistics import Array, Mask, Statistic, Statistics


@dataclass(frozen=True)
class SquaredDistance:
    """n_i = ‖m_i − m̄_{−i}‖²."""

    name: ClassVar[str] = "squared-distance"
    reads: ClassVar[Statistic] = "distances"
    fewest: ClassVar[int] = 2

    def measure(self, statistics: Statistics[Array], present: Mask) -> Array:
        """From the distances to the mean, for those present."""
        assert statistics.distances is not None
        n = np.maximum(np.count_nonzero(present, axis=-1), 2)[..., None]
        return (n / (n - 1)) ** 2 * statistics.distances
