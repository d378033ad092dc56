"""Whether a record may follow a state: one function for each kind of record.

Every record passes these checks before it is written and again when it is read or imported. The
verifier makes the same checks without sharing any code.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from verax.ledger import records, spot
from verax.ledger.engine import BookError
from verax.ledger.evidence import check_statements
from verax.ledger.money import MAX_AMOUNT
from verax.ledger.names import as_seen
from verax.ledger.notes import OPERATOR, WITNESS, Note, PublicKey
from verax.ledger.round import check_charge, check_round
from verax.ledger.state import ESCROW, FederationState, parse_terms
from verax.mechanism import Terms


def check(
    state: FederationState, record: records.Record, *, charges: bool, rules: Collection[str] = ()
) -> None:
    """Refuse a record that cannot follow the state.

    Args:
        state: the federation before the record.
        record: the next one.
        charges: whether payments and amounts of rounds are computed again, and the signatures of
            members verified.
        rules: rules of the form `module:name` that may be imported for it.
    """
    _check_place(state, record)
    body = record.body
    if record.time < state.time and not isinstance(body, records.CheckpointRecord):
        _check_cosigned(state, "time")
    match body:
        case records.FoundingRecord():
            check_terms(parse_terms(body.terms))
        case records.TermsRecord():
            _check_change(state, body)
        case records.JoinRecord():
            _check_join(state, body)
        case records.LeaveRecord() | records.LimitRecord():
            if body.account is not None and body.account not in state.accounts:
                raise BookError(f"account {body.account} does not exist")
        case records.OpeningRecord():
            _check_opening(state, body)
            spot.check_open(state, body.run)
        case records.RoundRecord():
            _check_run(state, body.run)
            spot.check_open(state, body.run)
            version = check_round(state, body)
            if body.round > 1 and (body.run, body.round - 1) not in state.rounds:
                _check_cosigned(state, "skip")
            keys = {number: state.accounts[number].key for number in body.accounts}
            opening = spot.opening_hash(state, body.run, body.round)
            check_statements(state.name, keys, version.terms, body, opening, signatures=charges)
            if charges:
                check_charge(state, version.terms, body, rules)
        case records.DepositRecord():
            _check_deposit(state, body)
        case records.CorrectionRecord():
            _check_correction(state, body)
        case records.SettlementRecord():
            _check_settlement(state, body)
        case records.CheckpointRecord():
            _check_checkpoint(state, body)
        case records.ClosingRecord():
            spot.check_closing(state, body)
        case records.DrawRecord():
            spot.check_draw(state, body)
        case records.SpotCheckRecord():
            spot.check_report(state, body)
            if charges:
                spot.check_fine(state, body)


def check_terms(terms: Terms) -> None:
    """Refuse terms by which an update of squared norm 1 costs more than a book can hold.

    The same limit holds for the fee and the allowances. Keys must be valid.
    """
    limit = MAX_AMOUNT / 10**terms.scale
    values = {
        "price": max(max(row) for row in terms.price.values),
        "policy.fee": terms.policy.fee,
        **{
            f"spot.{name}": 0.0 if terms.spot is None else getattr(terms.spot, name)
            for name in ("refused", "mismatch", "missing")
        },
        "allowance": max((abs(value) for row in terms.allowances for value in row), default=0.0),
    }
    for name, value in values.items():
        if value > limit:
            raise BookError(
                f"{name} is {value:g}, must be at most {limit:.6g} at scale {terms.scale}: amounts "
                f"in a book have 63 bits; lower the {name.split('.')[-1]} or the scale"
            )
    if terms.price.rounds > MAX_AMOUNT:
        raise BookError(f"price.rounds is {terms.price.rounds}, must be at most {MAX_AMOUNT}")
    if terms.changes is not None:
        for text in terms.changes.witnesses:
            PublicKey.parse(text, WITNESS)
    if terms.evidence is not None and terms.evidence.operator:
        PublicKey.parse(terms.evidence.operator, OPERATOR)
    if terms.spot is not None:
        PublicKey.parse(terms.spot.auditor, OPERATOR)


def _check_place(state: FederationState, record: records.Record) -> None:
    """A record must follow the one before it, and a founding record nothing."""
    if record.sequence != state.sequence + 1 or record.previous != state.hash:
        raise BookError(f"record {record.sequence} does not follow record {state.sequence}")
    if record.federation != state.name:
        raise BookError(f"record {record.sequence} belongs to {record.federation!r}")
    if isinstance(record.body, records.FoundingRecord) != (record.sequence == 1):
        raise BookError(f"record {record.sequence} must not be a {record.kind} record")


def _check_change(state: FederationState, body: records.TermsRecord) -> None:
    """New terms keep currency and scale, come with the agreed notice, and may need witnesses."""
    terms = parse_terms(body.terms)
    check_terms(terms)
    if (terms.currency, terms.scale) != (state.currency, state.scale):
        raise BookError(
            f"currency and scale are {state.currency} and {state.scale}, cannot change to "
            f"{terms.currency} and {terms.scale}: balances would lose their meaning"
        )
    notice = state.changes.notice_rounds
    if notice and state.last_round is not None:
        run, last = state.last_round
        if body.from_round <= last + notice:
            raise BookError(
                f"new terms from round {body.from_round} on need a notice of {notice} rounds, and "
                f"round {last} of run {run!r} is in the book; let them hold from round "
                f"{last + notice + 1} on"
            )
    _check_cosigned(state, body.kind)


def _check_join(state: FederationState, body: records.JoinRecord) -> None:
    """Accounts are numbered in order, belong to one member, and have distinct names."""
    known = state.by_member.get(body.member)
    if known == ESCROW:
        raise BookError("'escrow' is the book's own account; give the member another id")
    if body.account != (len(state.accounts) if known is None else known):
        raise BookError(f"account {body.account} is not that of {body.member!r}")
    for name in (body.member, body.label):
        other = state.by_name_seen.get(as_seen(name))
        if other is not None and other != known:
            taken = state.accounts[other]
            raise BookError(
                f"{name!r} looks like the member {taken.member!r} ({taken.label!r}); "
                "give it another label"
            )
    if body.key is not None and state.by_key.get(body.key, body.account) != body.account:
        raise BookError(f"the key of {body.member!r} is another member's; each needs its own")
    if known is not None and state.accounts[known].key != body.key:
        _check_cosigned(state, "key")
    listed = {name for version in state.versions for name in version.terms.members}
    if state.versions[-1].terms.members and not {body.member, body.label} & listed:
        raise BookError(
            f"{body.member!r} ({body.label!r}) is not among the members that the terms list; "
            "change the terms first"
        )


def _check_run(state: FederationState, run: str) -> None:
    """A run must not have a name that looks like that of another run."""
    other = state.runs_seen.get(as_seen(run), run)
    if other != run:
        raise BookError(f"run {run!r} looks like the run {other!r}; give it another name")


def _check_opening(state: FederationState, body: records.OpeningRecord) -> None:
    """A round is opened once, before it is booked, with the terms in force."""
    _check_run(state, body.run)
    key = (body.run, body.round)
    if key in state.opened or key in state.rounds:
        raise BookError(f"round {body.round} of run {body.run!r} was opened or booked before")
    version = state.version(body.round)
    if body.terms != version.hash:
        raise BookError(f"round {body.round} is opened with other terms than those in force")
    version.terms.price.block(body.round)  # raises ValueError after the last round of the terms


def _check_deposit(state: FederationState, body: records.DepositRecord) -> None:
    """A deposit is between a member and escrow, and not zero."""
    _check_entries(state, body)
    if len(body.accounts) != 2 or body.accounts[0] != ESCROW or not body.amounts[0]:
        raise BookError("a deposit must be between a member and escrow, and not zero")
    _check_cosigned(state, body.kind)


def _check_correction(state: FederationState, body: records.CorrectionRecord) -> None:
    """A correction has a reason, moves something, and refers only to an earlier record."""
    _check_entries(state, body)
    if not body.reason.strip():
        raise BookError("a correction needs a reason")
    if not any(body.amounts):
        raise BookError("a correction must move something")
    if body.corrects is not None and body.corrects > state.sequence:
        raise BookError(f"record {body.corrects} does not exist, the last is {state.sequence}")
    _check_cosigned(state, body.kind)


def _check_settlement(state: FederationState, body: records.SettlementRecord) -> None:
    """A settlement's amounts are the sums of its transfers, each of a positive amount."""
    _check_entries(state, body)
    sums: dict[int, int] = {}
    for payer, receiver, amount in body.transfers:
        if amount <= 0 or payer == receiver:
            raise BookError("a transfer must move a positive amount between two members")
        sums[payer] = sums.get(payer, 0) - amount
        sums[receiver] = sums.get(receiver, 0) + amount
    if not sums or sorted(sums.items()) != list(zip(body.accounts, body.amounts, strict=True)):
        raise BookError("the amounts of a settlement must be the sums of its transfers")
    _check_cosigned(state, body.kind)


