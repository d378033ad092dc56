"""Records: typed values, decoded strictly in this one place; their stored bytes are hashed.

A record is one JSON object on one line: the fields of every record (`version`, `kind`,
`federation`, `sequence`, `previous`, `time`), then those of its kind. Whoever writes a record
chooses how its JSON is printed; nobody prints it a second time. Readers accept exactly the fields
below, each once, with exactly their types, finite numbers, and texts and lists within their bounds.
No field is nested deeper than a list of lists, or a table of lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from math import inf
from typing import Annotated, Any, ClassVar, get_type_hints

from verax.ledger import forms
from verax.ledger.forms import SignedStatement
from verax.ledger.money import MAX_AMOUNT

#: The version of this format.
VERSION = 1
#: The hash before a federation's first record.
GENESIS = "0" * 64
#: The largest size of a record, in bytes.
MAX_SIZE = 2**26


Name = Annotated[str, forms.name]
Run = Annotated[str, forms.name]
RoundNumber = Annotated[int, forms.whole(1, MAX_AMOUNT)]
Account = Annotated[int, forms.whole(1, forms.MAX_ACCOUNT)]
Digest = Annotated[str, forms.digest]
TermsText = Annotated[str, forms.text(2**22)]
Text = Annotated[str, forms.text(forms.MAX_REASON)]
Line = Annotated[str, forms.line]
Accounts = Annotated[tuple[int, ...], forms.wholes(0, forms.MAX_ACCOUNT)]
Amounts = Annotated[tuple[int, ...], forms.wholes(-MAX_AMOUNT, MAX_AMOUNT)]


@dataclass(frozen=True)
class FoundingRecord:
    """The first record of a federation: its terms."""

    kind: ClassVar[str] = "founding"
    terms: TermsText


@dataclass(frozen=True)
class TermsRecord:
    """Terms that hold for rounds from this one on that come later in the chain."""

    kind: ClassVar[str] = "terms"
    from_round: RoundNumber
    terms: TermsText


@dataclass(frozen=True)
class JoinRecord:
    """A member joins from a round on, joins again, or changes its label or its key.

    `key` is the public key (Ed25519, base64) of the member's statements; None: it signs nothing.
    `data` and `app` are what it commits to for spot checks (`verax.spot.commitment`).
    """

    kind: ClassVar[str] = "join"
    account: Account
    member: Name
    label: Name
    from_round: RoundNumber
    run: Annotated[str | None, forms.or_none(forms.name)]
    key: Annotated[str | None, forms.or_none(forms.key)]
    data: Annotated[str | None, forms.or_none(forms.digest)]
    app: Annotated[str | None, forms.or_none(forms.digest)]


@dataclass(frozen=True)
class LeaveRecord:
    """A member takes part in no round from this one on."""

    kind: ClassVar[str] = "leave"
    account: Account
    from_round: RoundNumber
    run: Annotated[str | None, forms.or_none(forms.name)]


@dataclass(frozen=True)
class LimitRecord:
    """The largest debt of a member (of all without their own if `account` is None)."""

    kind: ClassVar[str] = "limit"
    account: Annotated[int | None, forms.or_none(forms.whole(1, forms.MAX_ACCOUNT))]
    limit: Annotated[int | None, forms.or_none(forms.whole(0, MAX_AMOUNT))]


@dataclass(frozen=True)
class OpeningRecord:
    """A round was configured, before anybody's norm was known: its terms are those of `terms`.

    `config` is the digest of the configuration that all members were sent; None if unknown.
    """

    kind: ClassVar[str] = "opening"
    run: Run
    round: RoundNumber
    terms: Digest
    config: Annotated[str | None, forms.or_none(forms.digest)]


@dataclass(frozen=True)
class RoundRecord:
    """A round: its inputs, and what the terms charge for them.

    The columns `statistics`, `payments` and `amounts` follow the order of `accounts`.

    Attributes:
        run: which training run.
        round: t.
        accounts: who was asked, ascending.
        reads: what is recorded for the rule: norms (‖m_i‖²), misreport (‖m_i − g_i‖²) or gram.
        statistics: the norms or misreports, None where not ok; None as a whole for gram.
        gram: ⟨m_i, m_j⟩ of the ok members.
        statuses: missing, rejected or error; who is ok is left out.
        weights: how an update counted; 1 is left out.
        reasons: why a status is not ok; empty ones are left out.
        model_before: the digest of the model that was sent to the members; None if unknown.
        model_after: the digest of the model after the round; None if unknown.
        examples: the example counts that decide the weights; empty if something else decides them.
        statements: what members signed (`verax.ledger.evidence`).
        terms: SHA-256 of the text of the terms.
        rule: the payment rule.
        price: C_t, one number or one per listed member.
        payments: real numbers that sum to zero up to rounding.
        amounts: minor units, which sum to zero.
    """

    kind: ClassVar[str] = "round"
    run: Run
    round: RoundNumber
    accounts: Annotated[tuple[int, ...], forms.wholes(1, forms.MAX_ACCOUNT)]
    reads: Annotated[str, forms.reads]
    statistics: Annotated[
        tuple[float | None, ...] | None, forms.or_none(forms.reals(0.0, or_none=True))
    ]
    gram: Annotated[
        tuple[tuple[float, ...], ...] | None, forms.or_none(forms.rows(forms.reals(-inf)))
    ]
    statuses: Annotated[dict[int, str], forms.by_account(forms.status)]
    weights: Annotated[dict[int, float], forms.by_account(forms.weight)]
    reasons: Annotated[dict[int, str], forms.by_account(forms.reason)]
    model_before: Annotated[str | None, forms.or_none(forms.digest)]
    model_after: Annotated[str | None, forms.or_none(forms.digest)]
    examples: Annotated[dict[int, int], forms.by_account(forms.whole(1, 2**53))]
    statements: Annotated[dict[int, SignedStatement], forms.by_account(forms.statement)]
    terms: Digest
    rule: Text
    price: Annotated[tuple[float, ...], forms.reals(0.0)]
    payments: Annotated[tuple[float, ...], forms.reals(-inf)]
    amounts: Amounts


@dataclass(frozen=True)
class DepositRecord:
    """Money that a member paid in; account 0 is escrow."""

    kind: ClassVar[str] = "deposit"
    reference: Name
    accounts: Accounts
    amounts: Amounts
    reason: Text


@dataclass(frozen=True)
class CorrectionRecord:
    """A reversing entry; `corrects` is the sequence number of the record that was wrong."""

    kind: ClassVar[str] = "correction"
    reference: Name
    accounts: Accounts
    amounts: Amounts
    corrects: Annotated[int | None, forms.or_none(forms.whole(1, MAX_AMOUNT))]
    reason: Text


@dataclass(frozen=True)
class SettlementRecord:
    """Transfers between accounts that have been made: payer, receiver, amount."""

    kind: ClassVar[str] = "settlement"
    reference: Name
    accounts: Accounts
    amounts: Amounts
    transfers: Annotated[tuple[tuple[int, int, int], ...], forms.rows(forms.transfer)]


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint of an earlier state of the book, with the cosignatures of witnesses."""

    kind: ClassVar[str] = "checkpoint"
    note: Annotated[str, forms.text(2**16)]


