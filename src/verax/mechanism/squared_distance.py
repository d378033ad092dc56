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

from verax.mechanism.rule import Array, Mask, Statistic

__all__ = ["SquaredDistance", "distance_to_mean"]


@dataclass(frozen=True)
class SquaredDistance:
    """n_i = ‖m_i − m̄_{−i}‖²."""

    name: ClassVar[str] = "squared-distance"
    statistic: ClassVar[Statistic] = "gram"
    fewest: ClassVar[int] = 2

    def measure(self, statistics: Array, present: Mask) -> Array:
        """From the Gram matrix, for those present."""
        return self.of_distances(distance_to_mean(statistics, present), present)

    def of_distances(self, to_mean: Array, present: Mask) -> Array:
        """From ‖m_i − m̄‖², which is all that it takes."""
        n = np.maximum(np.count_nonzero(present, axis=-1), 2)[..., None]
        return (n / (n - 1)) ** 2 * to_mean


def distance_to_mean(gram: Array, present: Mask) -> Array:
    """‖m_i − m̄‖² = G_ii − (2/N) Σ_j G_ij + (1/N²) Σ_jk G_jk over those present, shape (…, N)."""
    norms = np.diagonal(gram, axis1=-2, axis2=-1)
    unit = np.max(np.where(present, norms, 0.0), axis=-1, initial=0.0)[..., None]
    unit = np.where(unit > 0, unit, 1.0)
    here = present[..., :, None] & present[..., None, :]
    shares = np.where(here, gram / unit[..., None], 0.0)
    n = np.maximum(np.count_nonzero(present, axis=-1), 1)[..., None]
    to_all = np.sum(shares, axis=-1)
    squared = norms / unit - 2 / n * to_all + np.sum(to_all, axis=-1, keepdims=True) / n**2
    # Rounding may leave a tiny negative distance where messages are nearly equal.
    return np.where(present, np.maximum(squared, 0.0), 0.0) * unit
