r"""Payment rules: what is measured on a client, and how a round is balanced.

Every rule has the same form. It *measures* each client, n_i, from the statistics of the round; the
client is levied C_i n_i and receives the mean of the others' levies:

    p_i = C_i n_i − (1/(N−1)) Σ_{j≠i} C_j n_j − κ_i,   Σ_i p_i = 0,

where
    p_i is what client i pays (negative: receives),
    n_i is what the rule measures on client i,
    C_i ≥ 0 is the price, one number for all clients or one each,
    κ_i are allowances with Σ_i κ_i = 0 that are fixed before the run.

Absent clients neither pay nor count in N. A new rule is one small class with a `measure`; it needs
no change in the package (`docs/how-to/extend.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.mechanism.statistics import Array, Mask, Statistic, Statistics, checked, refuse


class Rule(Protocol):
    """What a round's statistics say about each client."""

    #: The rule's label. Built-in rules have this name in `terms.toml`.
    name: ClassVar[str]
    #: Which statistic it reads.
    reads: ClassVar[Statistic]
    #: How many participants a round needs before anybody is charged.
    fewest: ClassVar[int]

    def measure(self, statistics: Statistics[Array], present: Mask) -> Array:
        """n_i, shape (…, N), from checked statistics; entries of absent clients are ignored."""
        ...


@dataclass(frozen=True, eq=False)
class Payments:
    """What each client pays in each round (negative: receives).

    Attributes:
        amounts: shape (…, N); zero for absent clients; every round sums to zero.
        charged: shape (…); False where too few clients took part for a payment.
        fewest: how many participants the rule needs.
    """

    amounts: Array
    charged: NDArray[np.bool_]
    fewest: int

    def __str__(self) -> str:
        free = int(self.charged.size - np.count_nonzero(self.charged))
        text = f"payments of {self.amounts.shape[-1]} clients in {self.charged.size} round(s)"
        if not free:
            return text
        return f"{text}; {free} without payment: fewer than {self.fewest} participants"


def pay(
    rule: Rule,
    statistics: Statistics[Any] | ArrayLike,
    price: ArrayLike = 1.0,
    *,
    present: ArrayLike | None = None,
    allowances: ArrayLike | None = None,
) -> Payments:
    """The payments of one round or of many.

    Args:
        rule: what is measured.
        statistics: of the rounds; a plain array is taken as the squared norms, (…, N).
        price: C ≥ 0; a number, one per client (N,), or anything that broadcasts to (…, N): a price
            per round has shape (T, 1).
        present: who took part, booleans that broadcast to (…, N); default: all.
        allowances: κ, broadcasting to (…, N), each round summing to zero. Where clients are absent
            the rest is re-centred, so that the round still balances.

    Example:
        >>> from verax.mechanism import SquaredNorm
        >>> pay(SquaredNorm(), [4.0, 1.0, 1.0], price=0.5).amounts
        array([ 1.5 , -0.75, -0.75])
    """
    given = statistics if isinstance(statistics, Statistics) else Statistics(statistics)
    values, mask = measure(rule, cast("Statistics[Any]", given), present)
    return balance(
        values,
        price,
        None if present is None else mask,
        fewest=rule.fewest,
        allowances=allowances,
    )


def measure(
    rule: Rule, statistics: Statistics[Any], present: ArrayLike | None = None
) -> tuple[Array, Mask]:
    """What a rule measures, with absent clients at zero, and who was present."""
    mask_given = None if present is None else np.asarray(present)
    known, mask = checked(statistics, rule.reads, rule.name, mask_given)
    values = np.asarray(rule.measure(known, mask), dtype=np.float64)
    if values.shape != mask.shape:
        raise ValueError(
            f"rule {rule.name} measured {values.shape} for {mask.shape} clients; "
            "a rule returns one number per client"
        )
    values = values if present is None else np.where(mask, values, 0.0)
    refuse(values, f"what {rule.name} measures")
    return values, mask


