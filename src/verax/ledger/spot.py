r"""Spot checks in a book: a run is closed, rounds are drawn, an auditor reports, the terms charge.

After the last round a `closing` record says which public randomness will draw: a value of a beacon
that is announced there in words, or the signatures under the closing record itself of all witnesses
whom the terms then name. Fewer would leave the operator a choice among draws. The `draw` record
holds that value, 64 lower-case hexadecimal digits, and the rounds. They follow from

    seed = SHA-256("verax/closing/v1\n" ‖ hash of the closing record ‖ "\n" ‖ value ‖ "\n")

and from the prices of the rounds in which a member's update counted
(`verax.mechanism.spot_checks`). The auditor whom the terms name signs, per member, a text of lines

    verax-spot-check/v1
    draw 5b0c…           the hash of the draw record
    account 2
    outcome checked      or refused, mismatch, missing
    reason               why it is not checked
    data 77e1…           the member's commitment to its data, or -
    app 0d4f…            its commitment to its app, or -
    round 17 0.25 4.0    round, ‖m − g‖², ‖g‖², one line for each round that was drawn

A `spot-check` record holds the report and its fine, which the others receive in equal parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from verax.ledger.engine import BookError
from verax.ledger.money import to_units
from verax.ledger.notes import OPERATOR, WITNESS, Note, PublicKey, is_valid, unbase64
from verax.ledger.records import (
    CheckpointRecord,
    ClosingRecord,
    DrawRecord,
    OpeningRecord,
    Record,
    RoundRecord,
    SpotCheckRecord,
)
from verax.mechanism import SpotChecks, Terms, effective_weights
from verax.mechanism.spot_checks import Measured, Outcome, draw_rounds, shared

if TYPE_CHECKING:
    from verax.ledger.state import FederationState

#: The largest fine, in minor units: what float64 counts exactly.
MAX_FINE = 2.0**53

_TOLERANCE = 1e-9


class Drawable(NamedTuple):
    """A round of a member that can be drawn: its price and how much the update counted."""

    round: int
    price: float
    weight: float


@dataclass
class CheckedRun:
    """What the records say about the spot checks of one run.

    Attributes:
        terms: the `[spot]` section of the terms of its last round.
        drawable: by account.
        commitments: data and app, by account, as they were when its first round was opened.
        openings: the sequence number and the hash of each opening record, by round.
        closing: the sequence number and the hash of the closing record.
        beacon: what the closing record announces.
        witnesses: the keys whose signatures under the closing record draw without a beacon.
        value: the public randomness, if the signatures of witnesses are it.
        draw: the hash of the draw record.
        drawn: rounds by account.
        reported: the record of each account's report.
    """

    terms: SpotChecks | None = None
    drawable: dict[int, list[Drawable]] = field(default_factory=dict[int, list[Drawable]])
    commitments: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    openings: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    closing: tuple[int, str] | None = None
    beacon: str = ""
    witnesses: tuple[str, ...] = ()
    value: str | None = None
    draw: str = ""
    drawn: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    reported: dict[int, int] = field(default_factory=dict[int, int])

    def expected_draw(self, value: str) -> dict[int, tuple[int, ...]]:
        """The rounds that a value of the public randomness draws, by account."""
        assert self.terms is not None
        assert self.closing is not None
        seed = sha256(f"verax/closing/v1\n{self.closing[1]}\n{value}\n".encode()).hexdigest()
        result: dict[int, tuple[int, ...]] = {}
        for account, rounds in sorted(self.drawable.items()):
            prices = [one.price for one in rounds]
            drawn = draw_rounds(seed, account, prices, self.terms.rounds)
            if drawn:
                result[account] = tuple(rounds[position].round for position in drawn)
        return result

    def payments(self, body: SpotCheckRecord, scale: int) -> list[float]:
        """What each member pays for a report; only members with drawn rounds take part."""
        assert self.terms is not None
        rounds = {one.round: one for one in self.drawable[body.account]}
        total = sum(one.price for one in rounds.values())
        found = {round_: (float(d), float(norm)) for round_, d, norm in body.found}
        measured = [
            Measured(rounds[round_].weight, *found[round_])
            for round_ in self.drawn[body.account]
            if round_ in found
        ]
        levy = self.terms.levy(cast("Outcome", body.outcome), total, measured)
        members = sorted(self.drawn)
        place = members.index(body.account)
        return shared(min(levy, MAX_FINE / 10**scale), place, len(members)).tolist()


def apply_opening(state: FederationState, record: Record, terms: Terms) -> None:
    """Remember an opening and what members are committed to; a run without checks needs nothing."""
    body = record.body
    assert isinstance(body, OpeningRecord | RoundRecord)
    if terms.spot is None:
        return
    run = state.checked.setdefault(body.run, CheckedRun())
    if isinstance(body, OpeningRecord):
        run.openings[body.round] = (record.sequence, record.hash)
    for number, account in state.accounts.items():
        if account.data is not None and account.app is not None:
            run.commitments.setdefault(number, (account.data, account.app))


def opening_hash(state: FederationState, run: str, round_: int) -> str:
    """The hash of the record that opened a round with spot checks; empty if there is none."""
    checked = state.checked.get(run)
    return "" if checked is None else checked.openings.get(round_, (0, ""))[1]


def apply_round(state: FederationState, record: Record, terms: Terms) -> None:
    """Remember which updates of a round count, and so can be drawn."""
    body = record.body
    assert isinstance(body, RoundRecord)
    if terms.spot is None:
        return
    apply_opening(state, record, terms)
    run = state.checked[body.run]
    run.terms = terms.spot
    ok = [number for number in body.accounts if number not in body.statuses]
    weights = effective_weights([body.weights.get(number, 1.0) for number in ok]).tolist()
    prices = dict.fromkeys(body.accounts, body.price[0] if body.price else 0.0)
    if len(body.price) > 1:
        listed = [account.number for account in state.listed(terms)]
        prices = dict(zip(listed, body.price, strict=True))
    for number, weight in zip(ok, weights, strict=True):
        run.drawable.setdefault(number, []).append(Drawable(body.round, prices[number], weight))


def apply_checkpoint(state: FederationState, body: CheckpointRecord) -> None:
    """The signatures of all witnesses under a closing record become its randomness."""
    note = Note.parse(body.note)
    for run in state.checked.values():
        if run.closing is None or run.value is not None or note.checkpoint.size != run.closing[0]:
            continue
        keys = [PublicKey.parse(key, WITNESS) for key in run.witnesses]
        signed = [raw for key in keys if (raw := note.cosignature(key)) is not None]
        if keys and len(signed) == len(keys):
            run.value = sha256(b"".join(signed)).hexdigest()


def apply_checks(
    state: FederationState, record: Record, body: ClosingRecord | DrawRecord | SpotCheckRecord
) -> None:
    """Remember a closing, a draw or a report."""
    run = state.checked[body.run]
    match body:
        case ClosingRecord():
            run.closing, run.beacon = (record.sequence, record.hash), body.beacon
            run.witnesses = state.changes.witnesses
        case DrawRecord():
            run.draw, run.drawn = record.hash, body.drawn
        case SpotCheckRecord():
            run.reported[body.account] = record.sequence
            carried = state.carried_of(body.accounts)
            _, after = to_units(np.array(body.payments), state.scale, carried)
            state.carried.update(zip(body.accounts, after, strict=True))


def check_closing(state: FederationState, body: ClosingRecord) -> None:
    """A run with spot checks is closed once, and says where its randomness will come from."""
    run = state.checked.get(body.run)
    if run is None or run.terms is None:
        raise BookError(
            f"run {body.run!r} has no rounds whose terms have a section [spot], so that nothing "
            "can be drawn"
        )
    if run.closing is not None:
        raise BookError(f"run {body.run!r} is closed already, by record {run.closing[0]}")
    if not body.beacon.strip() and not state.changes.witnesses:
        raise BookError(
            "the terms name no witnesses whose signatures could draw the rounds: announce a value "
            "that nobody knows yet (--beacon), such as one of a public lottery or of drand"
        )


def check_open(state: FederationState, run: str) -> None:
    """After its closing a run has no rounds any more."""
    known = state.checked.get(run)
    if known is not None and known.closing is not None:
        raise BookError(
            f"run {run!r} was closed by record {known.closing[0]}: it has no further rounds"
        )


def check_draw(state: FederationState, body: DrawRecord) -> None:
    """The drawn rounds are those of the randomness that the closing record announced."""
    run = state.checked.get(body.run)
    if run is None or run.closing is None:
        raise BookError(f"run {body.run!r} must be closed before rounds are drawn")
    if run.draw:
        raise BookError(f"the rounds of run {body.run!r} are drawn already")
    if not run.beacon.strip() and body.value != run.value:
        raise BookError(
            f"the rounds of run {body.run!r} are drawn by the signatures of witnesses under record "
            f"{run.closing[0]}, of which there are {'others' if run.value else 'too few'}: all "
            "must sign"
        )
    if body.drawn != run.expected_draw(body.value):
        raise BookError(f"the drawn rounds of run {body.run!r} do not follow from {body.value!r}")


def check_report(state: FederationState, body: SpotCheckRecord) -> None:
    """A report covers all drawn rounds of one member and is signed by the auditor."""
    run = state.checked.get(body.run)
    if run is None or not run.draw or run.terms is None:
        raise BookError(f"no rounds of run {body.run!r} are drawn")
    if body.account not in run.drawn:
        raise BookError(f"no rounds of account {body.account} are drawn")
    if body.account in run.reported:
        raise BookError(
            f"account {body.account} was reported on already, by record "
            f"{run.reported[body.account]}"
        )
    rounds = tuple(round_ for round_, _, _ in body.found)
    wanted = tuple(sorted(set(run.drawn[body.account]))) if body.outcome == "checked" else ()
    if rounds != wanted or (body.outcome == "checked") == bool(body.reason.strip()):
        raise BookError(
            "a report has either all rounds that were drawn, or the reason why there are none"
        )
    if body.outcome == "checked" and body.account not in run.commitments:
        raise BookError(f"account {body.account} committed to nothing: its outcome is missing")
    auditor = PublicKey.parse(run.terms.auditor, OPERATOR)
    if not is_valid(auditor.key, unbase64(body.signature), signed_text(run, body)):
        raise BookError("the report is not signed by the auditor whom the terms name")
    if body.accounts != tuple(sorted(run.drawn)) or len(body.payments) != len(body.accounts):
        raise BookError("a report charges exactly the members of whom rounds were drawn")


def check_fine(state: FederationState, body: SpotCheckRecord) -> None:
    """The fine follows from the report and the terms."""
    right = np.array(state.checked[body.run].payments(body, state.scale))
    booked = np.array(body.payments)
    most = _TOLERANCE * float(np.max(np.abs(right), initial=0.0))
    if not np.max(np.abs(booked - right), initial=0.0) <= most:
        raise BookError(f"the fine of account {body.account} does not follow from the report")
    units, _ = to_units(booked, state.scale, state.carried_of(body.accounts))
    if tuple(units) != body.amounts:
        raise BookError("the amounts of a report do not follow from its payments")


def signed_text(run: CheckedRun, body: SpotCheckRecord) -> bytes:
    """The bytes that the auditor signs."""
    data, app = run.commitments.get(body.account, ("-", "-"))
    lines = [
        "verax-spot-check/v1",
        f"draw {run.draw}",
        f"account {body.account}",
        f"outcome {body.outcome}",
        f"reason {body.reason}",
        f"data {data}",
        f"app {app}",
        *(f"round {round_} {distance} {norm}" for round_, distance, norm in body.found),
    ]
    return "".join(f"{line}\n" for line in lines).encode()
