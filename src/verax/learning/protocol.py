"""How a federation trains.

FedSGD: every client sends the gradient of one batch, and the server steps θ − γ · aggregate.
FedAvg: every client takes L local steps of size γ, each on a fresh batch, and sends θ − θ_local;
the server steps by the aggregate itself. With L = 1 FedAvg's message is γ times FedSGD's and both
give the same model. With local epochs, as most federations train, a client takes as many steps as
it has full batches; samples that do not fill a batch are left out, other ones in every epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
        local_steps: L of FedAvg, where clients do not train for epochs.
        epochs: of FedAvg: how often a client goes through its samples in a round; 0: the number of
            local steps is given.
        aggregator: what the server makes of the messages.
        participation: the share of clients that take part in a round.
    """

    kind: Kind = "fedsgd"
    step: float = 0.06
    batch: int = 32
    local_steps: int = 1
    epochs: int = 0
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
        if self.epochs < 0 or (self.epochs and (self.kind == "fedsgd" or self.local_steps != 1)):
            raise ValueError(
                f"epochs are {self.epochs}, must be ≥ 0, and 0 for FedSGD or where local steps are "
                "given"
            )
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation is {self.participation:g}, must be in (0, 1]")

    def steps_of(self, sizes: NDArray[np.intp]) -> NDArray[np.intp]:
        """How many local steps clients with so many samples take in a round."""
        if not self.epochs:
            return np.full(len(sizes), self.local_steps)
        if np.min(sizes) < self.batch:
            raise ValueError(
                f"batch is {self.batch}, must be at most {np.min(sizes)}, the samples of the "
                "smallest client: an epoch needs one batch at least"
            )
        return self.epochs * (sizes // self.batch)

    @property
    def server_step(self) -> float:
        """By what the server multiplies the aggregate."""
        return self.step if self.kind == "fedsgd" else 1.0

    def __str__(self) -> str:
        text = f"FedAvg with {self.local_steps} local steps"
        if self.kind == "fedsgd":
            text = "FedSGD"
        elif self.epochs:
            text = f"FedAvg with {self.epochs} local epoch" + ("s" if self.epochs > 1 else "")
        text += f", step {self.step:g}, batch {self.batch}"
        if self.aggregator != Mean():
            text += f", {self.aggregator.name}"
        if self.participation < 1:
            text += f", {self.participation:.0%} of the clients a round"
        return text
