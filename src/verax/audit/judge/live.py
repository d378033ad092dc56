"""What the norms in a book allow to say about a federation that runs, or ran.

The book holds ‖m_{i,t}‖² and the price, nothing else of training. From them follow, exactly: what
each member paid; its *tax*, what it paid per round while (if) everybody was honest; how the
payments would have been at another constant price C, for the trajectory does not depend on C:

    P_i(C) = C · Q_i,   Q_i = Σ_t [n_{i,t} − mean_{j≠i} n_{j,t}] over the rounds charged;

who gains as C rises (Q_i < 0) and who pays for it; and whether a member's place among the others
drifts. Whether anybody *would gain by misreporting* is a matter of losses, which a book does not
hold: that takes an audit of a matching task, whose windows are set beside these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from verax.amounts import money, number
from verax.audit.judge.windows import interval
from verax.mechanism import SquaredNorm, pay

Array = NDArray[np.float64]

#: What norms alone cannot tell; printed with every judgement.
CANNOT_TELL = (
    "whether anybody misreports: a member that scaled its updates from the first round on looks "
    "like one with larger gradients",
    "whether anybody would gain by misreporting, or at which price not: rewards are not in a book",
    "directions: a message of the right size and the wrong direction has the right norm",
    "two members that act together, or one member with two identities",
)


@dataclass(frozen=True)
class LiveMember:
    """One member over the rounds of a run.

    Attributes:
        name: its label.
        rounds: in how many rounds its update counted.
        absent: in how many it was missing, rejected or failed.
        paid: in currency, as booked (negative: received).
        tax: mean payment per round in which it was in the book.
        tax_interval: 95 % interval of that mean, rounds taken as independent.
        norm: mean squared norm as it counted.
        margin: Q_i, what its total payment rises by per unit of a constant C.
        drift: growth per round of its place among the others (log squared norm less the median of
            the round), with a 95 % interval; None with fewer than 8 rounds.
        drift_interval: of the drift.
        window: of the matching audit's constant price, (low, high), if there is one.
        inside: whether the mean price charged lies in that window.
    """

    name: str
    rounds: int
    absent: int
    paid: float
    tax: float
    tax_interval: tuple[float, float]
    norm: float
    margin: float
    drift: float | None
    drift_interval: tuple[float, float] | None
    window: tuple[float | None, float | None] | None = None
    inside: bool | None = None


@dataclass(frozen=True)
class Live:
    """A judgement from a book.

    Attributes:
        federation: its name.
        run: which run.
        rounds: how many rounds it has.
        charged: in how many anybody paid.
        currency: of the amounts.
        price: mean price charged, over rounds (and members, if they differ).
        members: by name.
    """

    federation: str
    run: str
    rounds: int
    charged: int
    currency: str
    price: float
    members: tuple[LiveMember, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"cannot_tell": list(CANNOT_TELL)}

    def sentences(self) -> list[str]:
        """The judgement in a few sentences."""
        lines = [
            f"{self.federation}, run {self.run}: {self.rounds} rounds, {self.charged} charged, "
            f"mean price {self.price:.4g} {self.currency} per unit of squared norm."
        ]
        for member in sorted(self.members, key=lambda one: -one.paid):
            low, high = member.tax_interval
            lines.append(
                f"{member.name}: {'paid' if member.paid >= 0 else 'received'} "
                f"{money(abs(member.paid), self.currency)}, per round "
                f"{number(member.tax, sign=True)} [{number(low)}, {number(high)}]"
                + (f"; {member.absent} rounds without a valid update" if member.absent else "")
                + _drift_words(member)
                + "."
            )
        gains = [member.name for member in self.members if member.margin < 0]
        pays = [member.name for member in self.members if member.margin > 0]
        if gains and pays:
            lines.append(
                f"As messages stand, a higher C would favour {', '.join(gains)} at the expense of "
                f"{', '.join(pays)}; allowances can take that off without changing any incentive."
            )
        for member in self.members:
            if member.window is not None:
                low, high = member.window
                words = "none" if low is None else f"{low:.3g} … {'∞' if high is None else high}"
                where = "inside" if member.inside else "OUTSIDE"
                lines.append(
                    f"{member.name}: the audit's window of a constant C is {words}; the mean price "
                    f"charged is {where} it."
                )
        if all(member.window is None for member in self.members):
            lines.append(
                "No audit of a matching task was given (--matching FOLDER), so nothing is said "
                "about who would gain from misreporting."
            )
        return lines


def judge_live(
    federation: str,
    run: str,
    contents: Iterable[Mapping[str, Any]],
    labels: Mapping[int, str],
    currency: str,
    scale: int,
    matching: Mapping[str, Any] | None = None,
) -> Live:
    """Judge the rounds of a run.

    Args:
        federation: its name.
        run: the run's name.
        contents: the round records of the book, in order.
        labels: account numbers to names.
        currency: of the amounts.
        scale: decimal places of a unit.
        matching: the `audit.json` of a matching task; its clients are matched by name, or, when
            their numbers agree, by order.
    """
    rounds = list(contents)
    if not rounds:
        raise ValueError(f"run {run!r} of {federation!r} has no rounds in the book")
    numbers = sorted({account for content in rounds for account in content["accounts"]})
    names = [labels[account] for account in numbers]
    norms, present, amounts, listed = _columns(rounds, numbers, scale)
    prices = np.array([float(np.mean(content["price"])) for content in rounds])
    shares = pay(SquaredNorm(), np.where(present, norms, 0.0), present=present)
    price = float(prices.mean())
    if matching is not None:
        _refuse_unlike(matching, rounds)
    windows = _windows(names, matching)
    members: list[LiveMember] = []
    for i, name in enumerate(names):
        mine = amounts[listed[:, i], i]
        window = None if windows is None else windows[i]
        drift, band = _drift(norms, present, i)
        members.append(
            LiveMember(
                name=name,
                rounds=int(present[:, i].sum()),
                absent=int((listed[:, i] & ~present[:, i]).sum()),
                paid=float(mine.sum()),
                tax=float(mine.mean()),
                tax_interval=interval(mine)[1:],
                norm=float(norms[present[:, i], i].mean()) if present[:, i].any() else 0.0,
                margin=float(shares.amounts[:, i].sum()),
                drift=drift,
                drift_interval=band,
                window=window,
                inside=None if window is None else _within(price, window),
            )
        )
    charged = int(np.count_nonzero(np.any(amounts != 0, axis=1)))
    return Live(federation, run, len(rounds), charged, currency, price, tuple(members))


def _columns(
    rounds: list[Mapping[str, Any]], numbers: list[int], scale: int
) -> tuple[Array, NDArray[np.bool_], Array, NDArray[np.bool_]]:
    """Norms, who counted, amounts, who was in the book; (rounds, members) each."""
    place = {account: i for i, account in enumerate(numbers)}
    shape = (len(rounds), len(numbers))
    norms, amounts = np.full(shape, np.nan), np.zeros(shape)
    present, listed = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for t, content in enumerate(rounds):
        ok = [n for n in content["accounts"] if str(n) not in content["statuses"]]
        if content["gram"] is None:
            values = [value for value in content["statistics"] if value is not None]
        else:
            values = [row[k] for k, row in enumerate(content["gram"])]
        for account, value in zip(ok, values, strict=True):
            norms[t, place[account]], present[t, place[account]] = value, True
        for account, units in zip(content["accounts"], content["amounts"], strict=True):
            amounts[t, place[account]], listed[t, place[account]] = units / 10**scale, True
    return norms, present, amounts, listed


def _drift(
    norms: Array, present: NDArray[np.bool_], i: int
) -> tuple[float | None, tuple[float, float] | None]:
    """The growth per round of log n_i less the median over members, with a 95 % interval."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(present & (norms > 0), np.log(norms), np.nan)
    rows = np.isfinite(logs[:, i]) & (np.count_nonzero(np.isfinite(logs), axis=1) >= 2)
    if np.count_nonzero(rows) < 8:
        return None, None
    others = np.delete(logs, i, axis=1)[rows]
    place = logs[rows, i] - np.nanmedian(others, axis=1)
    fit: Any = scipy.stats.linregress(np.flatnonzero(rows), place)
    half = float(scipy.stats.t.ppf(0.975, len(place) - 2) * fit.stderr)
    return float(fit.slope), (float(fit.slope) - half, float(fit.slope) + half)


