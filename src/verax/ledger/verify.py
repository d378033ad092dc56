"""The verifier: reads a book or an export and trusts nothing in it.

It shares no code with what writes the books: its own reading of the terms, its own payments, its
own rounding to units, its own canonical form. For an export this one file and Python are enough:
`python verify.py export.jsonl`. Records are read one after the other; memory does not grow with the
number of rounds. Where Verax is installed, `verify_compiled` takes over most of a long book; it
knows as little of the writer.

What it finds in the book itself: records changed, missing, added or out of order; payments that do
not follow from the inputs and the terms; amounts that do not follow from the payments; entries,
accounts or balances that differ from the records. A history that was rewritten from some point on,
with all hashes made anew, is consistent in itself: only a checkpoint that a member kept shows it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import ge, sub
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["Finding", "Verification", "federations", "verify"]

_LARGEST = 2**63 - 1
_KEPT = 200  # findings that are kept in words; the rest is counted
_BATCH = 128  # records of a database, likewise
_PIECE = 1 << 19  # bytes of an export that are read at once
_SCHEMA = "0001"
_REASONS = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    OverflowError,
    StopIteration,
)

_COMMON = {"federation", "kind", "previous", "sequence", "time", "version"}
_FIELDS = {
    "founding": {"terms"},
    "terms": {"from_round", "terms"},
    "join": {"account", "from_round", "label", "member", "run"},
    "leave": {"account", "from_round", "run"},
    "limit": {"account", "limit"},
    "deposit": {"accounts", "amounts", "reason"},
    "correction": {"accounts", "amounts", "corrects", "reason"},
    "settlement": {"accounts", "amounts", "transfers"},
    "round": {
        "accounts", "amounts", "gram", "payments", "price", "reasons", "round", "rule", "run",
        "statistics", "statuses", "terms", "weights",
    },
}  # fmt: skip
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_dump = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


@dataclass(frozen=True)
class Finding:
    """Something wrong: what kind, at which record (0: the book as a whole), in words."""

    kind: str
    sequence: int
    message: str


@dataclass
class Verification:
    """What was read, and everything wrong with it.

    Attributes:
        federation: whose book.
        sequence: the last record.
        hash: its hash, as computed.
        rounds: how many rounds were checked.
        entries: how many entries.
        balances: units per member, as computed.
        findings: the first of what is wrong; empty if all is well.
        wrong: how many findings there were in all.
        checkpoints: how many checkpoints were compared.
    """

    federation: str = ""
    sequence: int = 0
    hash: str = "0" * 64
    rounds: int = 0
    entries: int = 0
    balances: dict[str, int] = field(default_factory=dict[str, int])
    findings: list[Finding] = field(default_factory=list[Finding])
    wrong: int = 0
    checkpoints: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found."""
        return not self.wrong

    def add(self, kind: str, sequence: int, message: str) -> None:
        """Note something wrong."""
        self.wrong += 1
        if len(self.findings) < _KEPT:
            self.findings.append(Finding(kind, sequence, message))


def verify(
    source: str | Path,
    *,
    federation: str | None = None,
    checkpoints: Sequence[str | Path] = (),
    signer: str | None = None,
    mine: str | Path | None = None,
    member: str | None = None,
    progress: Callable[[int], None] | None = None,
    patience: float = 200_000,
) -> Verification:
    """Check a federation's book.

    Args:
        source: a path or URL of a database, or an export (JSON Lines).
        federation: which one; may be left out if there is only one.
        checkpoints: files of earlier checkpoints to hold the history against.
        signer: the public key, in hexadecimal, that checkpoints must be signed with.
        mine: a member's own record, JSON Lines of {"run", "round", "norm"}.
        member: whose record `mine` is, by id or label.
        progress: called with the number of records read since the last call.
        patience: after how many entries compiled code is loaded, if it is installed, to check the
            rounds that are like the one before them; `math.inf` for plain Python throughout.
    """
    result = Verification()
    own = None if mine is None else _Mine(Path(mine), member)
    marks = [_Mark(Path(path), signer, result) for path in checkpoints]
    chain = _Chain(result, {m.sequence: m for m in marks if m.sequence}, own, patience)
    if _is_export(source):
        _from_export(Path(source), federation, chain, progress)
    else:
        _from_database(str(source), federation, chain, progress)
    chain.finish(marks)
    return result


def federations(source: str | Path) -> list[str]:
    """The federations in a database or an export."""
    if _is_export(source):
        with Path(source).open("rb") as file:
            try:
                return [json.loads(file.readline())["federation"]]
            except _REASONS:
                return [""]
    from sqlalchemy import text

    with _database(str(source)) as run:
        return [name for (name,) in run(text("SELECT name FROM federation ORDER BY name"), {})]


# The chain, record by record


