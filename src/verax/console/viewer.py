"""Who looks at a federation, and what the terms let them see of others."""

from __future__ import annotations

from dataclasses import dataclass

from verax.console.access import Token
from verax.console.follow import Followed
from verax.ledger.state import ESCROW
from verax.mechanism import SquaredNorm


@dataclass(frozen=True)
class Viewer:
    """Who looks at a federation.

    Attributes:
        federation: at which.
        account: the viewer's own account number; None for the operator.
    """

    federation: Followed
    account: int | None

    @classmethod
    def of(cls, token: Token, federation: Followed) -> Viewer | None:
        """The viewer with this token; None if it opens nothing of the federation."""
        if token.is_operator:
            return cls(federation, None)
        number = federation.state.by_member.get(token.member)
        if token.federation != federation.name or number is None or number == ESCROW:
            return None
        return cls(federation, number)

    @property
    def is_operator(self) -> bool:
        """Whether everything is shown."""
        return self.account is None

    def sees_amounts(self, account: int) -> bool:
        """Whether payments and balances of an account are shown."""
        return self.account in (None, account) or self.federation.shows_all("amounts")

    def sees_norms(self, account: int) -> bool:
        """Whether squared norms of an account are shown."""
        return self.account in (None, account) or self.federation.shows_all("norms")

    @property
    def sees_export(self) -> bool:
        """Whether the whole book is shown: it contains everybody's amounts and norms."""
        followed = self.federation
        return self.is_operator or (followed.shows_all("amounts") and followed.shows_all("norms"))


def openness_warning(followed: Followed) -> str:
    """What the terms show to members although they say that they keep it to each; usually empty.

    Under the squared norm p_i − p_j = C n/(n−1) (‖m_i‖² − ‖m_j‖²): whoever sees all payments and
    knows its own norm knows all norms.
    """
    shows_amounts_alone = followed.shows_all("amounts") and not followed.shows_all("norms")
    if followed.terms.rule != SquaredNorm.name or not shows_amounts_alone:
        return ""
    return (
        f"the terms of {followed.name!r} show all amounts, from which each member can compute the "
        "others' squared norms, although they keep the norms to each member"
    )
