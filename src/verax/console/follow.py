"""A federation that is followed: its state and its history, brought up to date record by record."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from verax.console.history import RoundRow, RunTotal, Series, norms_of
from verax.flower.alarm import Alarm
from verax.ledger import Book, BookError, BookUnavailableError
from verax.ledger.checks import check
from verax.ledger.money import format_units
from verax.ledger.records import CheckpointRecord, Record, RoundRecord
from verax.ledger.state import Account, FederationState
from verax.ledger.tree import leaf_hash
from verax.mechanism import Terms
from verax.mechanism.rules import BUILT_IN

#: Rounds at the end of the book in which alarms are looked for when the console starts.
ALARMED = 500
#: Records that are kept decoded: members look at the same last rounds.
_KEPT = 512


def key_of(federation: str) -> str:
    """What stands for a federation in addresses: its name may contain anything.

    Example:
        >>> key_of("clinics")
        '28ed403912f26e34'
    """
    return sha256(federation.encode()).hexdigest()[:16]


@dataclass
class Followed:
    """A federation up to the last record that was read.

    Attributes:
        name: the federation.
        state: what its records define.
        rounds: all rounds, in the order of the chain.
        series: by account number.
        runs: the names of all runs, in the order in which they began.
        marked: the rounds with an alarm or a norm outside the audited band.
        checkpoints: the records of checkpoints that witnesses signed.
        problem: why its book cannot be read any further; empty if it can.
        lock: held while the federation is read or brought up to date.
    """

    name: str
    state: FederationState
    rounds: list[RoundRow] = field(default_factory=list[RoundRow])
    series: dict[int, Series] = field(default_factory=dict[int, Series])
    runs: dict[str, None] = field(default_factory=dict[str, None])
    marked: list[RoundRow] = field(default_factory=list[RoundRow])
    checkpoints: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    problem: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _run: str = ""
    _alarm: Alarm = field(default_factory=Alarm)

    @cached_property
    def key(self) -> str:
        """What stands for it in addresses."""
        return key_of(self.name)

    @property
    def news(self) -> tuple[int, str]:
        """How far it was read, and what is wrong."""
        return self.state.sequence, self.problem

    @property
    def terms(self) -> Terms:
        """The newest terms."""
        return self.state.versions[-1].terms

    @property
    def members(self) -> list[Account]:
        """All members that ever joined, in the order in which they joined."""
        return [account for number, account in sorted(self.state.accounts.items()) if number]

    def money(self, units: int) -> str:
        """An amount for readers: grouped thousands and a true minus."""
        text = format_units(abs(units), self.state.scale)
        whole, point, part = text.partition(".")
        return f"{'−' if units < 0 else ''}{int(whole):,}{point}{part}"

    def units(self, amount: float) -> int:
        """The nearest number of minor units."""
        return round(amount * 10**self.state.scale)

    def shows_all(self, what: str) -> bool:
        """Whether every version of the terms lets members see each other's amounts or norms."""
        return all(
            version.terms.openness is not None and getattr(version.terms.openness, what) == "all"
            for version in self.state.versions
        )

    def advance(self, book: Book, last: int) -> None:
        """Read the records that were added; `last` is the end of the book as it is known."""
        try:
            for record in book.records(self.name, after=self.state.sequence):
                with self.lock:
                    check(self.state, record, charges=False)
                    self.state.apply(record)
                    self._add(record, last)
            self.problem = ""
        except (BookError, BookUnavailableError, ValueError) as error:
            self.problem = str(error)

    def _add(self, record: Record, last: int) -> None:
        body = record.body
        norms: dict[int, float] = {}
        promised: dict[int, float] = {}
        if isinstance(body, RoundRecord):
            norms = norms_of(body)
            promised = allowances(self.state, self._terms_of(body), body)
            row = self._round(record, body, norms, last)
            self.rounds.append(row)
            self.runs[row.run] = None
            self.marked += [row] if row.marked else []
        elif isinstance(body, CheckpointRecord):
            self.checkpoints.append((record.sequence, body.note))
        for number, amount in record.entries:
            series = self.series.setdefault(number, Series())
            series.add(record.sequence, amount, norms.get(number, math.nan))
            if isinstance(body, RoundRecord):
                row = self.rounds[-1]
                series.marked += [row] if number in row.marked else []
                total = series.runs.setdefault(body.run, RunTotal())
                total.charged += amount
                total.promised += promised.get(number, 0.0)
                total.counted += number not in body.statuses

    def _terms_of(self, body: RoundRecord) -> Terms:
        return self.state.version_of(body.terms).terms

    def _round(
        self, record: Record, body: RoundRecord, norms: dict[int, float], last: int
    ) -> RoundRow:
        audited = self._terms_of(body).audited
        low, high = (0.0, math.inf) if audited is None else audited.band(body.round)
        outside = tuple(number for number, norm in norms.items() if not low <= norm <= high)
        if body.run != self._run:
            self._run, self._alarm = body.run, Alarm()
        alarms: dict[int, str] = {}
        if record.sequence > last - ALARMED:
            found = self._alarm.update({str(number): norm for number, norm in norms.items()})
            alarms = {int(number): message for number, message in found.items()}
        return RoundRow(
            record.sequence,
            body.run,
            body.round,
            record.time,
            len(body.accounts),
            len(body.accounts) - len(body.statuses),
            outside,
            alarms,
        )


