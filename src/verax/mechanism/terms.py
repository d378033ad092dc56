"""The terms of a federation: what is agreed on before it starts, as one frozen value and one TOML.

They join the three verbs: an audit proposes them, the payment layer charges by them, the ledger
keeps every version. Prices and allowances are fixed in advance; one that followed a client's own
messages could be gamed.
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tomli_w
from numpy.typing import NDArray

from verax.fields import Fields
from verax.mechanism.groves_ledyard import GrovesLedyard
from verax.mechanism.no_payment import NoPayment
from verax.mechanism.profile import Blocks
from verax.mechanism.rule import Rule
from verax.mechanism.spot_audit import SpotAudit
from verax.mechanism.squared_distance import SquaredDistance
from verax.mechanism.squared_norm import SquaredNorm

__all__ = ["RULES", "Action", "Policy", "Price", "Terms", "WeightKind", "Weights"]

Array = NDArray[np.float64]
Row = tuple[float, ...]

#: The rules by the name they have in `terms.toml`.
RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (SquaredNorm(), SquaredDistance(), GrovesLedyard(), SpotAudit(), NoPayment())
}

#: What an update that did not come, was broken, or failed costs: nothing; a fixed fee that the
#: participants share; or what the largest update of the round costs.
Action = Literal["excuse", "flat-fee", "largest"]

#: How updates are weighed in the aggregate: all the same; by the clients' own word (then the
#: *effective* update, weight × N × update, is charged); or by a table fixed here.
WeightKind = Literal["equal", "reported", "fixed"]


@dataclass(frozen=True)
class Price:
    """C_{t,i}: a price per block of rounds, for all members (one number) or each, discounted.

    C_{t,i} = values[block of t][i] · (1 − discount)^{rounds − t}. One block and no discount is a
    constant price, for which `rounds` may be left open (0).
    """

    values: tuple[Row, ...]
    starts: tuple[int, ...] = (1,)
    discount: float = 0.0
    rounds: int = 0

    def __post_init__(self) -> None:
        _rows("price.values", self.values, len(self.starts), low=0.0)
        if not 0 <= self.discount < 1:
            raise ValueError(f"price.discount is {self.discount:g}, must be in [0, 1)")
        if (self.discount or len(self.starts) > 1) and self.rounds < 1:
            raise ValueError("price.rounds is missing: a price that changes needs the last round")
        try:
            Blocks(self.starts, self.rounds or 1)
        except ValueError as error:
            raise ValueError(f"price.starts: {error}") from None

    @classmethod
    def constant(cls, value: float | Row) -> Price:
        """The same price in every round: one number, or one per member."""
        return cls((_row(value),))

    @classmethod
    def profile(cls, blocks: Blocks, values: Array) -> Price:
        """Prices per block, (K,) or (K, N)."""
        rows = tuple(_row(value) for value in values.tolist())
        return cls(rows, blocks.starts, rounds=blocks.rounds)

    def at(self, round_: int) -> Array:
        """C of a round, shape (1,) or (N,)."""
        block = self.block(round_)
        return np.asarray(self.values[block]) * (1 - self.discount) ** (self.rounds - round_)

    def block(self, round_: int) -> int:
        """Which block a round belongs to."""
        if round_ < 1 or (self.rounds and round_ > self.rounds):
            last = self.rounds or "∞"
            raise ValueError(f"round {round_} is outside the terms' rounds 1 … {last}")
        return bisect_right(self.starts, round_) - 1


@dataclass(frozen=True)
class Weights:
    """How the updates are weighed, and for `fixed` by how much, one number per member."""

    kind: WeightKind = "reported"
    values: Row = ()

    def __post_init__(self) -> None:
        _choice("weights.kind", self.kind, WeightKind)
        if (self.kind == "fixed") != bool(self.values):
            raise ValueError('weights.values belong to weights.kind = "fixed", and only there')
        for value in self.values:
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"weights.values holds {value:g}, must be finite numbers > 0")


@dataclass(frozen=True)
class Policy:
    """What an update costs that is missing, was rejected as broken, or ended in an error."""

    missing: Action = "excuse"
    rejected: Action = "largest"
    error: Action = "excuse"
    fee: float = 0.0

    def __post_init__(self) -> None:
        for name in ("missing", "rejected", "error"):
            _choice(f"policy.{name}", getattr(self, name), Action)
        if not (math.isfinite(self.fee) and self.fee >= 0):
            raise ValueError(f"policy.fee is {self.fee:g}, must be a finite number ≥ 0")
        if "flat-fee" in (self.missing, self.rejected, self.error) and self.fee == 0:
            raise ValueError("policy.fee is missing: a flat fee needs an amount > 0")


@dataclass(frozen=True)
class Terms:
    """Everything that decides what a round costs.

    Attributes:
        price: C_{t,i}.
        rule: a name in `RULES`.
        members: names, in the order of prices, allowances and weights that differ by member.
        allowances: κ_i per round, one row per block of the price (or one for all); each sums to
            zero. Empty: none.
        weights: how updates are weighed.
        policy: what missing, broken and failed updates cost.
        currency: a label.
        scale: decimal places of the currency's smallest unit in the books.

    Example:
        >>> terms = Terms(Price.constant(5e-5), currency="EUR", scale=2)
        >>> Terms.from_toml(terms.to_toml()) == terms
        True
    """

    price: Price
    rule: str = SquaredNorm.name
    members: tuple[str, ...] = ()
    allowances: tuple[Row, ...] = ()
    weights: Weights = field(default_factory=Weights)
    policy: Policy = field(default_factory=Policy)
    currency: str = "credits"
    scale: int = 6

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule is {self.rule!r}, must be one of {', '.join(RULES)}")
        if len(set(self.members)) != len(self.members) or "" in self.members:
            raise ValueError(f"members must be different, non-empty names, got {self.members}")
        if not 0 <= self.scale <= 18:
            raise ValueError(f"scale is {self.scale}, must be 0 … 18 decimal places")
        if not self.currency.strip():
            raise ValueError("currency is empty, must be a label such as EUR")
        self._check_members("price.values", *self.price.values)
        self._check_members("weights.values", self.weights.values or (1.0,))
        if self.allowances:
            blocks = len(self.price.starts) if len(self.allowances) > 1 else 1
            _rows("allowances", self.allowances, blocks)
            self._check_members("allowances", *self.allowances, alone=False)
            for row in self.allowances:
                if abs(sum(row)) > 1e-9 * sum(map(abs, row)):
                    raise ValueError(f"allowances must sum to zero, {row} sums to {sum(row):.6g}")

    def _check_members(self, name: str, *rows: Row, alone: bool = True) -> None:
        for row in rows:
            if not (alone and len(row) == 1) and len(row) != len(self.members):
                raise ValueError(
                    f"{name} has {len(row)} numbers for {len(self.members)} members; "
                    "list `members` in the same order"
                )

    def allowances_at(self, round_: int) -> Array | None:
        """κ of a round, shape (N,), or None."""
        if not self.allowances:
            return None
        return np.asarray(self.allowances[min(self.price.block(round_), len(self.allowances) - 1)])

    def to_toml(self, comment: str = "") -> str:
        """The TOML form; each line of `comment` stands before it."""
        price: dict[str, Any] = {"values": _plain(self.price.values)}
        if len(self.price.starts) > 1:
            price["starts"] = list(self.price.starts)
        if self.price.discount:
            price["discount"] = self.price.discount
        if self.price.rounds:
            price["rounds"] = self.price.rounds
        document: dict[str, Any] = {
            "rule": self.rule,
            "currency": self.currency,
            "scale": self.scale,
        }
        if self.members:
            document["members"] = list(self.members)
        if self.allowances:
            document["allowances"] = [list(row) for row in self.allowances]
        document["price"] = price
        weights: dict[str, Any] = {"kind": self.weights.kind}
        if self.weights.values:
            weights["values"] = list(self.weights.values)
        document["weights"] = weights
        document["policy"] = {
            "missing": self.policy.missing,
            "rejected": self.policy.rejected,
            "error": self.policy.error,
            "fee": self.policy.fee,
        }
        head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
        return head + tomli_w.dumps(document)

    @classmethod
    def from_toml(cls, text: str) -> Terms:
        """Read the TOML form; unknown and missing fields, wrong types and values are refused."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"not TOML: {error}") from None
        table = Fields(document)
        price = table.table("price")
        weights = table.table("weights", optional=True)
        policy = table.table("policy", optional=True)
        terms = cls(
            price=Price(
                values=price.rows("values"),
                starts=price.integers("starts", (1,)),
                discount=price.number("discount", 0.0),
                rounds=price.integer("rounds", 0),
            ),
            rule=table.text("rule", SquaredNorm.name),
            members=table.texts("members"),
            allowances=table.rows("allowances") if "allowances" in table else (),
            weights=Weights(
                kind=weights.text("kind", "reported"),
                values=weights.numbers("values", ()),
            ),
            policy=Policy(
                missing=policy.text("missing", "excuse"),
                rejected=policy.text("rejected", "largest"),
                error=policy.text("error", "excuse"),
                fee=policy.number("fee", 0.0),
            ),
            currency=table.text("currency", "credits"),
            scale=table.integer("scale", 6),
        )
        for part in (price, weights, policy, table):
            part.refuse_rest()
        return terms

    @classmethod
    def load(cls, path: str | Path) -> Terms:
        """Read a `terms.toml`; the error names the file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None


def _row(value: float | Row | list[float]) -> Row:
    return tuple(map(float, value)) if isinstance(value, tuple | list) else (float(value),)


def _plain(rows: tuple[Row, ...]) -> Any:
    """Numbers instead of lists of one number; one row alone instead of a list of rows."""
    if all(len(row) == 1 for row in rows):
        return rows[0][0] if len(rows) == 1 else [row[0] for row in rows]
    return [list(row) for row in rows]


def _rows(name: str, rows: tuple[Row, ...], blocks: int, low: float = -math.inf) -> None:
    if len(rows) != blocks:
        raise ValueError(f"{name} has {len(rows)} rows for {blocks} block(s) of rounds")
    if not rows or any(not row or len(row) != len(rows[0]) for row in rows):
        raise ValueError(f"{name} needs rows of the same length, one number or one per member")
    for row in rows:
        for value in row:
            if not math.isfinite(value) or value < low:
                raise ValueError(f"{name} holds {value:g}, must be a finite number ≥ {low:g}")


def _choice(name: str, value: str, kind: Any) -> None:
    if value not in get_args(kind):
        raise ValueError(f"{name} is {value!r}, must be one of {', '.join(get_args(kind))}")