class _Chain:
    """What is known so far, and the checks of the next record."""

    def __init__(
        self, result: Verification, marks: dict[int, _Mark], mine: _Mine | None, patience: float
    ) -> None:
        self.result = result
        self.marks = marks
        self.mine = mine
        self.patience = patience
        self.terms: list[_Terms] = []
        self.accounts: dict[int, _Account] = {0: _Account("escrow", "escrow")}
        self.looks: dict[str, int] = {"escrow": 0}
        self.balances: dict[int, int] = {0: 0}
        self.rounds: dict[str, _Intervals] = {}
        self.escrow = False
        self.compiled: Callable[[list[bytes]], Any] | None = None
        self.usual: _Usual | None = None  # the last round, if the next may be like it

    def take(self, line: bytes, beside: _Beside | None = None) -> None:
        """Check a record, and what a database holds beside it."""
        result = self.result
        place, wrong = result.sequence + 1, result.wrong
        self.usual = None
        computed = hashlib.sha256(line).hexdigest()
        if beside is not None and beside.hash != computed:
            result.add("changed", place, f"record {place}: its content does not have its hash")
        try:
            content = json.loads(line)
            if _dump(content).encode() != line:
                result.add("form", place, f"record {place}: not in canonical form")
            place = self._link(content, place)
            if beside is not None:
                run = content["run"] if content["kind"] == "round" else None
                said = (content["sequence"], content["kind"], run, content.get("round"))
                if beside.columns != said:
                    words = f"columns say {beside.columns} not {said}"
                    result.add("column", place, f"record {place}: {words}")
            self._check(content, place)
            self._book(content, place, beside)
        except (*_REASONS, RecursionError) as error:
            result.add("form", place, f"record {place}: cannot be read ({_short(error)})")
        result.sequence, result.hash = place, computed
        if place in self.marks:
            self.marks[place].compare(computed, self._named())
        if result.wrong > wrong:
            self.usual = None

    def unusual(self, lines: list[bytes], beside: Sequence[_Beside] | None = None) -> Iterator[int]:
        """Which lines must be looked at one by one; rounds like the one before are taken here."""
        prepared: Any = None
        k = 0
        while k < len(lines):
            if self.usual is not None and self.compiled is not None:
                prepared = prepared or self.compiled(lines)
                k += self._pass(self.usual, prepared, k, beside)
            if k < len(lines):
                yield k
                k += 1

    def _pass(self, usual: _Usual, lines: Any, first: int, beside: Sequence[_Beside] | None) -> int:
        """Take the rounds that are like the one before; returns how many they were."""
        result = self.result
        marked = min((at for at in self.marks if at > result.sequence), default=_LARGEST)
        limit = min(
            len(lines.hashes) - first,
            usual.until - usual.t,
            marked - result.sequence - 1,
            self.rounds[usual.run].room(usual.t),
        )
        if beside is not None:
            place, t, own = result.sequence + 1, usual.t + 1, beside[first : first + limit]
            said = ((place + k, "round", usual.run, t + k) for k in range(limit))
            found = zip(own, said, lines.hashes[first:], lines.lines[first:], strict=False)
            limit = next((k for k, each in enumerate(found) if not _fits(*each)), limit)
        if limit <= 0:
            return 0
        count, sums = lines.alike(
            first,
            first + limit,
            usual.fixed,
            result.hash,
            usual.t,
            result.sequence,
            usual.price,
            usual.power,
            len(usual.accounts),
        )
        if not count:
            return 0
        self.rounds[usual.run].extend(usual.t, count)
        for number, amount in zip(usual.accounts, sums, strict=True):
            self.balances[number] += amount
        usual.t += count
        result.rounds += count
        result.entries += count * len(sums)
        result.sequence += count
        result.hash = lines.hashes[first + count - 1]
        return count

    def _link(self, content: Any, place: int) -> int:
        """Place in the chain; returns where the record says it stands."""
        result = self.result
        kind, sequence = content["kind"], content["sequence"]
        if kind not in _FIELDS:
            raise ValueError(f"kind {kind!r} is unknown")
        if content.keys() != _COMMON | _FIELDS[kind]:
            odd = sorted(content.keys() ^ (_COMMON | _FIELDS[kind]))
            result.add("form", place, f"record {place}: fields {', '.join(odd)} missing or unknown")
        if type(sequence) is not int:
            raise ValueError("sequence is not a number")
        if sequence > place:
            result.add("missing", place, f"records {place} to {sequence - 1} are missing")
        elif sequence < place:
            result.add("added", place, f"record {sequence} stands again after {place - 1}")
        if content["previous"] != result.hash:
            result.add("chain", sequence, f"record {sequence}: does not follow the one before it")
        if place == 1 and not result.federation:
            result.federation = content["federation"]
        if content["federation"] != result.federation:
            result.add("chain", sequence, f"record {sequence}: of {content['federation']!r}")
        if content["version"] != 1:
            result.add("form", sequence, f"record {sequence}: version {content['version']}")
        if not _TIME.fullmatch(content["time"]):
            result.add("form", sequence, f"record {sequence}: time {content['time']!r}")
        if (kind == "founding") != (place == 1):
            result.add("chain", sequence, f"record {sequence}: {kind} in this place")
        return sequence

    def _check(self, content: Any, place: int) -> None:
        """What the record's kind demands."""
        match content["kind"]:
            case "founding" | "terms":
                terms = _Terms(content["terms"], content.get("from_round", 1))
                if self.terms and terms.money != self.terms[0].money:
                    self._wrong("terms", place, "currency or scale changed")
                self.terms.append(terms)
            case "join":
                self._join(content, place)
            case "leave":
                account = self.accounts[content["account"]]
                account.left = (_natural(content["from_round"]), content["run"])
            case "limit":
                limit = content["limit"]
                known = content["account"] is None or content["account"] in self.accounts
                if not known or not (limit is None or 0 <= _whole(limit) <= _LARGEST):
                    self._wrong("form", place, "no such account or limit")
            case "round":
                self._round(content, place)
            case "deposit":
                if len(content["accounts"]) != 2 or content["accounts"][0] != 0:
                    self._wrong("entry", place, "a deposit moves between a member and escrow")
            case "correction":
                if not content["reason"].strip():
                    self._wrong("form", place, "a correction without a reason")
                corrected = content["corrects"]
                if corrected is not None and not 1 <= _whole(corrected) < place:
                    self._wrong("form", place, f"corrects record {corrected}, which is not before")
            case _:
                self._settlement(content, place)

    def _join(self, content: Any, place: int) -> None:
        number, member, label = content["account"], content["member"], content["label"]
        old = self.accounts.get(number)
        if old is None and number != len(self.accounts):
            self._wrong("account", place, f"account {number} is out of turn")
        if old is not None and (old.member != member or number == 0):
            self._wrong("account", place, f"account {number} passes from {old.member!r}")
        if old is not None:
            self.looks.pop(_looks(old.label), None)
        for name in (member, label):
            if self.looks.setdefault(_looks(name), number) != number:
                self._wrong("account", place, f"{name!r} passes for another member")
        self.accounts[number] = _Account(
            member, label, (_natural(content["from_round"]), content["run"])
        )
        self.balances.setdefault(number, 0)

    def _settlement(self, content: Any, place: int) -> None:
        sums: dict[int, int] = {}
        for payer, receiver, amount in content["transfers"]:
            if payer == receiver or _whole(amount) <= 0:
                self._wrong("entry", place, "a transfer that moves nothing")
            sums[payer] = sums.get(payer, 0) - amount
            sums[receiver] = sums.get(receiver, 0) + amount
        if dict(zip(content["accounts"], content["amounts"], strict=True)) != sums:
            self._wrong("entry", place, "the amounts are not those of the transfers")

    def _book(self, content: Any, place: int, beside: _Beside | None) -> None:
        """Entries that sum to zero, the same in the database, added to the balances."""
        accounts, amounts = content.get("accounts", []), content.get("amounts", [])
        if len(accounts) != len(amounts):
            raise ValueError("as many amounts as accounts are needed")
        balances = self.balances
        total = 0
        for number, amount in zip(accounts, amounts, strict=True):
            if type(amount) is not int or not -_LARGEST <= amount <= _LARGEST:
                raise ValueError(f"amount {amount!r} is no whole number of 63 bits")
            total += amount
            balances[number] += amount  # an unknown account is a KeyError
        if total:
            self._wrong("unbalanced", place, f"entries sum to {total}, not to zero")
        if any(map(ge, accounts, accounts[1:])):
            self._wrong("form", place, "accounts are not in order")
        if beside is not None:
            some = [pair for pair in zip(accounts, amounts, strict=True) if pair[1]]
            wanted = tuple(",".join(map(str, column)) for column in zip(*some, strict=True))
            if beside.entries != (wanted or ("", "")):
                self._wrong("entry", place, "rows in `entry` differ from the record")
        self.result.entries += len(accounts)
        self.escrow = self.escrow or 0 in accounts

    def _wrong(self, kind: str, place: int, words: str) -> None:
        self.result.add(kind, place, f"record {place}: {words}")

    # Rounds

    def _round(self, content: Any, place: int) -> None:
        run, t = content["run"], _natural(content["round"])
        name = f"round {t} of run {run!r}"
        self.result.rounds += 1
        if not self.rounds.setdefault(run, _Intervals()).add(t):
            self._wrong("repeated", place, f"{name} is in the book twice")
        terms = next(each for each in reversed(self.terms) if each.from_round <= t)
        if content["terms"] != terms.hash:
            self._wrong("terms", place, f"{name}: not by the terms in force")
            terms = next((each for each in self.terms if each.hash == content["terms"]), terms)
        if content["rule"] != terms.rule:
            self._wrong("terms", place, f"{name}: rule {content['rule']!r}, agreed {terms.rule!r}")
        price = terms.price(t)
        if len(price) != len(content["price"]) or any(
            not math.isclose(a, b, rel_tol=1e-12, abs_tol=0.0)
            for a, b in zip(price, content["price"], strict=True)
        ):
            self._wrong("terms", place, f"{name}: price {content['price']}, agreed {price}")
        accounts = content["accounts"]
        members = [self.accounts[number] for number in accounts]
        for each in members:
            if (each.left or each.joined[0] > 1) and not each.belongs(run, t):
                self._wrong("member", place, f"{name}: {each.member!r} is no member then")
        statuses = _column(content["statuses"], accounts, "ok")
        order = self._order(terms, accounts, members, name, place)
        weights = _column(content["weights"], accounts, 1.0)
        if order is not None:
            self._weights(terms, members, statuses, weights, name, place)
            statistics = self._statistics(content, terms, statuses, place)
            payments, noise = terms.payments(t, statistics, content["gram"], statuses, order)
            self._payments(content, payments, noise, name, place)
        units = _units(content["payments"], terms.scale, [each.member for each in members])
        if units != content["amounts"]:
            self._wrong("amount", place, f"{name}: amounts do not follow from the payments")
        if self.mine is not None:
            self.mine.compare(content, members, statuses, weights, self.result, place)
        elif self._is_long() and not any(each.left for each in members):
            self.usual = _usual(content, terms, self._until(terms, t))

    def _is_long(self) -> bool:
        """Whether the book is long enough for compiled code, and there is some."""
        if self.compiled is None and self.result.entries >= self.patience:
            try:
                from verax.ledger.verify_compiled import Lines
            except Exception:  # not installed, or nowhere to keep it: only speed is lost
                self.patience = math.inf
            else:
                self.compiled = Lines
        return self.compiled is not None

    def _until(self, terms: _Terms, t: int) -> int:
        """The last round before the terms or their price may be others."""
        starts = [each.from_round for each in self.terms] + terms.starts
        return min([terms.last or _LARGEST, *(start - 1 for start in starts if start > t)])

    def _order(
        self,
        terms: _Terms,
        accounts: list[int],
        members: list[_Account],
        name: str,
        place: int,
    ) -> list[int] | None:
        """Where the terms' members stand in the columns; None if they are not the same people."""
        if not terms.members:
            return list(range(len(accounts)))
        found: list[int] = []
        for listed in terms.members:
            at = [i for i, each in enumerate(members) if each.member == listed]
            at = at or [i for i, each in enumerate(members) if each.label == listed]
            found += at
        if sorted(found) != list(range(len(accounts))) or len(found) != len(terms.members):
            self._wrong("member", place, f"{name}: not exactly the members that the terms list")
            return None
        return found

    def _statistics(
        self, content: Any, terms: _Terms, statuses: list[str], place: int
    ) -> list[float]:
        if terms.reads_gram != (content["gram"] is not None) or terms.reads_gram != (
            content["statistics"] is None
        ):
            raise ValueError(f"rule {terms.rule} reads other inputs")
        if terms.reads_gram:
            return []
        values = content["statistics"]
        if not content["statuses"] and {float} == set(map(type, values)) and min(values) >= 0:
            return values  # all ok, as usual; JSON has no infinities here
        for value, status in zip(values, statuses, strict=True):
            if status == "ok":
                if type(value) is not float or not 0 <= value < math.inf:
                    raise ValueError(f"statistic {value!r}")
            elif value is not None or status not in ("missing", "rejected", "error"):
                self._wrong("form", place, f"status {status!r} with statistic {value!r}")
        return values

    def _weights(
        self,
        terms: _Terms,
        members: list[_Account],
        statuses: list[str],
        weights: list[float],
        name: str,
        place: int,
    ) -> None:
        ok = [i for i, status in enumerate(statuses) if status == "ok"]
        if not ok:
            return
        own = [weights[i] for i in ok]
        if terms.weights == "reported":
            fair = min(own) >= 0 and abs(math.fsum(own) / len(ok) - 1) <= 2e-9 * len(ok)
        else:
            wanted = [1.0] * len(ok)
            if terms.weights == "fixed":
                table = terms.weight_table
                wanted = [table.get(members[i].member, table.get(members[i].label, 0)) for i in ok]
                whole = math.fsum(wanted)
                wanted = [value * len(ok) / whole for value in wanted]
            fair = all(abs(a - b) <= 2e-9 * max(1, b) for a, b in zip(own, wanted, strict=True))
        if not fair:
            self._wrong("weight", place, f"{name}: weights are not those of the terms")

    def _payments(
        self, content: Any, payments: list[float], noise: float, name: str, place: int
    ) -> None:
        booked = content["payments"]
        if len(booked) != len(payments):
            raise ValueError("as many payments as accounts are needed")
        if not payments:
            return
        limit = 1e-9 * max(map(abs, payments)) + noise
        off = max(map(abs, map(sub, payments, booked)))
        if not off <= limit:
            self._wrong(
                "payment", place, f"{name}: payments are off by {off:.6g} from inputs and terms"
            )

    # The end

    def _named(self) -> dict[str, int]:
        return {
            self.accounts[number].member: amount
            for number, amount in self.balances.items()
            if number or self.escrow
        }

    def finish(self, marks: Iterable[_Mark]) -> None:
        """What can be said only after the last record."""
        result = self.result
        result.balances = self._named()
        if sum(self.balances.values()):
            result.add("unbalanced", 0, "balances do not sum to zero")
        if not result.sequence:
            result.add("missing", 0, "there is no record at all")
        for mark in marks:
            mark.finish(result)
        if self.mine is not None:
            self.mine.finish(result, [each.member for each in self.accounts.values()])


