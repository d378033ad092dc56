"""The book: an append-only chain of records per federation, in SQLite or PostgreSQL.

Every change of a federation is a record: its founding, members that join and leave, terms, limits,
rounds, deposits, corrections, settlements and checkpoints. A record contains the hash of the one
before it. One transaction writes a record with its entries, completely or not at all. Amounts are
whole numbers of minor units; a positive amount is owed by the member. The entries of every record
sum to zero. Every call may be repeated: what is in the book already is not booked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from numpy.typing import ArrayLike
from sqlalchemy import Connection

from verax.ledger.checks import check, check_terms
from verax.ledger.engine import BookError
from verax.ledger.evidence import check_statements
from verax.ledger.names import check_name
from verax.ledger.records import (
    JoinRecord,
    LeaveRecord,
    LimitRecord,
    OpeningRecord,
    RoundRecord,
    TermsRecord,
    decode,
)
from verax.ledger.reports import match_reports, new_members, ordered_gram, refuse_difference
from verax.ledger.round import UNKNOWN_MODELS, Models, Report, charged, draft_round
from verax.ledger.schema import qualified
from verax.ledger.spot import opening_hash
from verax.ledger.spot_booking import SpotBooking
from verax.ledger.state import ESCROW, FederationState
from verax.ledger.store import (
    Head,
    Receipt,
    insert_account,
    insert_entries,
    lookup_head,
    make_receipt,
    read_contents,
)
from verax.ledger.tree import leaf_hash
from verax.mechanism import Terms, rule_named


class Book(SpotBooking):
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
        text = _checked_text(terms)

        def work(connection: Connection) -> Receipt:
            if lookup_head(connection, federation, lock=True) is None:
                return self._found(connection, federation, text)
            state = self._current(connection, federation)
            if state.versions[0].terms != terms:
                raise BookError(
                    f"{federation!r} is in the book with other terms; "
                    "`verax ledger terms` changes them from a round on"
                )
            return make_receipt(state, self._record(connection, state, 1), posted=False)

        return self._write(federation, work)

    def join(
        self,
        federation: str,
        member: str,
        label: str = "",
        *,
        from_round: int = 1,
        run: str | None = None,
        key: str | None = None,
        data: str | None = None,
        app: str | None = None,
    ) -> Receipt:
        """Add a member, or change its label or key; the same call again changes nothing.

        Args:
            federation: its name.
            member: public key or opaque id; it never changes.
            label: the name that people use; by default the id.
            from_round: the first round that the member may take part in, …
            run: … in this run, and every round of other runs; without a run, in every run.
            key: the public key (Ed25519, base64) of its statements; None keeps the one it has.
            data: its commitment to its data, for spot checks; None keeps the one it has.
            app: its commitment to its app; None keeps the one it has.
        """
        check_name("member", member)
        label = check_name("label", label or member)

        def build(state: FederationState) -> list[JoinRecord]:
            number = state.by_member.get(member)
            old = state.accounts[ESCROW if number is None else number]  # escrow has no key
            given = (label, from_round, run, key or old.key, data or old.data, app or old.app)
            known = (old.label, old.from_round, old.from_run, old.key, old.data, old.app)
            if old.number and old.left_round is None and given == known:
                return []
            next_number = len(state.accounts) if number is None else max(number, 1)
            return [JoinRecord(next_number, member, *given)]

        return self._change(federation, build)

    def leave(
        self, federation: str, member: str, *, from_round: int = 1, run: str | None = None
    ) -> Receipt:
        """Record that a member takes part in no round from this one on; its balance stays.

        With a run, the round is one of that run, and the member takes part in no other run.
        """

        def build(state: FederationState) -> list[LeaveRecord]:
            account = state.member_account(member)
            if (account.left_round, account.left_run) == (from_round, run):
                return []
            return [LeaveRecord(account.number, from_round, run)]

        return self._change(federation, build)

    def change_terms(self, federation: str, terms: Terms, *, from_round: int) -> Receipt:
        """Set the terms for all rounds from this one on that are opened or posted after this call.

        The terms in force may demand notice or the signatures of witnesses.
        """
        text = _checked_text(terms)

        def build(state: FederationState) -> list[TermsRecord]:
            last = state.versions[-1]
            if last.terms == terms and last.from_round == from_round:
                return []
            return [TermsRecord(from_round, text)]

        return self._change(federation, build)

    def set_limit(self, federation: str, units: int | None, member: str | None = None) -> Receipt:
        """Set the largest debt of a member, or of all members; `over_limit` reports who exceeds it.

        Args:
            federation: its name.
            units: in minor units; None removes the limit.
            member: whose limit; None sets the limit of all members without one of their own.
        """

        def build(state: FederationState) -> list[LimitRecord]:
            number = None if member is None else state.member_account(member).number
            if number in state.limits and state.limits[number] == units:
                return []
            return [LimitRecord(number, units)]

        return self._change(federation, build)

    # Rounds

    def open_round(
        self, federation: str, run: str, round_: int, config: str | None = None
    ) -> Receipt:
        """Record that a round was configured: the terms in force now apply to it.

        Called before the updates of the round are known, so that nobody can choose a price after
        having seen them. The same call again changes nothing.

        Args:
            federation: its name.
            run: which training run.
            round_: t.
            config: the digest of the configuration that all members are sent, for spot checks.
        """

        def build(state: FederationState) -> list[OpeningRecord]:
            if (run, round_) in state.opened or (run, round_) in state.rounds:
                return []
            return [OpeningRecord(run, round_, state.version(round_).hash, config)]

        return self._change(federation, build)

    def post(
        self,
        federation: str,
        run: str,
        round_: int,
        reports: Sequence[Report],
        gram: ArrayLike | None = None,
        models: Models = UNKNOWN_MODELS,
    ) -> Receipt:
        """Charge a round by its terms and book it, completely or not at all.

        Its terms are those of its opening; if it was not opened, those in force now. Posting the
        same round again with the same reports changes nothing (`posted` is False); with other
        reports it is refused, and the error names the difference. In an open federation, whose
        terms list no `members`, an unknown member that reports joins with this round. In a closed
        federation all listed members must have joined, and one without a report counts as missing.

        Args:
            federation: its name.
            run: which training run; each run counts its rounds from 1.
            round_: t = 1, 2, …
            reports: one per member, in any order.
            gram: ⟨m_i, m_j⟩ of the ok updates as they counted, in the order of the reports, for
                the rules that read it.
            models: the digests of the model before and after the round.
        """
        check_name("run", run)
        if type(round_) is not int or not 1 <= round_ < 2**63:
            raise BookError(f"round is {round_!r}, must be a whole number in 1 … {2**63 - 1}")
        reports = list(reports)

        def work(connection: Connection) -> Receipt:
            state = self._current(connection, federation, lock=True)
            known = state.rounds.get((run, round_))
            if known is not None:
                record = self._record(connection, state, known[0])
                assert isinstance(record.body, RoundRecord)
                refuse_difference(state, record.body, reports, gram, models)
                return make_receipt(state, record, posted=False)
            version = state.version(round_, run)
            for report in reports:
                check_name("member", report.member)
            self._append(connection, state, new_members(state, version, run, round_, reports))
            rows = match_reports(state, version, round_, reports)
            matrix = ordered_gram(gram, rows, reports)
            draft = draft_round(version, run, round_, rows, matrix, models)
            keys = {account.number: account.key for account, _ in rows}
            opening = opening_hash(state, run, round_)
            check_statements(federation, keys, version.terms, draft, opening, signatures=True)
            return self._append(connection, state, [charged(state, version.terms, draft)])

        return self._write(federation, work)

    # Copies

    def import_records(
        self,
        federation: str,
        lines: Callable[[], Iterable[bytes]],
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Check records completely and append those that are new, in one transaction.

        Args:
            federation: its name.
            lines: returns the bytes of the records, from the first one on.
            progress: called with the number of records read since the last call.

        Returns:
            How many records were new.
        """
        new = 0

        def work(connection: Connection) -> Receipt:
            nonlocal new
            if lookup_head(connection, federation, lock=True) is None:
                state = self._insert_federation(connection, federation)
            else:
                state = self._current(connection, federation)
            before = state.sequence
            self._check_end(connection, state)
            for place, data in enumerate(lines(), 1):
                if place > before:
                    record = decode(data)
                    check(state, record, charges=True)
                    self._insert(connection, state, record)
                elif state.leaves[place - 1] != leaf_hash(data):
                    raise BookError(
                        f"the book and the file have different histories from record {place} "
                        "on; import the file into a book of its own"
                    )
                if progress is not None:
                    progress(1)
            new = state.sequence - before
            if new:
                self._advance(connection, state, before)
            return Receipt(new > 0, state.sequence, state.hash, {}, {})

        self._write(federation, work)
        return new

    def rebuild(self, federation: str) -> None:
        """Make the tables `entry` and `account` anew from the records."""

        def work(connection: Connection) -> Receipt:
            state = self._current(connection, federation, lock=True)
            for table in ("entry", "account"):
                delete = qualified(connection, f"DELETE FROM {{s}}{table} WHERE federation = :f")
                connection.execute(delete, {"f": state.id})
            for number, account in state.accounts.items():
                if number != ESCROW:
                    insert_account(connection, state.id, number, account.member, account.label)
            for content in read_contents(connection, Head(state.id, state.sequence, state.hash), 0):
                insert_entries(connection, state.id, decode(content))
            self._check_indexes(connection, state)
            return Receipt(True, state.sequence, state.hash, {}, {})

        self._write(federation, work)


def _checked_text(terms: Terms) -> str:
    """The text of terms, unless no round could be charged by them."""
    rule_named(terms.rule)
    check_terms(terms)
    return terms.to_toml()
