"""The Groves-Ledyard rule: exact honesty where all clients share one known Hessian.

    p_i = C_t [ ((N−1)/N) ‖m_i − m̄_{−i}‖² − (1/(N−2)) Σ_{j≠i} ‖m_j − m̄_{−i}‖² ]
        = C_t (N/(N−2)) ( ‖m_i − m̄‖² − mean_j ‖m_j − m̄‖² ),     N ≥ 3,

with the price C_t = (v γ_t / 2N) Π_{l>t} (1 − γ_l h) (`schedule.groves_ledyard`) for members to
whom a unit of loss is worth v, at curvature h. Then no message sequence of any sign, direction or
timing gains more than v (F(θ_{T+1}) − F*)/N over honesty. It degrades where curvatures differ, and
two colluders defeat it at N = 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from verax.mechanism.statistics import Array, Mask, Statistic, Statistics


@dataclass(frozen=True)
class GrovesLedyard:
    """n_i = ((N−1)/(N−2)) ‖m_i − m̄‖²; balancing it gives the bracket above."""

    name: ClassVar[str] = "groves-ledyard"
    reads: ClassVar[Statistic] = "distances"
    fewest: ClassVar[int] = 3

    def measure(self, statistics: Statistics[Array], present: Mask) -> Array:
        """From the distances to the mean, for those present."""
        assert statistics.distances is not None
        n = np.maximum(np.count_nonzero(present, axis=-1), 3)[..., None]
        return (n - 1) / (n - 2) * statistics.distances