@dataclass
class _Account:
    member: str
    label: str
    joined: tuple[int, str | None] = (1, None)
    left: tuple[int, str | None] | None = None

    def belongs(self, run: str, t: int) -> bool:
        first, which = self.joined
        if which in (None, run) and t < first:
            return False
        return self.left is None or (self.left[1] in (None, run) and t < self.left[0])


@dataclass(slots=True)
class _Beside:
    """What a database holds beside a record's content: columns, and its rows in `entry`."""

    columns: tuple[int, str, str | None, int | None]
    hash: str
    entries: tuple[str, str] = ("", "")  # accounts and amounts between commas


def _fits(own: _Beside, columns: tuple[int, str, str, int], hash_: str, line: bytes) -> bool:
    """Whether a database says of a round what it must; `line` is its content."""
    accounts, amounts = own.entries
    start = f'{{"accounts":[{accounts}],"amounts":[{amounts}],'.encode()
    return own.columns == columns and own.hash == hash_ and line.startswith(start)


@dataclass
class _Usual:
    """A round that the next may be like: what must stay the same, and until when."""

    fixed: list[bytes]
    run: str
    t: int
    until: int
    price: float
    power: float
    accounts: list[int]


def _usual(content: Any, terms: _Terms, until: int) -> _Usual | None:
    """What the next round must share with this one; None if it is not of the simplest kind."""
    varied = terms.allowances or terms.discount or len(content["price"]) != 1
    some = content["statuses"] or content["weights"] or content.get("reasons")
    if terms.rule not in ("squared-norm", "spot-audit") or varied or some:
        return None
    if not 2 <= len(content["accounts"]) <= 4096:  # of more, sums of units could pass 53 bits
        return None
    accounts, federation, price, rule, run, agreed = (
        _dump(content[key]) for key in ("accounts", "federation", "price", "rule", "run", "terms")
    )
    fixed = (
        f'{{"accounts":{accounts},"amounts":[',
        f'],"federation":{federation},"gram":null,"kind":"round","payments":[',
        '],"previous":"',
        f'","price":{price},"reasons":{{}},"round":',
        f',"rule":{rule},"run":{run},"sequence":',
        ',"statistics":[',
        f'],"statuses":{{}},"terms":{agreed},"time":"',
        '","version":1,"weights":{}}',
    )
    return _Usual(
        [piece.encode() for piece in fixed],
        content["run"],
        content["round"],
        until,
        content["price"][0],
        float(10**terms.scale),
        content["accounts"],
    )


