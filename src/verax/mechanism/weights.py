r"""How the updates of a round are weighed in the aggregate, and what a weight costs.

An update m_i of weight w_i = c_i / Σ_j c_j is charged as the *effective* update

    m̃_i = (1 + E_i) w_i m_i,   E_i = (Σ_{j≠i} c_j)² / Σ_{j≠i} c_j²,

where
    c_i > 0 is what decides the weight, such as a number of examples,
    E_i is how many others there are, counted by their weight (Kish's effective sample size):
        N − 1 if all of them weigh the same, and less otherwise.

If all weigh the same, m̃_i = m_i. A member that claims all the weight among N is charged for N
times its update, as it moves the model N times as far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from verax.documents import check_choice
from verax.mechanism.price import Array, Row

#: How updates are weighed in the aggregate: all the same; by the clients' own word (then the
#: *effective* update is charged); or by a table fixed here.
WeightKind = Literal["equal", "reported", "fixed"]


@dataclass(frozen=True)
class Weights:
    """How the updates are weighed.

    Attributes:
        kind: equal, reported or fixed.
        values: for `fixed`, one number per member.
        fewest: for `reported`, the smallest number of examples that a reply may report.
        most: for `reported`, the largest one.
    """

    kind: WeightKind = "reported"
    values: Row = ()
    fewest: int = 1
    most: int = 10**9

    def __post_init__(self) -> None:
        check_choice("weights.kind", self.kind, WeightKind)
        if (self.kind == "fixed") != bool(self.values):
            raise ValueError('weights.values belong to weights.kind = "fixed", and only there')
        for value in self.values:
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"weights.values holds {value:g}, must be finite numbers > 0")
        if not 1 <= self.fewest <= self.most <= 2**53:
            raise ValueError(
                f"weights.fewest is {self.fewest} and weights.most {self.most}, must be whole "
                "numbers with 1 ≤ fewest ≤ most ≤ 2^53"
            )


def effective_weights(counts: ArrayLike) -> Array:
    r"""(1 + E_i) w_i: by how much each update counts for its charge; 1 if all weigh the same.

    Replies that weigh next to nothing cannot raise what the others are charged. Let the members
    other than i have the total S, and let any number of replies of the total X = ξS join them.
    Σ_{j≠i} c_j² does not fall by that, so E_i grows at most by the factor (1 + ξ)², and w_i does
    not grow. Hence

        (1 + E'_i) w'_i ≤ (1 + ξ)² (1 + E_i) w_i,

    and the levy C_i (1 + E_i)² w_i² ‖m_i‖² of a member grows at most by (1 + ξ)⁴, however many
    identities share X; nobody pays more than its own levy. Counted by heads instead, N w_i, ten
    replies of weight zero beside three members would multiply every levy by (13/3)² = 18.8.

    Args:
        counts: c_i > 0 of the updates that count, in any unit, shape (N,).

    Example:
        >>> effective_weights([5, 5, 5]), effective_weights([1e6, 1, 1]).round(3)
        (array([1., 1., 1.]), array([3., 0., 0.]))
    """
    given = np.asarray(counts, dtype=np.float64)
    if given.size < 2:
        return np.ones(given.shape)
    c = given / np.max(given)  # in units of the largest one no square overflows
    first = int(np.argmax(c))
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # of the largest one's others, which follow
        others = _sums_of_others(c) ** 2 / _sums_of_others(c**2)
    rest = np.delete(given, first)
    rest = rest / np.max(rest)  # beside a far larger one their squares could vanish
    others[first] = np.sum(rest) ** 2 / np.sum(rest**2)
    return (1.0 + others) * c / np.sum(c)


def _sums_of_others(values: Array) -> Array:
    """Σ_{j≠i} of each i, without the cancellation of Σ_j minus the i-th."""
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    after = np.concatenate([np.cumsum(values[::-1])[:-1][::-1], [0.0]])
    return before + after
