"""The statistics of a round: what the messages leave behind for pricing.

Simulator, record, rules, Flower layer and ledger all use this one type. A statistic that was not
recorded is None. Leading axes stand for runs and rounds.

    norms      ‖m_i‖²                                       (…, N)
    gram       ⟨m_i, m_j⟩                                   (…, N, N)
    distances  ‖m_i − m̄‖², m̄ the mean of all messages       (…, N)
    misreport  ‖m_i − g_i‖², g_i the true update            (…, N)
    smoothed   ‖v_i‖², v_i a moving average of messages     (…, N)

Entries of clients that did not take part are zero.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: What a rule can read.
Statistic = Literal["norms", "gram", "distances", "misreport", "smoothed"]

_A = TypeVar("_A")


class Statistics(NamedTuple, Generic[_A]):
    """What is known of the messages of one round, or of many; see the module's table.

    Example:
        >>> Statistics.of_gram(np.array([[4.0, 0.0], [0.0, 1.0]])).norms
        array([4., 1.])
    """

    norms: _A | None = None
    gram: _A | None = None
    distances: _A | None = None
    misreport: _A | None = None
    smoothed: _A | None = None

    @staticmethod
    def of_gram(gram: ArrayLike) -> Statistics[Array]:
        """Statistics from a Gram matrix, whose diagonal holds the norms."""
        matrix = np.asarray(gram, dtype=np.float64)
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(f"a Gram matrix is square, got shape {matrix.shape}")
        return Statistics(np.diagonal(matrix, axis1=-2, axis2=-1), matrix)

    def has(self, statistic: Statistic) -> bool:
        """Whether a statistic is known; distances also follow from a Gram matrix."""
        if statistic == "distances" and self.gram is not None:
            return True
        return getattr(self, statistic) is not None


def distances_to_mean(gram: Array, present: Mask) -> Array:
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


def checked(
    statistics: Statistics[Any], statistic: Statistic, reader: str, present: Mask | None
) -> tuple[Statistics[Array], Mask]:
    """The statistics that a rule reads, as float64, with absent clients at zero.

    What cannot be priced is refused: missing statistics, wrong shapes, NaN, infinities, negative
    norms and matrices that are not symmetric.

    Args:
        statistics: of the round or rounds.
        statistic: which one is read.
        reader: who reads it, for error messages.
        present: who took part, booleans that broadcast to (…, N); None: everybody.
    """
    if not statistics.has(statistic):
        known = [name for name, value in statistics._asdict().items() if value is not None]
        raise ValueError(
            f"{reader} reads {statistic}, which were not recorded; known: {', '.join(known)}"
        )
    from_gram = statistic == "gram" or getattr(statistics, statistic) is None
    if not from_gram:
        values = np.asarray(getattr(statistics, statistic), dtype=np.float64)
        if values.ndim < 1 or values.shape[-1] == 0:
            raise ValueError(
                f"{reader} needs (…, N) {statistic} with N ≥ 1, got shape {values.shape}"
            )
        mask = _mask(present, values.shape)
        values = values if present is None else np.where(mask, values, 0.0)
        refuse(values, statistic, low=0.0)
        return Statistics(**{statistic: values}), mask
    gram = np.asarray(statistics.gram, dtype=np.float64)
    if gram.ndim < 2 or gram.shape[-1] != gram.shape[-2] or gram.shape[-1] == 0:
        raise ValueError(f"a Gram matrix is square with N ≥ 1, got shape {gram.shape}")
    mask = _mask(present, gram.shape[:-1])
    gram = np.where(mask[..., :, None] & mask[..., None, :], gram, 0.0)
    refuse(gram, "Gram entry", client_axis=-2)
    norms = np.diagonal(gram, axis1=-2, axis2=-1)
    refuse(norms, "squared norm", low=0.0)
    unit = np.max(norms, axis=-1, initial=0.0)[..., None, None]
    skew = np.abs(gram - np.swapaxes(gram, -1, -2)) > 1e-6 * unit
    _refuse_where(skew, gram, "Gram entry", "symmetric", client_axis=-2)
    if statistic == "distances":
        return Statistics(norms, gram, distances_to_mean(gram, mask)), mask
    return Statistics(norms, gram), mask


def refuse(
    values: Array, what: str, low: float = -np.inf, *, remedy: str = "", client_axis: int = -1
) -> None:
    """Raise unless all values are finite numbers and none lies below `low`."""
    least = np.minimum.reduce(values, axis=None, initial=np.inf)
    most = np.maximum.reduce(values, axis=None, initial=-np.inf)
    if -np.inf < least >= low and most < np.inf:  # false if a value is NaN
        return
    _refuse_where(~np.isfinite(values), values, what, f"a finite number{remedy}", client_axis)
    _refuse_where(values < low, values, what, f"≥ {low:g}", client_axis)


def _refuse_where(bad: Mask, values: Array, what: str, limit: str, client_axis: int) -> None:
    if np.any(bad):
        where = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise ValueError(
            f"{what} of client {where[client_axis]} is {values[where]:g}, must be {limit}"
        )


def _mask(present: Any, shape: tuple[int, ...]) -> Mask:
    if present is None:
        return np.ones(shape, dtype=np.bool_)
    given = np.asarray(present)
    if given.dtype != np.bool_:
        raise ValueError(f"present is a mask of booleans, not {given.dtype}; see `spread`")
    try:
        return given if given.shape == shape else np.broadcast_to(given, shape).copy()
    except ValueError:
        raise ValueError(f"present {given.shape} does not fit statistics {shape}") from None
