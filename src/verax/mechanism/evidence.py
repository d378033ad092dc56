"""What members and the operator sign: statements of what was sent, and receipts for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verax.documents import check_choice
from verax.mechanism.changes import PUBLIC_KEY

#: Whether members sign what they send: never; if they have a key; or always, so that an update
#: without a valid statement is rejected.
Signed = Literal["none", "optional", "required"]


@dataclass(frozen=True)
class EvidenceTerms:
    """The evidence that a federation keeps.

    Attributes:
        signed: whether members sign what they send.
        operator: the operator's public key (C2SP: name+id+key), which receipts are signed with;
            empty: there are no receipts.
    """

    signed: Signed = "none"
    operator: str = ""

    def __post_init__(self) -> None:
        check_choice("evidence.signed", self.signed, Signed)
        if self.operator and not PUBLIC_KEY.fullmatch(self.operator):
            raise ValueError(
                f"evidence.operator is {self.operator!r}, must be name+id+key, as "
                "`verax ledger key --name` prints it"
            )