def balance(
    measures: Array,
    price: ArrayLike,
    present: Mask | None = None,
    *,
    fewest: int = 2,
    allowances: ArrayLike | None = None,
) -> Payments:
    """p_i = C_i n_i − mean_{j≠i} C_j n_j − κ_i = N/(N−1) (C_i n_i − mean_j C_j n_j) − κ_i.

    Without `present` all took part. The measures of absent clients must be zero.
    """
    levies = _levies(price, measures)
    fewest = max(fewest, 2)
    count = measures.shape[-1] if present is None else present.sum(axis=-1, keepdims=True)

    # In units of the largest levy nothing overflows on the way, and no payment exceeds that levy.
    unit = np.maximum.reduce(np.abs(levies), axis=-1, keepdims=True, initial=0.0)
    shares = levies / (unit + (unit == 0))
    n = np.maximum(count, 2)
    mean = np.add.reduce(shares, axis=-1, keepdims=True) / n
    amounts = (shares - mean) * (n / (n - 1)) * unit
    if allowances is not None:
        here = np.ones(measures.shape, dtype=np.bool_) if present is None else present
        amounts = amounts - _centred_allowances(allowances, here)
    charged = np.full(unit.shape, count >= fewest)
    if present is not None or measures.shape[-1] < fewest:
        amounts = np.where(charged if present is None else present & charged, amounts, 0.0)
    return Payments(amounts, charged[..., 0], fewest)


def spread(values: ArrayLike, clients: ArrayLike, total: int) -> tuple[Array, Mask]:
    """Norms of the participants alone, laid out for all `total` clients.

    Args:
        values: shape (P,), or (P, P) for a Gram matrix.
        clients: the P participants' positions, each once, in 0 … total − 1.
        total: N, the number of clients in the federation.

    Returns:
        Statistics of all clients (zero for the absent) and the mask of those present.

    Example:
        >>> norms, present = spread([4.0, 1.0], clients=[0, 2], total=3)
        >>> norms, present
        (array([4., 0., 1.]), array([ True, False,  True]))
    """
    given = np.asarray(values, dtype=np.float64)
    where = np.asarray(clients)
    if where.size and where.dtype.kind not in "iu":
        raise ValueError(f"clients are whole numbers, not {where.dtype}")
    where = where.astype(np.intp)
    if given.ndim not in (1, 2) or any(side != where.size for side in given.shape):
        raise ValueError(f"{where.size} clients need values of that length, got {given.shape}")
    if where.size and not 0 <= where.min() <= where.max() < total:
        raise ValueError(f"client {where.max()} is outside 0 … {total - 1}")
    if np.unique(where).size != where.size:
        raise ValueError(f"a client stands twice in {where.tolist()}")
    present = np.zeros(total, dtype=np.bool_)
    present[where] = True
    dense = np.zeros((total,) * given.ndim)
    dense[np.ix_(*[where] * given.ndim)] = given
    return dense, present


def _levies(price: ArrayLike, measures: Array) -> Array:
    """C_i n_i."""
    prices = _broadcast("price", price, measures.shape, low=0.0)
    with np.errstate(over="ignore"):
        levies = prices * measures
    refuse(levies, "price × statistic", remedy="; lower the price")
    return levies


def _centred_allowances(allowances: ArrayLike, present: Mask) -> Array:
    kappa = _broadcast("allowance", allowances, present.shape)
    size = np.sum(np.abs(kappa), axis=-1)
    total = np.sum(kappa, axis=-1)
    if np.any(np.abs(total) > 1e-9 * size):
        worst = float(total.flat[np.argmax(np.abs(total))])
        raise ValueError(f"allowances must sum to zero, these sum to {worst:.6g}")
    here = np.where(present, kappa, 0.0)
    count = np.maximum(np.count_nonzero(present, axis=-1), 1)[..., None]
    return here - np.sum(here, axis=-1, keepdims=True) / count


def _broadcast(
    what: str, value: ArrayLike, shape: tuple[int, ...], low: float = -np.inf
) -> NDArray[np.float64]:
    array = np.asarray(value, dtype=np.float64)
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{what} of shape {array.shape} does not fit rounds × clients {shape}; "
            "give one number, one per client (N,) or one per round (T, 1)"
        ) from None
    refuse(array, what, low)
    return array