def _drift_words(member: LiveMember) -> str:
    if member.drift is None or member.drift_interval is None:
        return ""
    low, high = member.drift_interval
    if low <= 0 <= high:
        return "; no drift seen"
    return f"; its norm drifts by {np.expm1(member.drift):+.2%} a round against the others"


def _refuse_unlike(matching: Mapping[str, Any], rounds: list[Mapping[str, Any]]) -> None:
    """Only like is compared with like: constant prices of the same kind of message."""
    if matching["message"] == "gradient":
        raise ValueError(
            "the audit is of gradients, and the book holds the norms of model differences: prices "
            "of the two differ by about 1/step²; audit the app itself, verax audit --app FOLDER"
        )
    prices = [price for content in rounds for price in np.ravel(content["price"]).tolist()]
    if max(prices) > min(prices) * (1 + 1e-9):
        raise ValueError(
            f"prices in the book go from {min(prices):.4g} to {max(prices):.4g}, and an audit's "
            "windows are compared with one constant price; the [audited] table of the terms says "
            "which audit they come from"
        )


def _windows(
    names: list[str], matching: Mapping[str, Any] | None
) -> list[tuple[float | None, float | None] | None] | None:
    if matching is None:
        return None
    clients = matching["clients"]
    by_name = {client["name"]: client for client in clients}
    if not set(names) & by_name.keys():
        if len(clients) != len(names):
            raise ValueError(
                f"the audit has {len(clients)} clients, the book {len(names)} members, and no name "
                "in common; give the audit of a matching task"
            )
        by_name = dict(zip(names, clients, strict=True))
    windows: list[tuple[float | None, float | None] | None] = []
    for name in names:
        client = by_name.get(name)
        constant = None
        if client is not None:
            constant = next(w for w in client["windows"] if w["schedule"] == "constant")
        windows.append(None if constant is None else (constant["low"], constant["high"]))
    return windows


def _within(price: float, window: tuple[float | None, float | None]) -> bool:
    low, high = window
    return low is not None and low <= price <= (np.inf if high is None else high)
