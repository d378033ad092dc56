"""The state of a federation that its records define; it is stored nowhere else.

Balances and carried remainders, terms, accounts, memberships, limits and rounds are computed from
the records in the order of the chain. Terms and memberships that hold from a round on apply to
rounds that are booked after them; the terms of a round that was opened are fixed by its opening.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from verax.ledger import records, spot
from verax.ledger.engine import BookError
from verax.ledger.money import to_units
from verax.ledger.names import as_seen
from verax.ledger.notes import WITNESS, Note, PublicKey
from verax.ledger.tree import leaf_hash, root
from verax.mechanism import Changes, Terms
from verax.mechanism.smoothed_norm import SmoothedNorm

#: The account that holds deposits: the counterpart of what members pay in.
ESCROW = 0


@dataclass(frozen=True)
class TermsVersion:
    """Terms, their text and its hash, the round from which they hold, and their record."""

    terms: Terms
    text: str
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
        key: the public key of its statements, in base64; None: it signs nothing.
        data: what it commits to for spot checks, its data; None: nothing.
        app: the same, its app.
    """

    number: int
    member: str
    label: str
    from_round: int = 1
    from_run: str | None = None
    left_round: int | None = None
    left_run: str | None = None
    key: str | None = None
    data: str | None = None
    app: str | None = None

    def may_take_part(self, run: str, round_: int) -> bool:
        """Whether the member may take part in a round that is posted now."""
        if round_ < self.from_round and self.from_run in (None, run):
            return False
        if self.left_round is None:
            return True
        return self.left_run in (None, run) and round_ < self.left_round