class _Intervals:
    """A set of whole numbers, small if they come without gaps."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, value: int) -> bool:
        """Put a number in; False if it was there."""
        i = bisect_right(self.starts, value)
        if i and value < self.ends[i - 1]:
            return False
        joins_left = bool(i) and self.ends[i - 1] == value
        joins_right = i < len(self.starts) and self.starts[i] == value + 1
        if joins_left and joins_right:
            self.ends[i - 1] = self.ends[i]
            del self.starts[i], self.ends[i]
        elif joins_left:
            self.ends[i - 1] = value + 1
        elif joins_right:
            self.starts[i] = value
        else:
            self.starts.insert(i, value)
            self.ends.insert(i, value + 1)
        return True

    def room(self, value: int) -> int:
        """How many may follow a number that is in before they meet others."""
        i = bisect_right(self.starts, value)
        if self.ends[i - 1] != value + 1:
            return 0
        return (self.starts[i] - 1 if i < len(self.starts) else _LARGEST) - self.ends[i - 1]

    def extend(self, value: int, count: int) -> None:
        """Put in as many numbers after one that is in; there must be room."""
        self.ends[bisect_right(self.starts, value) - 1] += count


# Terms and payments


class _Terms:
    """What the terms' TOML says about a charge, read anew."""

    def __init__(self, text: str, from_round: int) -> None:
        import tomllib

        table = tomllib.loads(text)
        self.hash = hashlib.sha256(text.encode()).hexdigest()
        self.from_round = _natural(from_round)
        self.rule: str = table["rule"]
        self.scale: int = table["scale"]
        self.money = (table["currency"], table["scale"])
        self.members: list[str] = table.get("members", [])
        self.allowances: list[list[float]] = table.get("allowances", [])
        price = table["price"]
        values = price["values"]
        values = values if isinstance(values, list) else [values]
        self.prices: list[list[float]] = [v if isinstance(v, list) else [v] for v in values]
        self.starts: list[int] = price.get("starts", [1])
        self.discount: float = price.get("discount", 0.0)
        self.last: int = price.get("rounds", 0)
        self.weights: str = table["weights"]["kind"]
        self.weight_table: dict[str, float] = dict(
            zip(self.members, table["weights"].get("values", []), strict=False)
        )
        self.policy: dict[str, Any] = table["policy"]
        if self.rule not in _RULES:
            raise ValueError(f"rule {self.rule!r} is unknown")
        self.reads_gram = _RULES[self.rule][0]

    def block(self, t: int) -> int:
        """The block of the price that a round is in."""
        if self.last and t > self.last:
            raise ValueError(f"round {t} is past the terms' last, {self.last}")
        return bisect_right(self.starts, t) - 1

    def price(self, t: int) -> list[float]:
        """C of a round, one number or one per listed member."""
        factor = (1 - self.discount) ** (self.last - t) if self.discount else 1.0
        return [value * factor for value in self.prices[self.block(t)]]

    def payments(
        self,
        t: int,
        statistics: list[float],
        gram: list[list[float]] | None,
        statuses: list[str],
        order: list[int],
    ) -> tuple[list[float], float]:
        """The payments of a round, and what rounding alone may change in them."""
        n = len(statuses)
        prices = [0.0] * n
        kappa = [0.0] * n
        price = self.price(t)
        if len(price) == 1:
            prices = price * n
        else:
            for value, i in zip(price, order, strict=True):
                prices[i] = value
        if self.allowances:
            row = self.allowances[min(self.block(t), len(self.allowances) - 1)]
            for value, i in zip(row, order, strict=True):
                kappa[i] = value
        ok = [status == "ok" for status in statuses]
        count = sum(ok)
        if self.reads_gram:
            measures, size = self._distances(gram or [], ok, count)
        elif self.rule == "none":
            measures, size = [0.0] * n, 0.0
        else:
            measures = [s if there else 0.0 for s, there in zip(statistics, ok, strict=True)]
            size = max(measures, default=0.0)
        actions = [None if there else self.policy[s] for there, s in zip(ok, statuses, strict=True)]
        present = ok
        if count and "largest" in actions:
            largest = max(measures)
            for i, action in enumerate(actions):
                if action == "largest":
                    measures[i] = largest
            present = [a is None or a == "largest" for a in actions]
        there = sum(present)
        result = [0.0] * n
        if there >= _RULES[self.rule][1]:
            levies = [
                c * m if p else 0.0 for c, m, p in zip(prices, measures, present, strict=True)
            ]
            whole = math.fsum(levies)
            shared = 1 / (there - 1)
            result = [
                levy - (whole - levy) * shared if p else 0.0
                for levy, p in zip(levies, present, strict=True)
            ]
            if self.allowances:
                mean = math.fsum(k for k, p in zip(kappa, present, strict=True) if p) / there
                result = [
                    r - (k - mean) if p else r
                    for r, k, p in zip(result, kappa, present, strict=True)
                ]
        fined = sum(action == "flat-fee" for action in actions)
        if fined and count:
            fee = self.policy["fee"]
            share = fee * fined / count
            for i, action in enumerate(actions):
                result[i] += fee if action == "flat-fee" else -share if action is None else 0.0
        return result, 1e-12 * max(prices, default=0.0) * size

    def _distances(
        self, gram: list[list[float]], ok: list[bool], count: int
    ) -> tuple[list[float], float]:
        """Squared distances from the mean of the ok updates, times the rule's factor."""
        if len(gram) != count or any(len(row) != count for row in gram):
            raise ValueError(f"a Gram matrix of {count} × {count} is needed")
        size = max((abs(row[i]) for i, row in enumerate(gram)), default=0.0)
        for i, row in enumerate(gram):
            for j, value in enumerate(row):
                if type(value) is not float or not math.isfinite(value):
                    raise ValueError(f"Gram entry {value!r}")
                if abs(value - gram[j][i]) > 2e-6 * size or (i == j and value < 0):
                    raise ValueError(f"Gram entry {value!r} is not that of a Gram matrix")
        to_all = [math.fsum(row) for row in gram]
        whole = math.fsum(to_all)
        if self.rule == "squared-distance":
            n = max(count, 2)
            factor = (n / (n - 1)) ** 2
        else:
            n = max(count, 3)
            factor = (n - 1) / (n - 2)
        distances = iter(
            factor * max(0.0, row[i] - 2 * to_all[i] / count + whole / count**2)
            for i, row in enumerate(gram)
        )
        return [next(distances) if there else 0.0 for there in ok], 10 * factor * size


