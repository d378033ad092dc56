"""What the records other than rounds say: terms, accounts, memberships, limits.

A fold over the chain: nothing is stored twice, so nothing can disagree. Terms and memberships hold
from a round on for the rounds that are posted after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from verax.ledger.canonical import digest
from verax.ledger.engine import BookError
from verax.ledger.names import looks
from verax.mechanism import Terms

__all__ = ["ESCROW", "Account", "State", "Version"]

#: The account that holds deposits: the counterpart of what members pay in.
ESCROW = 0


@dataclass(frozen=True)
class Version:
    """Terms, and the round from which they hold."""

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
        label: what people call the member.
        from_round: the first round it may take part in, …
        from_run: … of this run, and every round of other runs; None: of every run.
        left_round: the first round it may not take part in any more, …
        left_run: … of this run, and no round of other runs; None: of every run.
    """

    number: int
    member: str
    label: str
    from_round: int = 1
    from_run: str | None = None
    left_round: int | None = None
    left_run: str | None = None

    def belongs(self, run: str, round_: int) -> bool:
        """Whether the member may take part in a round that is posted now."""
        if round_ < self.from_round and self.from_run in (None, run):
            return False
        if self.left_round is None:
            return True
        return self.left_run in (None, run) and round_ < self.left_round


@dataclass
class State:
    """A federation up to a record."""

    id: int
    name: str
    sequence: int = 0
    hash: str = ""
    versions: list[Version] = field(default_factory=list[Version])
    accounts: dict[int, Account] = field(
        default_factory=lambda: {ESCROW: Account(ESCROW, "escrow", "escrow")}
    )
    by_member: dict[str, int] = field(default_factory=lambda: {"escrow": ESCROW})
    by_looks: dict[str, int] = field(default_factory=lambda: {"escrow": ESCROW})
    limits: dict[int | None, int | None] = field(default_factory=dict[int | None, int | None])

    def apply(self, content: Mapping[str, Any]) -> None:
        """Take in the next record."""
        match content["kind"]:
            case "founding" | "terms":
                self.versions.append(
                    Version(
                        parse_terms(content["terms"]),
                        digest(content["terms"]),
                        content.get("from_round", 1),
                        content["sequence"],
                    )
                )
            case "join":
                self._join(content)
            case "leave":
                account = self.accounts[content["account"]]
                account.left_round, account.left_run = content["from_round"], content["run"]
            case "limit":
                self.limits[content["account"]] = content["limit"]
            case _:
                pass  # entries only
        self.sequence = content["sequence"]

    def _join(self, content: Mapping[str, Any]) -> None:
        number = content["account"]
        account = Account(
            number, content["member"], content["label"], content["from_round"], content["run"]
        )
        if number in self.accounts:
            self.by_looks.pop(looks(self.accounts[number].label), None)
        self.accounts[number] = account
        self.by_member[account.member] = number
        self.by_looks[looks(account.member)] = number
        self.by_looks[looks(account.label)] = number

    def version(self, round_: int) -> Version:
        """The terms in force in a round that is posted now: the latest that reach it."""
        for version in reversed(self.versions):
            if version.from_round <= round_:
                return version
        raise BookError(f"round {round_} is before the first, 1")

    def version_of(self, hash_: str) -> Version:
        """The terms with a hash."""
        return next(version for version in self.versions if version.hash == hash_)

    @property
    def scale(self) -> int:
        """Decimal places of a unit; the same in all versions."""
        return self.versions[0].terms.scale

    @property
    def currency(self) -> str:
        """The label of the currency; the same in all versions."""
        return self.versions[0].terms.currency

    def account(self, member: str) -> Account:
        """A member's account by its id, or else by its label."""
        number = self.by_member.get(member)
        if number is None:
            named = [a for a in self.accounts.values() if a.label == member]
            if not named:
                raise BookError(
                    f"{member!r} is not a member of {self.name!r}; "
                    "`verax ledger balances` lists them"
                )
            return named[0]
        return self.accounts[number]

    def listed(self, terms: Terms) -> list[Account]:
        """The accounts of the members that the terms list, in their order, by id or by label."""
        return [self.account(name) for name in terms.members]

    def limit(self, number: int) -> int | None:
        """How far below zero credit a member may go, in units; None: any far."""
        return self.limits.get(number, self.limits.get(None))


@lru_cache(maxsize=64)
def parse_terms(text: str) -> Terms:
    """Terms from their TOML, remembered: every round is priced by the same few."""
    return Terms.from_toml(text)
