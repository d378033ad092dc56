"""How a federation trains.

FedSGD: every client sends the gradient of one batch, and the server steps θ − γ · aggregate.
FedAvg: every client takes L local steps of size γ, each on a fresh batch, and sends θ − θ_local;
the server steps by the aggregate itself. With L = 1 FedAvg's message is γ times FedSGD's and both
give the same model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from verax.documents import check_choice
from verax.learning.aggregators import Aggregator, Mean

Kind = Literal["fedsgd", "fedavg"]


@dataclass(frozen=True)
class Protocol:
    """How the federation trains.

    Attributes:
        kind: "fedsgd" or "fedavg".
        step: γ.
        batch: samples per gradient.
        local_steps: L of FedAvg.
        aggregator: what the server makes of the messages.
        participation: the share of clients that take part in a round.
    """

    kind: Kind = "fedsgd"
    step: float = 0.06
    batch: int = 32
    local_steps: int = 1
    aggregator: Aggregator = field(default_factory=Mean)
    participation: float = 1.0

    def __post_init__(self) -> None:
        check_choice("protocol", self.kind, Kind)
        if not 0 < self.step < float("inf"):
            raise ValueError(f"step is {self.step:g}, must be a finite number > 0")
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}, must be ≥ 1")
        if self.local_steps < 1 or (self.kind == "fedsgd" and self.local_steps != 1):
            raise ValueError(
                f"local steps are {self.local_steps}, must be ≥ 1, and 1 for FedSGD: use fedavg"
            )
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation is {self.participation:g}, must be in (0, 1]")

    @property
    def server_step(self) -> float:
        """By what the server multiplies the aggregate."""
        return self.step if self.kind == "fedsgd" else 1.0

    def __str__(self) -> str:
        name = "FedSGD" if self.kind == "fedsgd" else f"FedAvg with {self.local_steps} local steps"
        text = f"{name}, step {self.step:g}, batch {self.batch}"
        if self.aggregator != Mean():
            text += f", {self.aggregator.name}"
        if self.participation < 1:
            text += f", {self.participation:.0%} of the clients a round"
        return text