# A rule: whether it reads the Gram matrix, and how many must take part.
_RULES: dict[str, tuple[bool, int]] = {
    "squared-norm": (False, 2),
    "squared-distance": (True, 2),
    "groves-ledyard": (True, 3),
    "spot-audit": (False, 2),
    "none": (False, 2),
}


def _units(payments: list[float], scale: int, keys: list[str]) -> list[int]:
    """Payments in whole units by largest remainder, exactly."""
    power = 10**scale
    found = _surely(payments, float(power))
    if found is not None:
        return found
    ratios = [value.as_integer_ratio() for value in payments]
    paying = [i for i, (above, _) in enumerate(ratios) if above]
    result = [0] * len(payments)
    if not paying:
        return result
    common = max(ratios[i][1] for i in paying)
    rests: dict[int, int] = {}
    for i in paying:
        above, below = ratios[i]
        result[i], rests[i] = divmod(above * power * (common // below), common)
    each, more = divmod(-sum(result), len(paying))
    for i in paying:
        result[i] += each
    for i in sorted(paying, key=lambda i: (-rests[i], keys[i]))[:more]:
        result[i] += 1
    return result


def _surely(payments: list[float], power: float) -> list[int] | None:
    """The units where everybody pays and no remainder is so near another that rounding matters."""
    scaled = [value * power for value in payments]
    largest = max(map(abs, scaled), default=0.0)
    if not 0 < largest < 2**40:
        return None
    floors = list(map(math.floor, scaled))
    rests = list(map(sub, scaled, floors))
    off = 2**-52 * (largest + 1)  # more than a remainder can be off
    each, more = divmod(-sum(floors), len(floors))
    falling = sorted(rests, reverse=True)
    near = more and falling[more - 1] - falling[more] <= 2 * off
    if near or not off < falling[-1] <= falling[0] < 1 - off:
        return None
    edge = falling[more - 1] if more else 1.0
    return [floor + each + (rest >= edge) for floor, rest in zip(floors, rests, strict=True)]


# A member's own evidence


class _Mark:
    """A checkpoint that somebody kept."""

    def __init__(self, path: Path, signer: str | None, result: Verification) -> None:
        self.path = path
        self.result = result
        self.sequence = 0
        self.seen = False
        try:
            content = json.loads(path.read_bytes())
            self.sequence = _natural(content["sequence"])
            self.hash: str = content["hash"]
            self.federation: str = content["federation"]
            self.balances: dict[str, int] = content["balances"]
            signature, key = content.pop("signature", None), content.get("key")
            if signature is None:
                if signer is not None:
                    result.add("signature", 0, f"{path.name}: not signed")
            elif not _signed(_dump(content).encode(), signature, key):
                result.add("signature", 0, f"{path.name}: the signature is wrong")
            elif signer is not None and key != signer:
                result.add("signature", 0, f"{path.name}: signed by {key}, not by {signer}")
        except OSError:
            raise
        except _REASONS as error:
            self.sequence = 0
            self.seen = True
            result.add("checkpoint", 0, f"{path.name}: no checkpoint ({_short(error)})")

    def compare(self, hash_: str, balances: dict[str, int]) -> None:
        """Hold it against the record of its place."""
        self.seen = True
        self.result.checkpoints += 1
        if self.federation != self.result.federation:
            self.result.add("checkpoint", 0, f"{self.path.name}: of {self.federation!r}")
        if hash_ != self.hash:
            self.result.add(
                "fork",
                self.sequence,
                f"record {self.sequence} is not the one of {self.path.name}: "
                "the history was rewritten since",
            )
        elif {k: v for k, v in balances.items() if v} != {
            k: v for k, v in self.balances.items() if v
        }:
            self.result.add(
                "balance", self.sequence, f"balances differ from those of {self.path.name}"
            )

    def finish(self, result: Verification) -> None:
        """The chain ended: was it long enough?"""
        if not self.seen:
            result.add(
                "fork",
                self.sequence,
                f"the book ends at record {result.sequence}, {self.path.name} knows "
                f"{self.sequence}: records were removed",
            )


def _signed(message: bytes, signature: str, key: str) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, *_REASONS):
        return False
    return True


class _Mine:
    """What a member wrote down itself: the squared norms that it sent."""

    def __init__(self, path: Path, member: str | None) -> None:
        if member is None:
            raise ValueError("whose record is it? name the member")
        self.path, self.member = path, member
        self.norms: dict[tuple[str, int], float] = {}
        self.known = False
        with path.open(encoding="utf-8") as file:
            for i, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    self.norms[str(row["run"]), _natural(row["round"])] = float(row["norm"])
                except _REASONS:
                    raise ValueError(
                        f'{path} line {i}: must be like {{"run": "a", "round": 1, "norm": 2.5}}'
                    ) from None

    def compare(
        self,
        content: Any,
        members: list[_Account],
        statuses: list[str],
        weights: list[float],
        result: Verification,
        place: int,
    ) -> None:
        """Hold the member's norm against the round's input."""
        at = [i for i, each in enumerate(members) if self.member in (each.member, each.label)]
        if not at:
            return
        i = at[0]
        self.known = True
        norm = self.norms.pop((content["run"], content["round"]), None)
        name = f"round {content['round']} of run {content['run']!r}"
        if statuses[i] != "ok":
            if norm is not None:
                words = f"{name}: the book says {statuses[i]}, {self.path.name} says {norm}"
                result.add("mine", place, words)
            return
        if content["rule"] == "spot-audit":
            return  # its statistic is a distance that others computed
        if content["gram"] is None:
            booked = content["statistics"][i]
        else:
            k = sum(status == "ok" for status in statuses[:i])
            booked = content["gram"][k][k]
        if norm is None:
            result.add("mine", place, f"{name}: in the book but not in {self.path.name}")
        elif not math.isclose(norm * weights[i] ** 2, booked, rel_tol=1e-5, abs_tol=0.0):
            words = f"{name}: the book says {booked}, {self.path.name} says {norm}"
            result.add("mine", place, f"{words} (weight {weights[i]})")

    def finish(self, result: Verification, members: list[str]) -> None:
        """Rounds that the member knows and the book does not."""
        if not self.known:
            result.add("mine", 0, f"{self.member!r} takes part in no round of the book")
            return
        for run, t in self.norms:
            words = f"round {t} of run {run!r}: in {self.path.name} but not in the book"
            result.add("mine", 0, words)


# Where records come from


def _is_export(source: str | Path) -> bool:
    if "://" in str(source):
        return False
    path = Path(source)
    with path.open("rb") as file:
        return file.read(16) != b"SQLite format 3\x00"


def _from_export(
    path: Path, federation: str | None, chain: _Chain, progress: Callable[[int], None] | None
) -> None:
    result = chain.result
    result.federation = federation or ""
    end: Any = None
    with path.open("rb", buffering=_PIECE) as file:
        for i, line in _unusual(file, chain, progress):
            if end is not None:
                result.add("added", result.sequence, f"line {i}: something after the end")
                break
            if b'"kind":"end"' in line:
                end = _end(line)
                if end is not None:
                    chain.usual = None
                    continue
            chain.take(line)
    if end is None:
        result.add("missing", result.sequence, "the export has no end: it was cut off")
        return
    said = (end.get("sequence"), end.get("hash"))
    if said != (result.sequence, result.hash):
        result.add("missing", 0, f"the export ends at record {result.sequence}, says {said[0]}")
    named = {account.member: chain.balances[n] for n, account in chain.accounts.items()}
    stated = end.get("balances")
    if not isinstance(stated, dict) or _nonzero(stated) != _nonzero(named):
        result.add("balance", 0, "the export's balances are not the sums of its entries")


def _unusual(
    file: BinaryIO, chain: _Chain, progress: Callable[[int], None] | None
) -> Iterator[tuple[int, bytes]]:
    """The lines that must be looked at one by one, with their numbers; `chain` passes the rest."""
    before = 0
    while lines := file.readlines(_PIECE):
        cut_off = not lines[-1].endswith(b"\n")
        lines = [line.removesuffix(b"\n") for line in lines]
        yield from ((before + k + 1, lines[k]) for k in chain.unusual(lines))
        before += len(lines)
        if cut_off:
            chain.result.add("missing", chain.result.sequence, f"line {before}: cut off")
        if progress is not None:
            progress(len(lines))


def _end(line: bytes) -> Any:
    try:
        content = json.loads(line)
    except _REASONS:
        return None
    return content if isinstance(content, dict) and content.get("kind") == "end" else None


def _nonzero(balances: dict[str, int]) -> dict[str, int]:
    return {member: amount for member, amount in balances.items() if amount}


@contextmanager
def _database(source: str) -> Generator[Callable[..., Any]]:
    """Run plain SQL, read-only, in one state of the database."""
    import sqlite3
    from urllib.parse import quote

    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError
    from sqlalchemy.pool import NullPool

    if "://" in source and not source.startswith("sqlite"):
        url = make_url(source)
        if url.drivername in ("postgres", "postgresql"):
            url = url.set(drivername="postgresql+psycopg")
        engine = create_engine(url, isolation_level="REPEATABLE READ", poolclass=NullPool)
    else:
        path = Path(make_url(source).database or "") if "://" in source else Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")

        def connect() -> sqlite3.Connection:
            where = f"file:{quote(str(path.absolute()))}?mode=ro"
            for mode in ("", "&immutable=1"):
                connection = sqlite3.connect(where + mode, uri=True, check_same_thread=False)
                try:
                    connection.execute("SELECT 1 FROM sqlite_master").fetchone()
                except sqlite3.OperationalError as error:
                    connection.close()
                    # A read-only folder, and nobody writing: the file can be read as it stands.
                    alone = not path.with_name(path.name + "-wal").exists()
                    if mode or not alone or error.sqlite_errorname != "SQLITE_CANTOPEN":
                        raise
                else:
                    return connection
            raise AssertionError("unreachable")

        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")
            yield connection.execute
    except DBAPIError as error:
        raise OSError(f"the database cannot be read: {_short(error.orig)}") from error
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise OSError(f"the database cannot be read: {_short(error)}") from error
    finally:
        engine.dispose()


def _from_database(
    source: str, federation: str | None, chain: _Chain, progress: Callable[[int], None] | None
) -> None:
    from sqlalchemy import text

    result = chain.result
    with _database(source) as run:
        (revision,) = run(text("SELECT version_num FROM alembic_version"), {}).one()
        if revision != _SCHEMA:
            raise ValueError(f"the book has schema {revision}, this verifier knows {_SCHEMA}")
        heads = run(text("SELECT id, name, sequence, hash FROM federation"), {}).all()
        chosen = [row for row in heads if federation in (None, row[1])]
        if len(chosen) != 1:
            names = ", ".join(repr(row[1]) for row in heads)
            raise ValueError(f"which federation? the book holds {names or 'none'}")
        number, name, sequence, hash_ = chosen[0]
        result.federation = name
        sqlite = "://" not in source or source.startswith("sqlite")
        if sqlite:
            # A damaged index hides records from queries that this verifier never makes.
            for (words,) in run(text("PRAGMA integrity_check(5)"), {}):
                if words != "ok":
                    result.add("damaged", 0, f"the file is damaged: {words}")
        stray = _records(run, number, sqlite, chain, progress)
        if (sequence, hash_) != (result.sequence, result.hash):
            result.add(
                "missing",
                0,
                f"the chain ends at record {result.sequence}, the book says {sequence}",
            )
        known = [(n, a.member, a.label) for n, a in sorted(chain.accounts.items()) if n]
        rows = run(
            text(
                "SELECT account, member, label FROM account WHERE federation = :f ORDER BY account"
            ),
            {"f": number},
        )
        if [tuple(row) for row in rows] != known:
            result.add("account", 0, "rows in `account` differ from the records")
        stray += run(
            text(
                "SELECT count(*) FROM entry WHERE (federation = :f AND sequence > :last) "
                "OR federation NOT IN (SELECT id FROM federation)"
            ),
            {"f": number, "last": max(result.sequence, 0)},
        ).scalar()
        if stray:
            result.add("entry", 0, f"{stray} rows in `entry` belong to no record")


def _records(
    run: Callable[..., Any],
    number: int,
    sqlite: bool,
    chain: _Chain,
    progress: Callable[[int], None] | None,
) -> int:
    """Take all records; returns how many rows in `entry` stood between them."""
    from sqlalchemy import text

    records = text(
        "SELECT sequence, kind, run, round, hash, content FROM record "
        "WHERE federation = :f AND sequence > :after ORDER BY sequence LIMIT :n"
    )
    # Both columns as they stand in a content; SQLite gives them in the order of the primary key.
    joined = "group_concat({})" if sqlite else "string_agg(CAST({} AS TEXT), ',' ORDER BY account)"
    entries = text(
        "SELECT sequence, count(*), count(account), count(amount), "
        f"{joined.format('account')}, {joined.format('amount')} FROM entry "
        "WHERE federation = :f AND sequence > :after AND sequence <= :last GROUP BY sequence"
    )
    after, stray = -(2**62), 0
    while batch := run(records, {"f": number, "after": after, "n": _BATCH}).all():
        last = batch[-1][0]
        rows = run(entries, {"f": number, "after": after, "last": last}).cursor.fetchall()
        found = {sequence: (many, _columns(many, *rest)) for sequence, many, *rest in rows}
        beside = [
            _Beside(tuple(row[:4]), row[4], found.pop(row[0], (0, ("", "")))[1]) for row in batch
        ]
        stray += sum(many for many, _ in found.values())
        lines = [str(row[5]).encode("utf-8", "surrogatepass") for row in batch]
        for k in chain.unusual(lines, beside):
            chain.take(lines[k], beside[k])
        after = last
        if progress is not None:
            progress(len(batch))
    return stray


def _columns(
    many: int, accounts: int, amounts: int, numbers: str | None, units: str | None
) -> tuple[str, str]:
    """A record's rows in `entry` as two texts; as none that fits if a value is not one number."""
    texts = (numbers or "", units or "")
    sizes = {many, accounts, amounts, *(text.count(",") + 1 for text in texts)}
    return texts if len(sizes) == 1 else ("?", "?")


# Small things


def _column(table: Any, accounts: list[int], usual: Any) -> list[Any]:
    """A column that is stored only where it differs from the usual."""
    if not table:
        return [usual] * len(accounts)
    result = [table.get(str(number), usual) for number in accounts]
    if len(table) != sum(str(number) in table for number in accounts):
        raise ValueError("a status or weight of nobody in the round")
    if any(value == usual for value in table.values()):
        raise ValueError("what is usual is left out")
    return result


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _natural(value: Any) -> int:
    if _whole(value) < 1:
        raise ValueError(f"{value!r} is less than 1")
    return value


def _looks(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _short(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:160]


def _lines(result: Verification) -> Iterator[str]:
    yield (
        f"{result.federation}: {result.sequence} records, {result.rounds} rounds, "
        f"{result.entries} entries, last hash {result.hash}"
    )
    for finding in result.findings:
        yield f"WRONG ({finding.kind}): {finding.message}"
    yield "nothing wrong found" if result.ok else f"{result.wrong} findings"


if __name__ == "__main__":
    outcome = verify(sys.argv[1], checkpoints=sys.argv[2:])
    print("\n".join(_lines(outcome)))
    sys.exit(0 if outcome.ok else 1)
