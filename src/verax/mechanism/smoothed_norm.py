r"""The smoothed norm: a moving average of a client's messages is charged, not each message.

A client that sends less noise pays less under the squared norm, although the model does not change.
Charge instead ‖v_t‖² with

    v_t = β_t v_{t−1} + (1 − β_t) m_t,   v_0 = 0,

in which noise of single rounds averages out. The charge is balanced like any other and is never
negative. The memory β shrinks toward the end of the run: since m_t = (v_t − β_t v_{t−1})/(1 − β_t),
the rule is the plain one in v, where v_t has the influence

    u_t = r_t/(1 − β_t) − r_{t+1} β_{t+1}/(1 − β_{t+1}),

r_t being the influence of m_t on the reward and r_{T+1} = 0. Prices are positive only where u is,
that is where influence grows by less than the memory allows. With a constant β it does not near the
end of the run.

Only the simulator measures it. It helps where batches are small, as under FedSGD; live federations
send the result of local epochs, in which little noise is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from verax.mechanism.statistics import Array, Mask, Statistic, Statistics

#: The memory reaches back over a half of the rounds that are left, between these numbers of rounds.
_SHORTEST, _LONGEST = 3.0, 20.0


@dataclass(frozen=True)
class SmoothedNorm:
    """n_i = ‖v_i‖², v_i the moving average of the client's messages."""

    name: ClassVar[str] = "smoothed-norm"
    reads: ClassVar[Statistic] = "smoothed"
    fewest: ClassVar[int] = 2

    def measure(self, statistics: Statistics[Array], present: Mask) -> Array:
        """The squared norms of the averages themselves."""
        assert statistics.smoothed is not None
        return statistics.smoothed


def shrinking_memory(rounds: int) -> Array:
    """β_t = 1 − 1/clip((T − t + 1)/2, 3, 20) of every round, shape (T,)."""
    left = np.arange(rounds, 0, -1)
    return 1 - 1 / np.clip(left / 2, _SHORTEST, _LONGEST)


def influence_of_averages(influence: ArrayLike, memory: ArrayLike) -> Array:
    """u_t, the influence of v_t, from r_t and β_t, shape (T,) each."""
    r, beta = np.asarray(influence, dtype=np.float64), np.asarray(memory, dtype=np.float64)
    later = np.append((r * beta / (1 - beta))[1:], 0.0)
    return r / (1 - beta) - later
