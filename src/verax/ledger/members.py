"""Who may join, under which name: no two members that pass for each other."""

from __future__ import annotations

from typing import Any

from verax.ledger.engine import BookError
from verax.ledger.names import looks
from verax.ledger.state import ESCROW, Account, State

__all__ = ["joining", "member_account"]


def member_account(state: State, name: str) -> Account:
    """A member's account; the escrow account is nobody's."""
    account = state.account(name)
    if account.number == ESCROW:
        raise BookError("the escrow account is not a member")
    return account


def joining(
    state: State, member: str, label: str, from_round: int, run: str | None
) -> dict[str, Any]:
    """The record of a member that joins, or joins again, or gets another label."""
    known = state.by_member.get(member)
    if known == ESCROW:
        raise BookError("'escrow' is the book's own account; give the member another id")
    for name in (member, label):
        other = state.by_looks.get(looks(name))
        if other is not None and other != known:
            taken = state.accounts[other]
            raise BookError(
                f"{name!r} looks like the member {taken.member!r} ({taken.label!r}); "
                "give it another label"
            )
    listed = {name for version in state.versions for name in version.terms.members}
    if state.versions[-1].terms.members and not {member, label} & listed:
        raise BookError(
            f"{member!r} ({label!r}) is not among the members that the terms list; "
            "change the terms first"
        )
    number = max(state.accounts) + 1 if known is None else known
    return {
        "kind": "join",
        "account": number,
        "member": member,
        "label": label,
        "from_round": from_round,
        "run": run,
    }