@dataclass(frozen=True)
class ClosingRecord:
    """A run has ended, and which public randomness draws the rounds that are checked.

    `beacon` says in words which value of which beacon it will be; empty: the signatures of
    witnesses under this record.
    """

    kind: ClassVar[str] = "closing"
    run: Run
    beacon: Line


@dataclass(frozen=True)
class DrawRecord:
    """The rounds of a run that are checked, by account; `value` is the public randomness."""

    kind: ClassVar[str] = "draw"
    run: Run
    value: Digest
    drawn: Annotated[dict[int, tuple[int, ...]], forms.by_account(forms.wholes(1, MAX_AMOUNT))]


@dataclass(frozen=True)
class SpotCheckRecord:
    """An auditor's report on one member, and what the terms charge for it.

    Attributes:
        run: which training run.
        account: whose.
        outcome: checked, refused, mismatch or missing.
        reason: why it is not checked.
        found: round, ‖m − g‖² and ‖g‖² of each drawn round.
        signature: the auditor's (`verax.ledger.spot`).
        accounts: everybody of whom rounds were drawn, ascending.
        payments: real numbers that sum to zero up to rounding.
        amounts: minor units, which sum to zero.
    """

    kind: ClassVar[str] = "spot-check"
    run: Run
    account: Account
    outcome: Annotated[str, forms.outcome]
    reason: Line
    found: Annotated[tuple[tuple[int, str, str], ...], forms.rows(forms.measured)]
    signature: Annotated[str, forms.base64(64)]
    accounts: Annotated[tuple[int, ...], forms.wholes(1, forms.MAX_ACCOUNT)]
    payments: Annotated[tuple[float, ...], forms.reals(-inf)]
    amounts: Amounts


