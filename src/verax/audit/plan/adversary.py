"""The audits of `verax reproduce adversary`: what a clever member gains on five federations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verax.audit.plan.plan import Plan


@dataclass(frozen=True)
class AdversarySetting:
    """One federation against which everything is tried.

    Attributes:
        name: of its folder.
        words: what it is.
        options: of the plan, by their names on the command line.
    """

    name: str
    words: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def plan(self, **changes: Any) -> Plan:
        """The plan of its audit."""
        return Plan.of(**{**self.options, **changes})


_FEDSGD = {"protocol": "fedsgd"}

SETTINGS = (
    AdversarySetting("fedavg", "digits, softmax, FedAvg with one local epoch, 30 rounds (default)"),
    AdversarySetting(
        "cancer",
        "breast cancer, logistic, four hospitals, FedAvg with one local epoch, 30 rounds",
        {"task": "cancer", "clients": 4},
    ),
    AdversarySetting(
        "trained",
        "digits, softmax, FedSGD with batches of 32, 300 rounds, step 0.5",
        {**_FEDSGD, "model": "softmax", "rounds": 300, "step": 0.5, "search": "quick"},
    ),
    AdversarySetting(
        "mlp", "digits, MLP, FedSGD with batches of 32, 1,000 rounds, step 0.06", _FEDSGD
    ),
    AdversarySetting(
        "mlp-batch-128",
        "the same with batches of 128",
        {**_FEDSGD, "batch": 128},
    ),
)