def allowances(state: FederationState, terms: Terms, body: RoundRecord) -> dict[int, float]:
    """What allowances take off the payments of a round, by account: κ_i less the mean of all κ_j.

    The mean is that of the participants: whoever is absent neither pays nor receives, and the
    allowances of the others must still balance.
    """
    kappa = terms.allowances_at(body.round)
    if kappa is None:
        return {}
    table = dict(zip((each.number for each in state.listed(terms)), kappa.tolist(), strict=True))
    present = participants(terms, body)
    mean = math.fsum(table[number] for number in present) / max(len(present), 1)
    return {number: table[number] - mean for number in present}


def participants(terms: Terms, body: RoundRecord) -> list[int]:
    """The accounts that a round charges by its rule; none if too few took part.

    Whoever the policy charges like the largest takes part, too, if anybody's update counted.
    """
    if len(body.statuses) == len(body.accounts):
        return []
    found = [number for number in body.accounts if _takes_part(terms, body.statuses.get(number))]
    fewest = next((rule.fewest for rule in BUILT_IN if rule.name == body.rule), 2)
    return found if len(found) >= fewest else []


def _takes_part(terms: Terms, status: str | None) -> bool:
    return status is None or getattr(terms.policy, status) == "largest"


class Library:
    """All federations of a book, followed.

    Args:
        book: open for reading.
    """

    def __init__(self, book: Book) -> None:
        self.book = book
        self.problem = ""
        self._followed: dict[str, Followed] = {}
        self._records: OrderedDict[tuple[str, int], Record] = OrderedDict()
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self.refresh()

    @property
    def federations(self) -> list[Followed]:
        """All federations that have a record, by name."""
        return [each for _, each in sorted(self._followed.items()) if each.state.sequence]

    def find(self, key: str) -> Followed | None:
        """A federation by its key."""
        return next((each for each in self.federations if each.key == key), None)

    @property
    def news(self) -> dict[str, tuple[int, str]]:
        """What pages should be told of: how far each federation was read, and what is wrong."""
        return {name: each.news for name, each in self._followed.copy().items()}

    def refresh(self) -> None:
        """Read what was added to the book; one caller at a time: each record is added once."""
        with self._refreshing:
            try:
                for name in self.book.federations():
                    self._bring_up_to_date(name)
                self.problem = ""
            except (BookError, BookUnavailableError) as error:
                self.fail(str(error))

    def fail(self, problem: str) -> None:
        """The book cannot be read now; pages say so until it can."""
        self.problem = problem
        for followed in self._followed.copy().values():
            followed.problem = problem

    def _bring_up_to_date(self, name: str) -> None:
        if name not in self._followed:
            self._followed[name] = Followed(name, FederationState(0, name))
        followed = self._followed[name]
        known, last = followed.state.sequence, self.book.length(name)
        if last > known:
            followed.advance(self.book, last)
        elif last == known:
            followed.problem = ""
        else:
            followed.problem = (
                f"the book had {known} records and has {last} now: records were removed; "
                "`verax ledger verify` says what is wrong"
            )

    def record(self, federation: str, sequence: int) -> Record:
        """One record that was followed, decoded; the last ones that were asked for are kept."""
        place = (federation, sequence)
        with self._lock:
            if place in self._records:
                self._records.move_to_end(place)
                return self._records[place]
        found = self.book.record(federation, sequence)
        if leaf_hash(found.data) != self._followed[federation].state.leaves[sequence - 1]:
            raise BookError(
                f"record {sequence} of {federation!r} is not the one that was there before; "
                "`verax ledger verify` says what is wrong"
            )
        with self._lock:
            self._records[place] = found
            while len(self._records) > _KEPT:
                self._records.popitem(last=False)
        return found
