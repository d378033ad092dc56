"""The state of a federation that its records define: terms, accounts, memberships and limits.

The state is computed from all records other than rounds, in the order of the chain, and is stored
nowhere else. Terms and memberships that hold from a round on apply to rounds posted after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from verax.ledger.canonical import GENESIS, digest
from verax.ledger.engine import BookError
from verax.ledger.names import as_seen
from verax.mechanism import Terms

#: The account that holds deposits: the counterpart of what members pay in.
ESCROW = 0


@dataclass(frozen=True)
class TermsVersion:
    """Terms, their hash, the round from which they hold, and the record that introduced them."""

    terms: Terms
    hash: str
    from_round: int
    sequence: int


@dataclass
class Account:
    """A member's account.

    Attributes:
        number: its number in the book; 0 is the escrow account.
        member: public key or opaque id.
        label: the name that people use for the member.
        from_round: the first round that the member may take part in, …
        from_run: … in this run; it may take part in every round of other runs. None: in every run.
        left_round: the first round that the member may no longer take part in, …
        left_run: … in this run; it may take part in no round of other runs. None: in every run.
    """

    number: int
    member: str
    label: str
    from_round: int = 1
    from_run: str | None = None
    left_round: int | None = None
    left_run: str | None = None

    def may_take_part(self, run: str, round_: int) -> bool:
        """Whether the member may take part in a round that is posted now."""
        if round_ < self.from_round and self.from_run in (None, run):
            return False
        if self.left_round is None:
            return True
        return self.left_run in (None, run) and round_ < self.left_round


def _escrow() -> dict[int, Account]:
    return {ESCROW: Account(ESCROW, "escrow", "escrow")}


@dataclass
class FederationState:
    """A federation as its records up to `sequence` define it."""

    id: int
    name: str
    sequence: int = 0
    hash: str = GENESIS
    versions: list[TermsVersion] = field(default_factory=list[TermsVersion])
    accounts: dict[int, Account] = field(default_factory=_escrow)
    by_member: dict[str, int] = field(default_factory=lambda: {"escrow": ESCROW})
    by_name_seen: dict[str, int] = field(default_factory=lambda: {"escrow": ESCROW})
    limits: dict[int | None, int | None] = field(default_factory=dict[int | None, int | None])

    def apply(self, content: Mapping[str, Any]) -> None:
        """Update the state by the next record."""
        match content["kind"]:
            case "create" | "terms":
                text, from_round = content["terms"], content.get("from_round", 1)
                version = TermsVersion(
                    parse_terms(text), digest(text), from_round, content["sequence"]
                )
                self.versions.append(version)
            case "join":
                self._join(content)
            case "leave":
                account = self.accounts[content["account"]]
                account.left_round, account.left_run = content["from_round"], content["run"]
            case "limit":
                self.limits[content["account"]] = content["limit"]
            case _:
                pass  # The other kinds only have entries.
        self.sequence = content["sequence"]

    def _join(self, content: Mapping[str, Any]) -> None:
        number = content["account"]
        account = Account(
            number, content["member"], content["label"], content["from_round"], content["run"]
        )
        if number in self.accounts:
            self.by_name_seen.pop(as_seen(self.accounts[number].label), None)
        self.accounts[number] = account
        self.by_member[account.member] = number
        self.by_name_seen[as_seen(account.member)] = number
        self.by_name_seen[as_seen(account.label)] = number

    def version(self, round_: int) -> TermsVersion:
        """The terms in force for a round that is posted now: the latest that apply to it."""
        for version in reversed(self.versions):
            if version.from_round <= round_:
                return version
        raise BookError(f"round is {round_}, must be ≥ 1")

    def version_of(self, hash_: str) -> TermsVersion:
        """The terms with a hash."""
        return next(version for version in self.versions if version.hash == hash_)

    @property
    def scale(self) -> int:
        """Decimal places of a minor unit; the same in all versions of the terms."""
        return self.versions[0].terms.scale

    @property
    def currency(self) -> str:
        """The label of the currency; the same in all versions of the terms."""
        return self.versions[0].terms.currency

    def account(self, name: str) -> Account:
        """An account by the member's id, or else by its label."""
        number = self.by_member.get(name)
        if number is not None:
            return self.accounts[number]
        for account in self.accounts.values():
            if account.label == name:
                return account
        raise BookError(
            f"{name!r} is not a member of {self.name!r}; `verax ledger balances` lists the members"
        )

    def member_account(self, name: str) -> Account:
        """A member's account; the escrow account belongs to no member."""
        account = self.account(name)
        if account.number == ESCROW:
            raise BookError("the escrow account is not a member")
        return account

    def listed(self, terms: Terms) -> list[Account]:
        """The accounts of the members that the terms list by id or label, in that order."""
        return [self.account(name) for name in terms.members]

    def limit(self, number: int) -> int | None:
        """The largest debt a member may have, in minor units; None means no limit."""
        return self.limits.get(number, self.limits.get(None))


def join_record(
    state: FederationState, member: str, label: str, from_round: int, run: str | None
) -> dict[str, Any]:
    """The record of a member that joins, joins again, or changes its label.

    No two members may have names that look the same.
    """
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


@lru_cache(maxsize=64)
def parse_terms(text: str) -> Terms:
    """Terms from their TOML; cached, because all rounds are priced by a few versions."""
    return Terms.from_toml(text)
