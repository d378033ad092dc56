"""How the updates of a round are weighed in the aggregate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from verax.documents import check_choice
from verax.mechanism.price import Row

#: How updates are weighed in the aggregate: all the same; by the clients' own word (then the
#: *effective* update, weight × N × update, is charged); or by a table fixed here.
WeightKind = Literal["equal", "reported", "fixed"]


@dataclass(frozen=True)
class Weights:
    """How the updates are weighed, and for `fixed` by how much, one number per member."""

    kind: WeightKind = "reported"
    values: Row = ()

    def __post_init__(self) -> None:
        check_choice("weights.kind", self.kind, WeightKind)
        if (self.kind == "fixed") != bool(self.values):
            raise ValueError('weights.values belong to weights.kind = "fixed", and only there')
        for value in self.values:
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"weights.values holds {value:g}, must be finite numbers > 0")
