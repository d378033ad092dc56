"""What members may see of each other in the console.

A squared norm says how far a member's data pull the model, and lies outside any (ε, δ) claim about
the model. So members see nothing of each other unless the terms say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verax.documents import check_choice

#: What a member sees: its own numbers, or those of all members.
Shown = Literal["own", "all"]


@dataclass(frozen=True)
class Openness:
    """What the console shows to a member.

    Attributes:
        amounts: whose payments and balances.
        norms: whose squared norms.
    """

    amounts: Shown = "own"
    norms: Shown = "own"

    def __post_init__(self) -> None:
        check_choice("openness.amounts", self.amounts, Shown)
        check_choice("openness.norms", self.norms, Shown)
