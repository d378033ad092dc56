"""What members may demand of changes that somebody decides on: notice, and witnesses.

A witness is somebody who watches that a book only grows and signs what it has seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verax.text import shown

#: What may need the signatures of witnesses: settlements, corrections, new terms, deposits, a new
#: key of a known member, a round after one that is not in the book, and a time before the last one.
DECIDED = ("settlement", "correction", "terms", "deposit", "key", "skip", "time")

#: The public key of a witness or an operator (C2SP: name+id+key).
PUBLIC_KEY = re.compile(r"[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/=]+")


@dataclass(frozen=True)
class Changes:
    """What a book asks for before somebody's decision is booked.

    Attributes:
        notice_rounds: new terms hold at the earliest this number of rounds after the next one.
        witnesses: their public keys for cosignatures (C2SP: name+id+key).
        quorum: how many of them must have signed the book as it is before such a record.
        cosigned: which decisions need the quorum: settlement, correction, terms, deposit, key,
            skip, time.
    """

    notice_rounds: int = 0
    witnesses: tuple[str, ...] = ()
    quorum: int = 0
    cosigned: tuple[str, ...] = ("settlement",)

    def __post_init__(self) -> None:
        if not 0 <= self.notice_rounds <= 10**9:
            raise ValueError(f"changes.notice_rounds is {self.notice_rounds}, must be 0 … 10^9")
        for key in self.witnesses:
            if not PUBLIC_KEY.fullmatch(key):
                raise ValueError(
                    f"changes.witnesses holds {shown(key)}, must be name+id+key, as "
                    "`verax ledger witness` prints it"
                )
        if len(set(self.witnesses)) != len(self.witnesses):
            raise ValueError("changes.witnesses holds a key twice")
        least = 1 if self.witnesses else 0
        if not least <= self.quorum <= len(self.witnesses):
            raise ValueError(
                f"changes.quorum is {self.quorum}, must be {least} … {len(self.witnesses)}, the "
                "number of witnesses"
            )
        if len(set(self.cosigned)) != len(self.cosigned) or set(self.cosigned) - set(DECIDED):
            raise ValueError(
                f"changes.cosigned is {shown(list(self.cosigned))}, must hold each of "
                f"{', '.join(DECIDED)} at most once"
            )
