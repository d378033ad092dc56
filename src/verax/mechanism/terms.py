"""The terms of a federation: what is agreed on before it starts, as one frozen value and one TOML.

They join the three verbs: an audit proposes them, the payment layer charges by them, the ledger
keeps every version. Prices and allowances are fixed in advance; one that followed a client's own
messages could be gamed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy as np

from verax import documents
from verax.documents import check_choice
from verax.mechanism.arrays import Arrays
from verax.mechanism.audited import Audited
from verax.mechanism.changes import Changes
from verax.mechanism.evidence import EvidenceTerms
from verax.mechanism.openness import Openness
from verax.mechanism.price import Array, Price, Row, check_rows
from verax.mechanism.rules import check_rule_name
from verax.mechanism.spot_checks import SpotChecks
from verax.mechanism.squared_norm import SquaredNorm
from verax.mechanism.weights import Weights
from verax.text import shown

#: What an update that did not come, was broken, or failed costs: nothing; a fixed fee that the
#: participants share; or what the largest update of the round costs.
Action = Literal["excuse", "flat-fee", "largest"]

#: Stands for whatever a missing update costs.
_AS_MISSING = cast("Action", "")

#: What happens if norms in the first rounds lie outside the band that was audited.
Outside = Literal["warn", "stop"]


@dataclass(frozen=True)
class FailurePolicy:
    """What an update costs that is missing, was rejected as broken, or ended in an error.

    Attributes:
        missing: the cost of an update that did not come.
        rejected: the cost of a broken one.
        error: the cost of an error; by default, what a missing update costs: otherwise whoever
            would be charged for silence sends an error instead.
        fee: the amount of `flat-fee`.
        outside: whether norms outside the audited band are logged, or stop the run.
    """

    missing: Action = "excuse"
    rejected: Action = "largest"
    error: Action = _AS_MISSING
    fee: float = 0.0
    outside: Outside = "warn"

    def __post_init__(self) -> None:
        if self.error == _AS_MISSING:
            object.__setattr__(self, "error", self.missing)
        for name in ("missing", "rejected", "error"):
            check_choice(f"policy.{name}", getattr(self, name), Action)
        check_choice("policy.outside", self.outside, Outside)
        if not (math.isfinite(self.fee) and self.fee >= 0):
            raise ValueError(f"policy.fee is {self.fee:g}, must be a finite number ≥ 0")
        if "flat-fee" in (self.missing, self.rejected, self.error) and self.fee == 0:
            raise ValueError("policy.fee is missing: a flat fee needs an amount > 0")


@dataclass(frozen=True)
class Terms:
    """Everything that decides what a round costs.

    Attributes:
        price: C_{t,i}.
        rule: the name of a built-in rule, or `module:name`.
        members: names, in the order of prices, allowances and weights that differ by member.
        allowances: κ_i per round, one row per block of the price (or one for all); each sums to
            zero. Empty: none.
        weights: how updates are weighed.
        policy: what missing, broken and failed updates cost.
        currency: a label.
        scale: decimal places of the currency's smallest unit in the books.
        arrays: which arrays of the model are charged.
        worth: what a unit of the reward is worth to each member, as the prices assume: one amount
            for all members, or one per member. Empty: 1 for all.
        changes: the notice and the witnesses that changes need; None: nothing.
        evidence: what members and the operator sign; None: nothing.
        spot: how drawn rounds are recomputed and fined after a run; None: not at all.
        audited: what the prices were audited for; None if nothing says it.
        openness: what members see of each other in the console; None: nothing.

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
    policy: FailurePolicy = field(default_factory=FailurePolicy)
    currency: str = "credits"
    scale: int = 6
    arrays: Arrays = field(default_factory=Arrays)
    worth: Row = ()
    changes: Changes | None = None
    evidence: EvidenceTerms | None = None
    spot: SpotChecks | None = None
    audited: Audited | None = None
    openness: Openness | None = None

    def __post_init__(self) -> None:
        check_rule_name(self.rule)
        if len(set(self.members)) != len(self.members) or "" in self.members:
            raise ValueError(
                f"members must be different, non-empty names, got {shown(self.members, 500)}"
            )
        if not 0 <= self.scale <= 18:
            raise ValueError(f"scale is {self.scale}, must be 0 … 18 decimal places")
        if not self.currency.strip() or not self.currency.isprintable():
            raise ValueError(
                f"currency is {shown(self.currency)}, must be a visible label such as EUR"
            )
        self._check_members("price.values", *self.price.values)
        self._check_members("weights.values", self.weights.values or (1.0,))
        self._check_members("worth", self.worth or (1.0,))
        if not all(math.isfinite(value) and value > 0 for value in self.worth):
            raise ValueError(f"worth is {list(self.worth)}, must be finite numbers > 0")
        if self.spot is not None and (self.evidence is None or self.evidence.signed == "none"):
            raise ValueError(
                "spot checks compare with what members signed: write evidence.signed = "
                '"required" (or "optional")'
            )
        if self.allowances:
            blocks = len(self.price.starts) if len(self.allowances) > 1 else 1
            check_rows("allowances", self.allowances, blocks)
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

    @property
    def are_uniform(self) -> bool:
        """Whether prices, allowances and weights are the same for all members."""
        rows = (*self.price.values, *self.allowances, self.weights.values)
        return all(len(set(row)) <= 1 for row in rows)

    def to_toml(self, comment: str = "") -> str:
        """The TOML form; each line of `comment` stands before it."""
        return documents.to_toml(self, comment)

    @classmethod
    def from_toml(cls, text: str) -> Terms:
        """Read the TOML form; unknown and missing fields, wrong types and values are refused."""
        return documents.from_toml(cls, text)

    @classmethod
    def load(cls, path: str | Path) -> Terms:
        """Read a `terms.toml`; the error names the file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None
