"""The record of a member that joins; no two members may have names that look the same."""

from __future__ import annotations

from typing import Any

from verax.ledger.engine import BookError
from verax.ledger.names import as_seen
from verax.ledger.state import ESCROW, FederationState

__all__ = ["join_record"]


def join_record(
    state: FederationState, member: str, label: str, from_round: int, run: str | None
) -> dict[str, Any]:
    """The record of a member that joins, joins again, or changes its label."""
    known = state.by_member.get(member)
    if known == ESCROW:
        raise BookError("'escrow' is the book's own account; give the member another id")
    for name in (member, label):
        other = state.by_name_seen.get(as_seen(name))
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
    return {
        "kind": "join",
        "account": max(state.accounts) + 1 if known is None else known,
        "member": member,
        "label": label,
        "from_round": from_round,
        "run": run,
    }
