"""Closing a run, drawing the rounds that are checked, and booking the auditor's reports."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection

from verax.ledger.decisions import Decisions
from verax.ledger.engine import BookError
from verax.ledger.forms import MAX_REASON, digest
from verax.ledger.money import to_units
from verax.ledger.records import ClosingRecord, DrawRecord, Record, SpotCheckRecord
from verax.ledger.spot import CheckedRun, check_fine, check_report, signed_text
from verax.ledger.state import FederationState
from verax.ledger.store import Receipt, make_receipt
from verax.mechanism.spot_checks import Outcome


@dataclass(frozen=True)
class SpotReport:
    """What an auditor found at one member.

    Attributes:
        federation: whose book it is for.
        run: which training run.
        member: public key or id.
        outcome: checked, refused, mismatch or missing.
        reason: why it is not checked, in one line.
        found: round, ‖m − g‖² and ‖g‖² of each drawn round, numbers as text.
        signature: the auditor's, in base64.
    """

    federation: str
    run: str
    member: str
    outcome: Outcome
    reason: str = ""
    found: tuple[tuple[int, str, str], ...] = ()
    signature: str = ""


def sign_report(state: FederationState, report: SpotReport, key: Ed25519PrivateKey) -> SpotReport:
    """The report with the auditor's signature."""
    reason = " ".join(report.reason.split())[:MAX_REASON]
    cleaned = replace(report, reason=reason)
    text = signed_text(drawn_run(state, report.run), _draft(state, cleaned))
    return replace(cleaned, signature=b64encode(key.sign(text)).decode())


def drawn_run(state: FederationState, run: str) -> CheckedRun:
    """The spot checks of a run whose rounds are drawn."""
    checked = state.checked.get(run)
    if checked is None or not checked.draw:
        raise BookError(
            f"no rounds of run {run!r} are drawn; `verax ledger close` and `verax ledger draw` "
            "come first"
        )
    return checked


def draft_fine(state: FederationState, report: SpotReport) -> float:
    """What a member will be fined for a report, in the currency."""
    body = _draft(state, report)
    payments = drawn_run(state, report.run).payments(body, state.scale)
    return payments[body.accounts.index(body.account)]


class SpotBooking(Decisions):
    """The methods of a book for spot checks."""

    def close_run(self, federation: str, run: str, beacon: str = "") -> Receipt:
        """Record that a run has ended; the same call again changes nothing.

        Args:
            federation: its name.
            run: which training run; it has no further rounds.
            beacon: which value of a public beacon will draw the rounds that are checked, in words;
                empty: the signatures of all witnesses of the terms under this record.
        """

        def build(state: FederationState) -> list[ClosingRecord]:
            known = state.checked.get(run)
            if known is not None and known.closing is not None and known.beacon == beacon:
                return []
            return [ClosingRecord(run, beacon)]

        return self._change(federation, build)

    def opening(self, federation: str, run: str, round_: int) -> Record:
        """The record that opened a round whose terms have spot checks."""
        with self._reading(federation) as (connection, state):
            checked = state.checked.get(run)
            if checked is None or round_ not in checked.openings:
                raise BookError(f"round {round_} of run {run!r} was not opened with spot checks")
            return self._record(connection, state, checked.openings[round_][0])

    def draw(self, federation: str, run: str, value: str = "") -> Receipt:
        """Draw the rounds that are checked; the same call again changes nothing.

        Args:
            federation: its name.
            run: a run that is closed.
            value: what the beacon said, 64 lower-case hexadecimal digits; empty if the signatures
                of witnesses draw.
        """

        def build(state: FederationState) -> list[DrawRecord]:
            checked = state.checked.get(run)
            if checked is None or checked.closing is None:
                raise BookError(f"run {run!r} must be closed before rounds are drawn")
            if bool(checked.beacon.strip()) != bool(value):
                words = f"give the value of {checked.beacon!r}" if checked.beacon else "give none"
                raise BookError(f"the value is {value!r}; {words}, as the closing record says")
            used = digest(value) if value else checked.value
            if used is None:
                raise BookError(
                    f"too few witnesses have signed the book up to record {checked.closing[0]}, "
                    f"which closed the run: all {len(checked.witnesses)} must, on one checkpoint; "
                    "see `verax ledger witness`"
                )
            drawn = checked.expected_draw(used)
            return [] if checked.draw and checked.drawn == drawn else [DrawRecord(run, used, drawn)]

        return self._change(federation, build)

    def add_report(self, report: SpotReport) -> Receipt:
        """Book an auditor's report and its fine; the same report again changes nothing."""

        def work(connection: Connection) -> Receipt:
            state = self._current(connection, report.federation, lock=True)
            body = _draft(state, report)
            checked = drawn_run(state, report.run)
            known = checked.reported.get(body.account)
            if known is not None:
                record = self._record(connection, state, known)
                assert isinstance(record.body, SpotCheckRecord)
                if record.body.signature != body.signature:
                    raise BookError(
                        f"{report.member!r} was reported on already, by record {known}; "
                        "`verax ledger correct` reverses what was wrong"
                    )
                return make_receipt(state, record, posted=False)
            zeros = (0.0,) * len(body.accounts), (0,) * len(body.accounts)
            check_report(state, replace(body, payments=zeros[0], amounts=zeros[1]))
            payments = checked.payments(body, state.scale)
            carried = state.carried_of(body.accounts)
            units, _ = to_units(np.array(payments), state.scale, carried)
            body = replace(body, payments=tuple(payments), amounts=tuple(units))
            check_fine(state, body)
            return self._append(connection, state, [body])

        return self._write(report.federation, work)


def _draft(state: FederationState, report: SpotReport) -> SpotCheckRecord:
    """The record of a report before it is charged."""
    return SpotCheckRecord(
        run=report.run,
        account=state.member_account(report.member).number,
        outcome=report.outcome,
        reason=report.reason,
        found=report.found,
        signature=report.signature,
        accounts=tuple(sorted(drawn_run(state, report.run).drawn)),
        payments=(),
        amounts=(),
    )
