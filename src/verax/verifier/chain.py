"""The chain of records and the Merkle tree over them: the book up to a record."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verax.verifier.checks import checks_of, decision
from verax.verifier.forms import Account, Record, WrongRecordError, as_seen, decode
from verax.verifier.signatures import is_cosigned, parse_note
from verax.verifier.spot import CheckedRun
from verax.verifier.terms import Measure, Terms

_MAX_FINDINGS = 200  # findings that are kept; the rest is only counted


@dataclass(frozen=True)
class Finding:
    """One finding: its kind, the record (0 for the book as a whole) and a sentence."""

    kind: str
    sequence: int
    message: str


@dataclass
class Verification:
    """What was read and what was found.

    Attributes:
        federation: whose book it is.
        sequence: the last record.
        hash: its hash, as computed.
        root: the root of the Merkle tree over all records, as computed.
        rounds: how many rounds were checked.
        entries: how many entries were checked.
        balances: minor units per member, as computed.
        findings: the first findings.
        wrong: how many findings there are in all, without those of the kind `unchecked`.
        decisions: what somebody decided on and no rule can check: deposits, corrections,
            settlements, changed terms, skipped rounds, times that run backwards.
        unchecked: rules that the verifier does not know, so that their payments were not
            recomputed; each also has a finding of the kind `unchecked`.
        checkpoints: how many checkpoints were compared.
        proven: what a member's statements and receipts prove, a sentence for each receipt.
    """

    federation: str = ""
    sequence: int = 0
    hash: str = "0" * 64
    root: bytes = b""
    rounds: int = 0
    entries: int = 0
    balances: dict[str, int] = field(default_factory=dict[str, int])
    findings: list[Finding] = field(default_factory=list[Finding])
    wrong: int = 0
    decisions: list[Finding] = field(default_factory=list[Finding])
    unchecked: list[str] = field(default_factory=list[str])
    checkpoints: int = 0
    proven: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found; payments by rules in `unchecked` were not recomputed."""
        return not self.wrong

    def add(self, kind: str, sequence: int, message: str) -> None:
        """Add a finding."""
        self.wrong += kind != "unchecked"
        if len(self.findings) < _MAX_FINDINGS:
            self.findings.append(Finding(kind, sequence, message))

    def decided(self, kind: str, sequence: int, message: str) -> None:
        """Add a decision, which the reader should know of."""
        self.decisions.append(Finding(kind, sequence, message))