def _check_entries(
    state: FederationState,
    body: records.DepositRecord | records.CorrectionRecord | records.SettlementRecord,
) -> None:
    """Entries are of known accounts, ascending, and sum to zero; a reference is used once."""
    if body.reference in state.references:
        raise BookError(f"the reference {body.reference!r} is in the book already")
    if any(a >= b for a, b in pairwise(body.accounts)):
        raise BookError("accounts must be in ascending order")
    unknown = [number for number in body.accounts if number not in state.accounts]
    if unknown:
        raise BookError(f"account {unknown[0]} does not exist")
    if sum(body.amounts):
        raise BookError(f"entries sum to {sum(body.amounts)}, must sum to zero")


def _check_cosigned(state: FederationState, kind: str) -> None:
    """If the terms demand it for such a decision, a quorum has signed the book as it is."""
    changes = state.changes
    if kind not in changes.cosigned or not changes.witnesses:
        return
    signed = sum(state.cosigned.get(key, 0) >= state.last_decision for key in changes.witnesses)
    if signed < changes.quorum:
        raise BookError(
            f"a decision of the kind {kind} needs {changes.quorum} of {len(changes.witnesses)} "
            f"witnesses that signed record {state.last_decision}, has {signed}; see "
            "`verax ledger witness`"
        )


def _check_checkpoint(state: FederationState, body: records.CheckpointRecord) -> None:
    """A checkpoint is one of this book, and signed by a witness that the terms name."""
    note = Note.parse(body.note)
    checkpoint = note.checkpoint
    if checkpoint.origin != state.origin or not 1 <= checkpoint.size <= state.sequence:
        raise BookError(f"the checkpoint is not one of {state.name!r} up to now")
    if checkpoint.root != state.root_at(checkpoint.size):
        raise BookError(
            f"the checkpoint of {checkpoint.size} records has another root than this book: "
            "there are two histories; see `verax ledger compare`"
        )
    keys = [PublicKey.parse(text, WITNESS) for text in state.changes.witnesses]
    if all(note.cosigned_at(key) is None for key in keys):
        raise BookError("the checkpoint has no valid signature of a witness that the terms name")
