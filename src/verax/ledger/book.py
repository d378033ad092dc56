"""The book: an append-only chain of records per federation, in SQLite or PostgreSQL.

Every change of a federation is a record: its creation, members that join and leave, terms, limits,
rounds, deposits, corrections and settlements. A record contains the hash of the one before it. One
transaction writes a record with its entries, completely or not at all. Amounts are whole numbers of
minor units; a positive amount is owed by the member. The entries of every record sum to zero.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from sqlalchemy import Connection

from verax.ledger.canonical import digest
from verax.ledger.engine import BookError
from verax.ledger.limits import check_amount, check_bookable, check_round
from verax.ledger.names import check_name
from verax.ledger.queries import BookReader
from verax.ledger.reports import match_reports, new_members, ordered_gram, refuse_difference
from verax.ledger.round import Report, round_content
from verax.ledger.state import ESCROW, FederationState, join_record
from verax.ledger.store import (
    Receipt,
    advance,
    insert_record,
    lookup_head,
    make_receipt,
)
from verax.mechanism import Terms, rule_named


@dataclass(frozen=True)
class Transfer:
    """One payment of a settlement from one member to another, in minor units."""

    payer: str
    receiver: str
    amount: int


class Book(BookReader):
    """The books of one or more federations.

    Example:
        >>> import tempfile, os
        >>> from verax.ledger import Book, Report
        >>> from verax.mechanism import Price, Terms
        >>> with Book.create(os.path.join(tempfile.mkdtemp(), "book.db")) as book:
        ...     _ = book.create_federation("clinics", Terms(Price.constant(0.5), scale=2))
        ...     reports = [Report("a", statistic=4.0), Report("b", statistic=1.0)]
        ...     receipt = book.post("clinics", run="first", round_=1, reports=reports)
        ...     (receipt.amounts, book.balances("clinics"))
        ({'a': 150, 'b': -150}, {'a': 150, 'b': -150})
    """

    @classmethod
    def create(
        cls,
        url: str | Path,
        *,
        wait: float = 30.0,
        clock: Callable[[], datetime] | None = None,
    ) -> Book:
        """Create a book, or open the existing one.

        Args:
            url: a path, `sqlite:///…`, or `postgresql://…`.
            wait: how many seconds to wait for the locks of other writers.
            clock: returns the current time; for tests.
        """
        return cls(url, wait=wait, clock=clock, _create=True)

    @classmethod
    def open(
        cls,
        url: str | Path,
        *,
        wait: float = 30.0,
        read_only: bool = False,
        clock: Callable[[], datetime] | None = None,
    ) -> Book:
        """Open an existing book; `read_only` also opens a file that cannot be written."""
        return cls(url, wait=wait, read_only=read_only, clock=clock)

    # Federations and members

    def create_federation(self, federation: str, terms: Terms) -> Receipt:
        """Create a federation with its terms; the same call again changes nothing."""
        check_name("federation", federation)
        _check_terms(terms)
        text = terms.to_toml()

        def work(connection: Connection) -> Receipt:
            head = lookup_head(connection, federation, lock=True)
            if head is not None:
                state = self._state(connection, federation, head)
                if state.versions[0].terms != terms:
                    raise BookError(
                        f"{federation!r} is in the book with other terms; "
                        "`verax ledger terms` changes them from a round on"
                    )
                return Receipt(False, 1, self._hash(connection, state, 1), {}, {})
            state = self._states[federation] = self._insert_federation(connection, federation)
            return self._append(connection, state, [{"kind": "create", "terms": text}])

        return self._write(federation, work)

    def join(
        self,
        federation: str,
        member: str,
        label: str = "",
        *,
        from_round: int = 1,
        run: str | None = None,
    ) -> Receipt:
        """Add a member, or change its label; the same call again changes nothing.

        Args:
            federation: its name.
            member: public key or opaque id; it never changes.
            label: the name that people use; by default the id.
            from_round: the first round that the member may take part in, …
            run: … in this run, and every round of other runs; without a run, in every run.
        """
        check_name("member", member)
        label = check_name("label", label or member)
        check_round("from_round", from_round)

        def build(state: FederationState) -> list[dict[str, Any]]:
            known = state.by_member.get(member)
            if known is not None and known != ESCROW:
                old = state.accounts[known]
                if (
                    old.label == label
                    and old.left_round is None
                    and (old.from_round, old.from_run) == (from_round, run)
                ):
                    return []
            return [join_record(state, member, label, from_round, run)]

        return self._change(federation, build)

    def leave(
        self, federation: str, member: str, *, from_round: int = 1, run: str | None = None
    ) -> Receipt:
        """Record that a member takes part in no round from this one on; its balance stays.

        With a run, the round is one of that run, and the member takes part in no other run.
        """
        check_round("from_round", from_round)

        def build(state: FederationState) -> list[dict[str, Any]]:
            account = state.member_account(member)
            if (account.left_round, account.left_run) == (from_round, run):
                return []
            body = {"kind": "leave", "account": account.number}
            return [body | {"from_round": from_round, "run": run}]

        return self._change(federation, build)

    def change_terms(self, federation: str, terms: Terms, *, from_round: int) -> Receipt:
        """Set the terms for all rounds from this one on that are posted after this call."""
        check_round("from_round", from_round)
        _check_terms(terms)
        text = terms.to_toml()

        def build(state: FederationState) -> list[dict[str, Any]]:
            if (terms.currency, terms.scale) != (state.currency, state.scale):
                raise BookError(
                    f"currency and scale are {state.currency} and {state.scale}, cannot change to "
                    f"{terms.currency} and {terms.scale}: balances would lose their meaning"
                )
            last = state.versions[-1]
            if last.terms == terms and last.from_round == from_round:
                return []
            return [{"kind": "terms", "from_round": from_round, "terms": text}]

        return self._change(federation, build)

    def set_limit(self, federation: str, units: int | None, member: str | None = None) -> Receipt:
        """Set the largest debt of a member, or of all members; `over_limit` reports who exceeds it.

        Args:
            federation: its name.
            units: in minor units; None removes the limit.
            member: whose limit; None sets the limit of all members without one of their own.
        """
        if units is not None:
            check_amount("limit", units, low=0)

        def build(state: FederationState) -> list[dict[str, Any]]:
            number = None if member is None else state.member_account(member).number
            if number in state.limits and state.limits[number] == units:
                return []
            return [{"kind": "limit", "account": number, "limit": units}]

        return self._change(federation, build)

    # Entries

    def post(
        self,
        federation: str,
        run: str,
        round_: int,
        reports: Sequence[Report],
        gram: ArrayLike | None = None,
    ) -> Receipt:
        """Charge a round by the terms in force and book it, completely or not at all.

        Posting the same round again with the same reports changes nothing (`posted` is False); with
        other reports it is refused, and the error names the difference. In an open federation,
        whose terms list no `members`, an unknown member that reports joins with this round. In a
        closed federation all listed members must have joined, and one without a report counts as
        missing.

        Args:
            federation: its name.
            run: which training run; each run counts its rounds from 1.
            round_: t = 1, 2, …
            reports: one per member, in any order.
            gram: ⟨m_i, m_j⟩ of the ok updates as they counted, in the order of the reports, for
                the rules that read it.
        """
        check_name("run", run)
        check_round("round", round_)
        reports = list(reports)

        def work(connection: Connection) -> Receipt:
            state = self._current(connection, federation, lock=True)
            stored = self._round(connection, state, run, round_)
            if stored is not None:
                content = stored.content
                refuse_difference(state, content, reports, gram)
                return make_receipt(state, content, stored.hash, posted=False)
            version = state.version(round_)
            self._append(connection, state, new_members(state, version, run, round_, reports))
            rows = match_reports(state, version, run, round_, reports)
            body = round_content(state, version, round_, rows, ordered_gram(gram, rows, reports))
            body |= {"kind": "round", "run": run, "round": round_}
            return self._append(connection, state, [body])

        return self._write(federation, work)

    def deposit(self, federation: str, member: str, units: int, reason: str = "") -> Receipt:
        """Book money that a member pays in before it is charged; a negative amount is paid out."""
        check_amount("deposit", units)

        def build(state: FederationState) -> list[dict[str, Any]]:
            entries = {ESCROW: units, state.member_account(member).number: -units}
            return [_entries("deposit", entries) | {"reason": reason}]

        return self._change(federation, build, repeatable=False)

    def correct(
        self,
        federation: str,
        amounts: Mapping[str, int],
        reason: str,
        *,
        corrects: int | None = None,
    ) -> Receipt:
        """Book a reversing entry with a reason; the record that was wrong stays in the book.

        Args:
            federation: its name.
            amounts: minor units per member, summing to zero.
            reason: why; statements print it.
            corrects: the sequence number of the record that was wrong.
        """
        if not reason.strip():
            raise BookError("a correction needs a reason")
        total = sum(amounts.values())
        if total or not any(amounts.values()):
            raise BookError(f"the entries of a correction must sum to zero, these sum to {total}")
        for units in amounts.values():
            check_amount("correction", units, zero=True)

        def build(state: FederationState) -> list[dict[str, Any]]:
            if corrects is not None and not 1 <= corrects <= state.sequence:
                raise BookError(f"record {corrects} does not exist, the last is {state.sequence}")
            entries: dict[int, int] = {}
            for name, units in amounts.items():
                number = state.account(name).number
                if number in entries:
                    raise BookError(f"{name!r} is in the correction twice")
                entries[number] = units
            return [_entries("correction", entries) | {"corrects": corrects, "reason": reason}]

        return self._change(federation, build, repeatable=False)

    def settle(self, federation: str, transfers: Sequence[Transfer], *, sequence: int) -> Receipt:
        """Book transfers that have been made.

        Args:
            federation: its name.
            transfers: who paid whom.
            sequence: the last record that the transfers were computed from; if the book has grown
                since then, they are refused.
        """

        def build(state: FederationState) -> list[dict[str, Any]]:
            if state.sequence != sequence:
                raise BookError(
                    f"the book grew from record {sequence} to {state.sequence} since the "
                    "settlement was computed; compute it again"
                )
            entries: dict[int, int] = {}
            rows: list[list[int]] = []
            for transfer in transfers:
                payer = state.account(transfer.payer).number
                receiver = state.account(transfer.receiver).number
                if transfer.amount <= 0 or payer == receiver:
                    raise BookError(f"{transfer} must move a positive amount between two members")
                entries[payer] = entries.get(payer, 0) - transfer.amount
                entries[receiver] = entries.get(receiver, 0) + transfer.amount
                rows.append([payer, receiver, transfer.amount])
            if not rows:
                return []
            return [_entries("settlement", entries) | {"transfers": rows}]

        return self._change(federation, build, repeatable=False)

    def import_records(
        self,
        federation: str,
        texts: Callable[[], Iterable[str]],
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Insert verified records in one transaction; see `verax.ledger.export.import_book`.

        Args:
            federation: its name.
            texts: returns the canonical texts from the first record on.
            progress: called with the number of records read since the last call.

        Returns:
            How many records were new.
        """
        new = 0

        def work(connection: Connection) -> Receipt:
            nonlocal new
            new = 0
            head = lookup_head(connection, federation, lock=True)
            if head is None:
                state = self._insert_federation(connection, federation)
            else:
                state = FederationState(head.id, federation, hash=head.hash)
                self._load(connection, state, head.sequence)
            known = state.sequence
            for text in texts():
                content = json.loads(text)
                sequence = content["sequence"]
                if sequence > known:
                    insert_record(connection, state, content, text)
                    new += 1
                elif self._hash(connection, state, sequence) != digest(text):
                    raise BookError(
                        f"the book and the file have different histories from record {sequence} "
                        "on; import the file into a book of its own"
                    )
                if progress is not None:
                    progress(1)
            advance(connection, state)
            self._states[federation] = state
            return Receipt(new > 0, state.sequence, state.hash, {}, {})

        self._write(federation, work)
        return new


def _check_terms(terms: Terms) -> None:
    """Refuse terms by which no round could be charged."""
    rule_named(terms.rule)
    check_bookable(terms)


def _entries(kind: str, amounts: Mapping[int, int]) -> dict[str, Any]:
    pairs = sorted(amounts.items())
    return {
        "kind": kind,
        "accounts": [number for number, _ in pairs],
        "amounts": [amount for _, amount in pairs],
    }
