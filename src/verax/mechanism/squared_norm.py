"""The paper's rule (1): a client is measured by the squared norm of its message.

    p_i = C (‖m_i‖² − (1/(N−1)) Σ_{j≠i} ‖m_j‖²)

It deters over-reporting and noise; it *pays* for under-reporting, so its price needs an upper end
as well as a lower one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verax.mechanism.statistics import Array, Mask, Statistic, Statistics


@dataclass(frozen=True)
class SquaredNorm:
    """n_i = ‖m_i‖²."""

    name: ClassVar[str] = "squared-norm"
    reads: ClassVar[Statistic] = "norms"
    fewest: ClassVar[int] = 2

    def measure(self, statistics: Statistics[Array], present: Mask) -> Array:
        """The norms themselves."""
        assert statistics.norms is not None
        return statistics.norms