#: Records with entries.
Booked = RoundRecord | DepositRecord | CorrectionRecord | SettlementRecord | SpotCheckRecord
Body = (
    FoundingRecord
    | TermsRecord
    | JoinRecord
    | LeaveRecord
    | LimitRecord
    | OpeningRecord
    | RoundRecord
    | DepositRecord
    | CorrectionRecord
    | SettlementRecord
    | CheckpointRecord
    | ClosingRecord
    | DrawRecord
    | SpotCheckRecord
)
KINDS: dict[str, type[Body]] = {each.kind: each for each in Body.__args__}


def _checks(kind: type) -> dict[str, forms.Check]:
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: hints[each.name].__metadata__[0] for each in fields(kind)}


_CHECKS = {name: _checks(kind) for name, kind in KINDS.items()}
_HEAD: dict[str, forms.Check] = {
    "version": forms.whole(VERSION, VERSION),
    "kind": forms.matching(re.compile("|".join(KINDS)), f"one of {', '.join(KINDS)}"),
    "federation": forms.name,
    "sequence": forms.whole(1, MAX_AMOUNT),
    "previous": forms.digest,
    "time": forms.time,
}


@dataclass(frozen=True)
class Record:
    """A record with its place in the chain and its bytes as they are stored."""

    federation: str
    sequence: int
    previous: str
    time: str
    body: Body
    data: bytes

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the stored bytes, in hexadecimal digits."""
        return sha256(self.data).hexdigest()

    @property
    def kind(self) -> str:
        """The kind of the body."""
        return self.body.kind

    @property
    def content(self) -> dict[str, Any]:
        """The plain JSON object."""
        return json.loads(self.data)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Account number and amount of each entry; empty if the record has none."""
        return entries_of(self.body)


def entries_of(body: Body) -> list[tuple[int, int]]:
    """Account number and amount of each entry of a record; empty if it has none."""
    if isinstance(body, Booked):
        return list(zip(body.accounts, body.amounts, strict=True))
    return []


def encode(federation: str, sequence: int, previous: str, time: str, body: Body) -> bytes:
    """The bytes of a new record; `decode` is what says whether they are valid."""
    head = {
        "version": VERSION,
        "kind": body.kind,
        "federation": federation,
        "sequence": sequence,
        "previous": previous,
        "time": time,
    }
    try:
        text = json.dumps(
            head | vars(body), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return text.encode()
    except ValueError as error:
        raise ValueError(f"the record cannot be written: {error}") from None


def decode(data: bytes) -> Record:
    """The record that the bytes stand for; raises ValueError if anything about them is odd."""
    if type(data) is not bytes or len(data) > MAX_SIZE:
        raise ValueError(f"a record must be at most {MAX_SIZE} bytes")
    if b"\n" in data or b"\r" in data:
        raise ValueError("a record must be one line")
    try:
        table: Any = json.loads(
            data.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise ValueError("the record is nested too deeply") from None
    if type(table) is not dict:
        raise ValueError("a record must be an object")
    kind = _read(table, "kind", _HEAD["kind"])
    checks = _HEAD | _CHECKS[kind]
    if table.keys() != checks.keys():
        odd = ", ".join(sorted(map(str, table.keys() ^ checks.keys()))[:5])
        raise ValueError(f"fields {odd} are missing or unknown")
    values = {name: _read(table, name, check) for name, check in checks.items()}
    body = KINDS[kind](**{name: values[name] for name in _CHECKS[kind]})
    head = {name: values[name] for name in ("federation", "sequence", "previous", "time")}
    record = Record(**head, body=body, data=data)
    entries = getattr(body, "accounts", ()), getattr(body, "amounts", ())
    if len(entries[0]) != len(entries[1]):
        raise ValueError("there must be as many amounts as accounts")
    return record


def _read(table: Mapping[str, Any], name: str, check: forms.Check) -> Any:
    if name not in table:
        raise ValueError(f"field {name} is missing")
    try:
        return check(table[name])
    except ValueError as error:
        raise ValueError(f"field {name} {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice in an object")
    return table


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")
