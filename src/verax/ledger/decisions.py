"""Amounts that somebody decides on: deposits, corrections, settlements, and what witnesses sign.

No rule computes them; `verify` lists each for the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from verax.ledger.engine import BookError
from verax.ledger.forms import MAX_REASON
from verax.ledger.names import check_name
from verax.ledger.queries import BookReader
from verax.ledger.records import (
    CheckpointRecord,
    CorrectionRecord,
    DepositRecord,
    SettlementRecord,
)
from verax.ledger.state import ESCROW, FederationState
from verax.ledger.store import Receipt, make_receipt

_Booked = DepositRecord | CorrectionRecord | SettlementRecord


@dataclass(frozen=True)
class Transfer:
    """One payment of a settlement from one member to another, in minor units."""

    payer: str
    receiver: str
    amount: int


class Decisions(BookReader):
    """The methods of a book that book what somebody decided on."""

    def deposit(
        self, federation: str, member: str, units: int, reason: str = "", *, reference: str
    ) -> Receipt:
        """Book money that a member pays in before it is charged; a negative amount is paid out.

        Args:
            federation: its name.
            member: who pays.
            units: in minor units.
            reason: what it is for; statements print it.
            reference: an id that the caller chooses; a deposit with the same one is booked once.
        """

        def build(state: FederationState) -> DepositRecord:
            number = state.member_account(member).number
            return DepositRecord(reference, (ESCROW, number), (units, -units), reason[:MAX_REASON])

        return self._book(federation, reference, build)

    def correct(
        self,
        federation: str,
        amounts: Mapping[str, int],
        reason: str,
        *,
        reference: str,
        corrects: int | None = None,
    ) -> Receipt:
        """Book a reversing entry with a reason; the record that was wrong stays in the book.

        Args:
            federation: its name.
            amounts: minor units per member, summing to zero.
            reason: why; statements print it.
            reference: an id that the caller chooses; a correction with the same one is booked once.
            corrects: the sequence number of the record that was wrong.
        """

        def build(state: FederationState) -> CorrectionRecord:
            entries: dict[int, int] = {}
            for name, units in amounts.items():
                number = state.account(name).number
                if number in entries:
                    raise BookError(f"{name!r} is in the correction twice")
                entries[number] = units
            return CorrectionRecord(reference, *_columns(entries), corrects, reason)

        return self._book(federation, reference, build)

    def settle(
        self, federation: str, transfers: Sequence[Transfer], *, sequence: int, reference: str
    ) -> Receipt:
        """Book transfers that have been made.

        Args:
            federation: its name.
            transfers: who paid whom.
            sequence: the last record that the transfers were computed from; if the book has grown
                since then, they are refused.
            reference: an id that the caller chooses; a settlement with the same one is booked once.
        """

        def build(state: FederationState) -> SettlementRecord:
            # Checkpoints of the witnesses change nothing that a settlement depends on.
            if reference not in state.references and state.last_decision > sequence:
                raise BookError(
                    f"the book grew from record {sequence} to {state.sequence} since the "
                    "settlement was computed; compute it again"
                )
            entries: dict[int, int] = {}
            rows: list[tuple[int, int, int]] = []
            for transfer in transfers:
                payer = state.account(transfer.payer).number
                receiver = state.account(transfer.receiver).number
                entries[payer] = entries.get(payer, 0) - transfer.amount
                entries[receiver] = entries.get(receiver, 0) + transfer.amount
                rows.append((payer, receiver, transfer.amount))
            return SettlementRecord(reference, *_columns(entries), tuple(rows))

        return self._book(federation, reference, build)

    def add_checkpoint(self, federation: str, note: str) -> Receipt:
        """Book a checkpoint that witnesses of the terms have signed."""
        return self._change(federation, lambda _: [CheckpointRecord(note)])

    def _book(
        self, federation: str, reference: str, build: Callable[[FederationState], _Booked]
    ) -> Receipt:
        """Append a record with a reference, unless the book has it already."""
        check_name("reference", reference)

        def work(connection: Connection) -> Receipt:
            state = self._current(connection, federation, lock=True)
            body = build(state)
            known = state.references.get(reference)
            if known is None:
                self._check_indexes(connection, state)
                return self._append(connection, state, [body])
            record = self._record(connection, state, known)
            if record.body != body:
                raise BookError(
                    f"the reference {reference!r} is in the book with other content, as record "
                    f"{known}; choose another one for another booking"
                )
            return make_receipt(state, record, posted=False)

        return self._write(federation, work)


def _columns(amounts: Mapping[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pairs = sorted(amounts.items())
    return tuple(number for number, _ in pairs), tuple(amount for _, amount in pairs)