class Chain:
    """The book up to a record, and the checks of the next one."""

    def __init__(self, result: Verification, rules: Mapping[str, Measure]) -> None:
        self.result, self.rules = result, rules
        self.terms: list[Terms] = []
        self.accounts: dict[int, Account] = {0: Account("escrow", "escrow")}
        self.names: dict[str, int] = {"escrow": 0}  # account by a name as people see it
        self.keys: dict[str, int] = {}  # account by a key that it has or had
        self.runs: dict[str, str] = {}  # run by its name as people see it
        self.balances: dict[int, int] = {}
        self.carried: dict[int, int] = {0: 0}  # nano-units
        self.restricted: set[int] = set()  # accounts that may not take part in every round
        self.rounds: dict[str, Intervals] = {}
        self.opened: dict[tuple[str, int], str] = {}
        self.last_round: tuple[str, int] = ("", 0)
        self.last_of_run: dict[str, int] = {}  # sequence number of the last round of each run
        self.references: set[str] = set()
        self.leaves = bytearray()
        self.cosigned: dict[str, int] = {}
        self.last_decision = 0
        self.checked: dict[str, CheckedRun] = {}  # spot checks by run
        self.time = ""

    def check(self, line: bytes) -> Record | None:
        """Check a record; returns it if it could be read."""
        result = self.result
        place = result.sequence + 1
        record = None
        try:
            record = decode(line)
            place, record["hash"] = record["sequence"], hashlib.sha256(line).hexdigest()
            for each in checks_of(record["kind"]):
                try:
                    each(self, record)
                except WrongRecordError as wrong:
                    result.add(wrong.kind, place, f"record {place}: {wrong}")
            self._apply(record)
        except WrongRecordError as wrong:
            result.add(wrong.kind, place, f"record {place}: {wrong}")
        except (LookupError, ValueError, TypeError, ArithmeticError) as error:
            # A record that follows a wrong one may refer to what is not there.
            result.add("form", place, f"record {place}: cannot be checked ({error!r:.80})")
        result.sequence, result.hash = place, hashlib.sha256(line).hexdigest()
        self.leaves += hashlib.sha256(b"\x00" + line).digest()
        return record

    def finish(self) -> None:
        """Make the checks that need the last record."""
        result = self.result
        result.balances = {
            account.member: self.balances.get(number, 0)
            for number, account in self.accounts.items()
            if number or 0 in self.balances
        }
        if sum(self.balances.values()):
            result.add("unbalanced", 0, "balances do not sum to zero")
        if not result.sequence:
            result.add("missing", 0, "there is no record at all")
        result.root = self.root_at(len(self.leaves) // 32)
        for run, booked in self.rounds.items():
            for first, last in booked.gaps():
                result.decided("skipped", 0, f"run {run!r} has no rounds {first} to {last}")

    def root_at(self, size: int) -> bytes:
        """The root of the tree over the first records (RFC 6962)."""
        level = [bytes(self.leaves[i : i + 32]) for i in range(0, 32 * size, 32)]
        while len(level) > 1:
            pairs = [
                hashlib.sha256(b"\x01" + a + b).digest()
                for a, b in zip(level[::2], level[1::2], strict=False)
            ]
            level = pairs + level[len(level) & ~1 :]
        return level[0] if level else hashlib.sha256(b"").digest()

    @property
    def origin(self) -> str:
        """The name of the log in checkpoints."""
        return f"verax/{bytes(self.leaves[:16]).hex()}"

    def terms_of(self, run: str, t: int) -> Terms:
        """The terms of a round: those of its opening, or the latest that apply to it."""
        opened = self.opened.get((run, t))
        for terms in reversed(self.terms):
            if (terms.hash == opened) if opened else (terms.from_round <= t):
                return terms
        raise WrongRecordError("terms", f"no terms apply to round {t}")

    @property
    def changes(self) -> dict[str, Any]:
        """What the terms of the last round demand of changes."""
        return self.terms_of("", max(1, self.last_round[1])).changes

    def _apply(self, record: Record) -> None:
        """Bring the state up to the record."""
        kind, place = record["kind"], record["sequence"]
        if words := decision(self, record):
            self.result.decided(kind, place, f"record {place}: {words}")
        if record["time"] < self.time:
            message = f"record {place}: time {record['time']} is before {self.time}"
            self.result.decided("time", place, message)
        self.time = record["time"]
        if kind in ("founding", "terms"):
            self._add_terms(record)
        elif kind == "join":
            self._join(record)
        elif kind == "leave":
            self.accounts[record["account"]].left = (record["from_round"], record["run"])
            self.restricted.add(record["account"])
        elif kind == "opening":
            self.opened[record["run"], record["round"]] = record["terms"]
            self.runs[as_seen(record["run"])] = record["run"]
            checked = self._checked_run(record, record["terms"])
            if checked is not None:
                checked.openings[record["round"]] = record["hash"]
        elif kind == "round":
            self._add_round(record)
        elif kind == "checkpoint":
            note = parse_note(record["note"])
            for key in self.changes["witnesses"]:
                if is_cosigned(note, key):
                    self.cosigned[key] = max(self.cosigned.get(key, 0), note.size)
            for run in self.checked.values():
                run.add_checkpoint(note)
        elif kind in ("closing", "draw", "spot-check"):
            self._add_check(record, self.checked[record["run"]])
        else:
            self.references.add(record.get("reference", ""))
        for number, amount in zip(
            record.get("accounts", ()), record.get("amounts", ()), strict=True
        ):
            self.balances[number] = self.balances.get(number, 0) + amount
        self.result.entries += len(record.get("accounts", ()))
        if kind != "checkpoint":
            self.last_decision = place

    def _add_terms(self, record: Record) -> None:
        terms = Terms(record["terms"], record.get("from_round", 1), self.rules)
        terms.sequence = record["sequence"]
        self.terms.append(terms)
        if terms.measure is None and terms.rule not in self.result.unchecked:
            self.result.unchecked.append(terms.rule)
            place = record["sequence"]
            message = f"record {place}: payments by rule {terms.rule} were not recomputed"
            self.result.add("unchecked", place, message)

    def _join(self, record: Record) -> None:
        number = record["account"]
        old = self.accounts.get(number)
        if old is not None:
            self.names.pop(as_seen(old.label), None)
        joined = (record["from_round"], record["run"])
        self.carried.setdefault(number, 0)
        (self.restricted.add if joined[0] > 1 else self.restricted.discard)(number)
        key, data, app = record["key"], record["data"], record["app"]
        committed = None if data is None or app is None else (data, app)
        keys = [*(old.keys if old else ()), (record["sequence"], key)]
        self.accounts[number] = Account(
            record["member"], record["label"], joined, keys=keys, commitment=committed
        )
        if key is not None:
            self.keys[key] = number
        self.names[as_seen(record["member"])] = self.names[as_seen(record["label"])] = number

    def _add_round(self, record: Record) -> None:
        run, t, place = record["run"], record["round"], record["sequence"]
        self.result.rounds += 1
        if (run, t) not in self.opened and run in self.last_of_run:
            terms = self.terms_of(run, t)
            if terms.sequence > self.last_of_run[run]:
                message = (
                    f"record {place}: nothing shows that the norms of round {t} of run {run!r}"
                )
                message += f" were unknown when its terms were booked as record {terms.sequence}"
                self.result.decided("terms", place, message)
        checked = self._checked_run(record, record["terms"])
        if checked is not None:
            checked.add_round(record, self.terms_of(run, t), self.accounts)
        self.rounds.setdefault(run, Intervals()).add(t)
        self.runs[as_seen(run)] = run
        self.opened.pop((run, t), None)
        self.last_round, self.last_of_run[run] = (run, t), place
        self.carried.update(zip(record["accounts"], record["carried"], strict=True))

    def _checked_run(self, record: Record, hash_: str) -> CheckedRun | None:
        """The spot checks of a record's run, if the terms with this hash have them."""
        if all(terms.spot is None for terms in self.terms if terms.hash == hash_):
            return None
        run = self.checked.setdefault(record["run"], CheckedRun())
        run.commit(self.accounts)
        return run

    def _add_check(self, record: Record, run: CheckedRun) -> None:
        if record["kind"] == "closing":
            run.closing, run.beacon = (record["sequence"], record["hash"]), record["beacon"]
            run.witnesses = tuple(self.changes["witnesses"])
        elif record["kind"] == "draw":
            run.draw, run.drawn = record["hash"], record["drawn"]
        else:
            run.reported.add(record["account"])
            self.carried.update(zip(record["accounts"], record["carried"], strict=True))


class Intervals:
    """A set of whole numbers, stored as intervals, so that rounds without gaps need no memory."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def __contains__(self, value: int) -> bool:
        i = bisect_right(self.starts, value)
        return bool(i) and value < self.ends[i - 1]

    def add(self, value: int) -> None:
        """Add a number that may be there already."""
        i = bisect_right(self.starts, value)
        if i and value <= self.ends[i - 1]:
            self.ends[i - 1] = max(self.ends[i - 1], value + 1)
        else:
            self.starts.insert(i, value)
            self.ends.insert(i, value + 1)
            i += 1
        if i < len(self.starts) and self.starts[i] == self.ends[i - 1]:
            self.ends[i - 1] = self.ends[i]
            del self.starts[i], self.ends[i]

    def gaps(self) -> list[tuple[int, int]]:
        """First and last number of each gap after 1."""
        edges = zip([1, *self.ends], self.starts, strict=False)
        return [(end, start - 1) for end, start in edges if end < start]