@dataclass
class FederationState:
    """A federation as its records up to `sequence` define it.

    Attributes:
        id: its number in the database.
        name: its name.
        sequence: the last record.
        hash: its hash.
        versions: the versions of the terms.
        accounts: by number.
        by_member: account numbers by member id.
        by_name_seen: account numbers by ids and labels as readers see them.
        by_key: account numbers by the public keys that they have or had.
        limits: by account number; None stands for all members without one.
        balances: minor units by account number.
        carried: nano-units by account number.
        rounds: sequence number and hash of each round's record, by run and round.
        runs_seen: run names by how readers see them.
        opened: the hash of the terms of rounds that were opened.
        last_round: run and number of the round that was booked last.
        references: the records of deposits, corrections and settlements by their references.
        leaves: the hashes of all records in the Merkle tree.
        cosigned: the largest tree that each witness signed.
        last_decision: the last record that is not a checkpoint.
        checked: spot checks by run, as far as terms have a section `[spot]`.
        time: that of the last record.
    """

    id: int
    name: str
    sequence: int = 0
    hash: str = records.GENESIS
    versions: list[TermsVersion] = field(default_factory=list[TermsVersion])
    accounts: dict[int, Account] = field(
        default_factory=lambda: {ESCROW: Account(ESCROW, "escrow", "escrow")}
    )
    by_member: dict[str, int] = field(default_factory=lambda: {"escrow": ESCROW})
    by_name_seen: dict[str, int] = field(default_factory=lambda: {"escrow": ESCROW})
    by_key: dict[str, int] = field(default_factory=dict[str, int])
    limits: dict[int | None, int | None] = field(default_factory=dict[int | None, int | None])
    balances: dict[int, int] = field(default_factory=dict[int, int])
    carried: dict[int, int] = field(default_factory=dict[int, int])
    rounds: dict[tuple[str, int], tuple[int, str]] = field(
        default_factory=dict[tuple[str, int], tuple[int, str]]
    )
    runs_seen: dict[str, str] = field(default_factory=dict[str, str])
    opened: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    last_round: tuple[str, int] | None = None
    references: dict[str, int] = field(default_factory=dict[str, int])
    leaves: list[bytes] = field(default_factory=list[bytes])
    cosigned: dict[str, int] = field(default_factory=dict[str, int])
    last_decision: int = 0
    checked: dict[str, spot.CheckedRun] = field(default_factory=dict[str, spot.CheckedRun])
    time: str = ""

    def apply(self, record: records.Record) -> None:
        """Update the state by the next record, which was checked."""
        body = record.body
        match body:
            case records.FoundingRecord():
                self._add_terms(body.terms, 1, record.sequence)
            case records.TermsRecord():
                self._add_terms(body.terms, body.from_round, record.sequence)
            case records.JoinRecord():
                self._join(body)
            case records.LeaveRecord():
                account = self.accounts[body.account]
                account.left_round, account.left_run = body.from_round, body.run
            case records.LimitRecord():
                self.limits[body.account] = body.limit
            case records.OpeningRecord():
                self.opened[body.run, body.round] = body.terms
                self.runs_seen[as_seen(body.run)] = body.run
                spot.apply_opening(self, record, self.version_of(body.terms).terms)
            case records.RoundRecord():
                self._add_round(body, record)
            case records.DepositRecord() | records.CorrectionRecord() | records.SettlementRecord():
                self.references[body.reference] = record.sequence
            case records.CheckpointRecord():
                self._add_cosignatures(body)
                spot.apply_checkpoint(self, body)
            case records.ClosingRecord() | records.DrawRecord() | records.SpotCheckRecord():
                spot.apply_checks(self, record, body)
        for number, amount in record.entries:
            self.balances[number] = self.balances.get(number, 0) + amount
        if not isinstance(body, records.CheckpointRecord):
            self.last_decision = record.sequence
        self.sequence, self.hash, self.time = record.sequence, record.hash, record.time
        self.leaves.append(leaf_hash(record.data))

    def _add_terms(self, text: str, from_round: int, sequence: int) -> None:
        hash_ = sha256(text.encode()).hexdigest()
        self.versions.append(TermsVersion(parse_terms(text), text, hash_, from_round, sequence))

    def _join(self, body: records.JoinRecord) -> None:
        number = body.account
        if number in self.accounts:
            self.by_name_seen.pop(as_seen(self.accounts[number].label), None)
        self.accounts[number] = Account(
            number, body.member, body.label, body.from_round, body.run,
            key=body.key, data=body.data, app=body.app,
        )  # fmt: skip
        if body.key is not None:
            self.by_key[body.key] = number
        self.by_member[body.member] = number
        self.by_name_seen[as_seen(body.member)] = number
        self.by_name_seen[as_seen(body.label)] = number

    def _add_round(self, body: records.RoundRecord, record: records.Record) -> None:
        self.rounds[body.run, body.round] = (record.sequence, record.hash)
        self.runs_seen[as_seen(body.run)] = body.run
        self.opened.pop((body.run, body.round), None)
        self.last_round = (body.run, body.round)
        spot.apply_round(self, record, self.version_of(body.terms).terms)
        _, after = to_units(body.payments, self.scale, self.carried_of(body.accounts))
        self.carried.update(zip(body.accounts, after, strict=True))

    def _add_cosignatures(self, body: records.CheckpointRecord) -> None:
        note = Note.parse(body.note)
        for text in self.changes.witnesses:
            if note.cosigned_at(PublicKey.parse(text, WITNESS)) is not None:
                known = self.cosigned.get(text, 0)
                self.cosigned[text] = max(known, note.checkpoint.size)

    def carried_of(self, accounts: tuple[int, ...]) -> list[int]:
        """What is carried of each account, in nano-units."""
        return [self.carried.get(number, 0) for number in accounts]

    @property
    def origin(self) -> str:
        """The name of this log in checkpoints: no two federations begin with the same record."""
        return f"verax/{self.leaves[0].hex()[:32]}"

    def root_at(self, size: int) -> bytes:
        """The root of the Merkle tree over the first records."""
        return root(self.leaves[:size])

    @property
    def changes(self) -> Changes:
        """What the terms of the last round demand of changes."""
        last = 1 if self.last_round is None else self.last_round[1]
        return self.version(last).terms.changes or Changes()

    def version(self, round_: int, run: str | None = None) -> TermsVersion:
        """The terms of a round: those of its opening, or the latest in the book that apply."""
        opened = None if run is None else self.opened.get((run, round_))
        for version in reversed(self.versions):
            if version.hash == opened if opened else version.from_round <= round_:
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

    def balances_by_member(self) -> dict[str, int]:
        """Minor units per member; the escrow account is included if it was used."""
        return {
            account.member: self.balances.get(number, 0)
            for number, account in sorted(self.accounts.items())
            if number != ESCROW or ESCROW in self.balances
        }


@lru_cache(maxsize=64)
def parse_terms(text: str) -> Terms:
    """Terms from their TOML; cached, because all rounds are priced by a few versions."""
    terms = Terms.from_toml(text)
    if terms.rule == SmoothedNorm.name:
        raise ValueError(
            f"rule {terms.rule} is measured in simulations only, so that no book can charge by it; "
            "use squared-norm"
        )
    return terms
