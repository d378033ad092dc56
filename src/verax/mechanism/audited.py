"""What an audit measured, so that a payment layer can see whether its prices fit.

A price belongs to one kind of message. A gradient g and the model difference −γg that it causes
have squared norms that differ by γ², so the price of one is wrong for the other by 1/γ². An audit
therefore also states the band of honest effective squared norms ((1 + E_i) w_i)² ‖m_i‖²
(`verax.mechanism.weights`), per block of rounds, over all members and seeds.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from verax.documents import check_choice
from verax.mechanism.price import Blocks
from verax.mechanism.weights import WeightKind

#: What a member sends: a gradient, or its model minus the one that it was sent.
MessageKind = Literal["gradient", "model difference"]


@dataclass(frozen=True)
class Audited:
    """What the prices of the terms were audited for.

    Attributes:
        message: what a member sends.
        protocol: the protocol in words, such as "FedSGD, step 0.06, mean".
        local_work: what a member does in a round, in words, such as "1 gradient of 32 samples".
        rounds: the number of rounds.
        weights: how updates are weighed.
        members: the number of members.
        starts: the first round of each block of the band.
        lowest: the lowest honest effective squared norm of each block, over members and seeds.
        highest: the highest one of each block.
        audit: the name of the audit.
        digest: SHA-256 of the audit's record, in hexadecimal digits.
        versions: versions of the software, such as "verax 0.2.0, flwr 1.41.0, numpy 2.4.6".
    """

    message: MessageKind
    protocol: str
    local_work: str
    rounds: int
    weights: WeightKind
    members: int
    starts: tuple[int, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    audit: str
    digest: str
    versions: str

    def __post_init__(self) -> None:
        check_choice("audited.message", self.message, MessageKind)
        check_choice("audited.weights", self.weights, WeightKind)
        for name, low in (("rounds", 1), ("members", 2)):
            if getattr(self, name) < low:
                raise ValueError(f"audited.{name} is {getattr(self, name)}, must be ≥ {low}")
        try:
            Blocks(self.starts, self.rounds)
        except ValueError as error:
            raise ValueError(f"audited.starts: {error}") from None
        if not len(self.starts) == len(self.lowest) == len(self.highest):
            raise ValueError(
                f"audited.starts, lowest and highest have {len(self.starts)}, {len(self.lowest)} "
                f"and {len(self.highest)} numbers, must have one per block each"
            )
        for low, high in zip(self.lowest, self.highest, strict=True):
            if not 0 <= low <= high < math.inf:
                raise ValueError(
                    f"audited.lowest holds {low:g} and audited.highest {high:g} for one block, "
                    "must be finite numbers with 0 ≤ lowest ≤ highest"
                )
        if not re.fullmatch(r"[0-9a-f]{64}", self.digest):
            raise ValueError(f"audited.digest is {self.digest!r}, must be 64 hexadecimal digits")

    def band(self, round_: int) -> tuple[float, float]:
        """Lowest and highest honest effective squared norm of a round's block.

        A round after the last audited one has the band of the last block.
        """
        if round_ < 1:
            raise ValueError(f"round is {round_}, must be ≥ 1")
        block = bisect_right(self.starts, round_) - 1
        return self.lowest[block], self.highest[block]
