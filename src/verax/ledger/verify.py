"""The verifier: it reads a book or an export and trusts nothing in it.

It shares no code with the writer: it has its own reading of the terms, its own payments, its own
rounding to minor units and its own canonical form. This file and Python's standard library are
enough: `python verify.py export.jsonl`; only PostgreSQL and signatures need a package. Records are
checked one after the other, so memory does not grow with the number of rounds.

The book itself reveals records that were changed, removed, added or reordered; payments that do not
follow from inputs and terms; amounts that do not follow from payments; and entries, accounts or
balances that differ from the records. A history that was rewritten from some record on, with all
hashes recomputed, is consistent in itself: only a checkpoint that a member kept reveals it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import tomllib
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from operator import ge, sub
from pathlib import Path
from typing import Any

#: What a payment rule measures. Called with the round's statistics (one number per participant,
#: None for those not ok) or None, with the Gram matrix of the ok participants or None, and with one
#: boolean per participant that says who is ok. Returns one number per participant, and how many
#: participants a round needs before anybody is charged.
Measure = Callable[
    [list[float | None] | None, list[list[float]] | None, list[bool]],
    tuple[Sequence[float], int],
]

_Query = Callable[..., list[tuple[Any, ...]]]  # a statement with values for its :parameters

_MAX_AMOUNT = 2**63 - 1
_MAX_FINDINGS = 200  # findings that are kept; the rest is only counted
_BATCH = 128  # records that are read from a database at once
_SCHEMA = 1

#: What reading a malformed record can raise.
_MALFORMED = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    StopIteration,
)

_COMMON_FIELDS = {"federation", "kind", "previous", "sequence", "time", "version"}
_FIELDS = {
    "create": {"terms"},
    "terms": {"from_round", "terms"},
    "join": {"account", "from_round", "label", "member", "run"},
    "leave": {"account", "from_round", "run"},
    "limit": {"account", "limit"},
    "deposit": {"accounts", "amounts", "reason"},
    "correction": {"accounts", "amounts", "corrects", "reason"},
    "settlement": {"accounts", "amounts", "transfers"},
    "round": {
        "accounts", "amounts", "gram", "payments", "price", "reads", "reasons", "round", "rule",
        "run", "statistics", "statuses", "terms", "weights",
    },
}  # fmt: skip
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_canonical = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


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
        rounds: how many rounds were checked.
        entries: how many entries were checked.
        balances: minor units per member, as computed.
        findings: the first findings.
        wrong: how many findings there are in all, without those of the kind `unchecked`.
        unchecked: rules that the verifier does not know, so that their payments were not
            recomputed; each also has a finding of the kind `unchecked`.
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
    unchecked: list[str] = field(default_factory=list[str])
    checkpoints: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found; payments by rules in `unchecked` were not recomputed."""
        return not self.wrong

    def add(self, kind: str, sequence: int, message: str) -> None:
        """Add a finding."""
        self.wrong += kind != "unchecked"
        if len(self.findings) < _MAX_FINDINGS:
            self.findings.append(Finding(kind, sequence, message))


def verify(
    source: str | Path,
    *,
    federation: str | None = None,
    checkpoints: Sequence[str | Path] = (),
    signer: str | None = None,
    mine: str | Path | None = None,
    member: str | None = None,
    rules: Mapping[str, Measure] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verification:
    """Check a federation's book.

    Args:
        source: the path or URL of a database, or the path of an export (JSON Lines).
        federation: which one; may be left out if there is only one.
        checkpoints: files of earlier checkpoints to compare the history with.
        signer: the public key, in hexadecimal, that checkpoints must be signed with.
        mine: a member's own record, JSON Lines of {"run", "round", "norm"}.
        member: whose record `mine` is, by id or label.
        rules: further payment rules, by the name that the terms give them. Payments by a rule that
            is neither built in nor given here are not recomputed; a finding of the kind `unchecked`
            says so.
        progress: called with the number of records read since the last call.
    """
    result = Verification()
    own = None if mine is None else _OwnNorms(Path(mine), member)
    kept = [_Checkpoint(Path(path), signer, result) for path in checkpoints]
    chain = _Chain(result, {each.sequence: each for each in kept if each.sequence}, own, rules)
    if _is_export(source):
        _check_export(Path(source), federation, chain, progress)
    else:
        _check_database(str(source), federation, chain, progress)
    chain.finish(kept)
    return result


def federations(source: str | Path) -> list[str]:
    """The names of the federations in a database or an export."""
    if _is_export(source):
        with Path(source).open("rb") as file:
            try:
                return [json.loads(file.readline())["federation"]]
            except _MALFORMED:
                return [""]
    with _open_database(str(source)) as query:
        return [name for (name,) in query("SELECT name FROM federation ORDER BY name")]


# The chain, record by record


@dataclass
class _Row:
    """What a database stores beside a record's content: its columns, hash and entries."""

    columns: tuple[Any, ...]  # sequence, kind, run, round
    hash: str
    entries: list[tuple[Any, Any]]  # account and amount, by account


@dataclass
class _Account:
    member: str
    label: str
    joined: tuple[int, str | None] = (1, None)  # from which round, of which run
    left: tuple[int, str | None] | None = None

    def may_take_part(self, run: str, t: int) -> bool:
        first, which = self.joined
        if which in (None, run) and t < first:
            return False
        return self.left is None or (self.left[1] in (None, run) and t < self.left[0])


class _Chain:
    """The state of the book up to a record, and the checks of the next one."""

    def __init__(
        self,
        result: Verification,
        checkpoints: dict[int, _Checkpoint],
        own_norms: _OwnNorms | None,
        rules: Mapping[str, Measure] | None,
    ) -> None:
        self.result = result
        self.checkpoints = checkpoints
        self.own_norms = own_norms
        self.rules = rules or {}
        self.terms: list[_Terms] = []
        self.accounts: dict[int, _Account] = {0: _Account("escrow", "escrow")}
        self.names: dict[str, int] = {"escrow": 0}  # account by a name as people see it
        self.balances: dict[int, int] = {0: 0}
        self.rounds: dict[str, _Intervals] = {}
        self.escrow_used = False

    def check(self, line: bytes, row: _Row | None = None) -> None:
        """Check a record, and what a database stores beside it."""
        result = self.result
        place = result.sequence + 1
        computed = hashlib.sha256(line).hexdigest()
        if row is not None and row.hash != computed:
            result.add("changed", place, f"record {place}: its content does not have its hash")
        try:
            content = json.loads(line)
            if _canonical(content).encode() != line:
                result.add("form", place, f"record {place}: not in canonical form")
            place = self._check_place(content, place)
            if row is not None:
                self._check_columns(content, row, place)
            self._check_kind(content, place)
            self._check_entries(content, row, place)
        except _MALFORMED as error:
            result.add("form", place, f"record {place}: cannot be read ({_describe(error)})")
        result.sequence, result.hash = place, computed
        if place in self.checkpoints:
            self.checkpoints[place].compare(computed, self._balances_by_member())

    def finish(self, checkpoints: Iterable[_Checkpoint]) -> None:
        """Make the checks that need the last record."""
        result = self.result
        result.balances = self._balances_by_member()
        if sum(self.balances.values()):
            result.add("unbalanced", 0, "balances do not sum to zero")
        if not result.sequence:
            result.add("missing", 0, "there is no record at all")
        for each in checkpoints:
            each.finish(result)
        if self.own_norms is not None:
            self.own_norms.finish(result)

    def _balances_by_member(self) -> dict[str, int]:
        return {
            self.accounts[number].member: amount
            for number, amount in self.balances.items()
            if number or self.escrow_used
        }

    def _wrong(self, kind: str, place: int, message: str) -> None:
        self.result.add(kind, place, f"record {place}: {message}")

    def _check_place(self, content: Any, place: int) -> int:
        """A record must follow the one before it; returns the record's own sequence number."""
        result = self.result
        kind, sequence = content["kind"], content["sequence"]
        if kind not in _FIELDS:
            raise ValueError(f"kind {kind!r} is unknown")
        if content.keys() != _COMMON_FIELDS | _FIELDS[kind]:
            odd = sorted(content.keys() ^ (_COMMON_FIELDS | _FIELDS[kind]))
            result.add("form", place, f"record {place}: fields {', '.join(odd)} missing or unknown")
        if type(sequence) is not int:
            raise ValueError("sequence is not a number")
        if sequence > place:
            result.add("missing", place, f"records {place} to {sequence - 1} are missing")
        elif sequence < place:
            result.add("added", place, f"record {sequence} comes again after record {place - 1}")
        if content["previous"] != result.hash:
            self._wrong("chain", sequence, "does not follow the one before it")
        if place == 1 and not result.federation:
            result.federation = content["federation"]
        if content["federation"] != result.federation:
            self._wrong("chain", sequence, f"belongs to {content['federation']!r}")
        if content["version"] != 1:
            self._wrong("form", sequence, f"version {content['version']} is unknown")
        if not _TIME.fullmatch(content["time"]):
            self._wrong("form", sequence, f"time {content['time']!r} is not a time in UTC")
        if (kind == "create") != (place == 1):
            self._wrong("chain", sequence, f"kind {kind!r} is not allowed here")
        return sequence

    def _check_columns(self, content: Any, row: _Row, place: int) -> None:
        """The columns of a record in a database must agree with its content."""
        run = content["run"] if content["kind"] == "round" else None
        expected = (content["sequence"], content["kind"], run, content.get("round"))
        if row.columns != expected:
            self._wrong("column", place, f"columns say {row.columns}, not {expected}")

    def _check_kind(self, content: Any, place: int) -> None:
        """Check what the record's kind demands."""
        match content["kind"]:
            case "create" | "terms":
                self._check_terms(content, place)
            case "join":
                self._check_join(content, place)
            case "leave":
                account = self.accounts[content["account"]]
                account.left = (_positive(content["from_round"]), content["run"])
            case "limit":
                limit = content["limit"]
                known = content["account"] is None or content["account"] in self.accounts
                if not known or not (limit is None or 0 <= _integer(limit) <= _MAX_AMOUNT):
                    self._wrong("form", place, "no such account or limit")
            case "round":
                self._check_round(content, place)
            case "deposit":
                if len(content["accounts"]) != 2 or content["accounts"][0] != 0:
                    self._wrong("entry", place, "a deposit must be between a member and escrow")
            case "correction":
                self._check_correction(content, place)
            case _:
                self._check_settlement(content, place)

    def _check_terms(self, content: Any, place: int) -> None:
        """New terms must keep currency and scale; an unknown rule is reported once."""
        terms = _Terms(content["terms"], content.get("from_round", 1), self.rules)
        if self.terms and terms.money != self.terms[0].money:
            self._wrong("terms", place, "currency or scale changed")
        self.terms.append(terms)
        if terms.measure is None and terms.rule not in self.result.unchecked:
            self.result.unchecked.append(terms.rule)
            self._wrong("unchecked", place, f"payments by rule {terms.rule} were not recomputed")

    def _check_join(self, content: Any, place: int) -> None:
        """Accounts are numbered in order, belong to one member, and have distinct names."""
        number, member, label = content["account"], content["member"], content["label"]
        old = self.accounts.get(number)
        if old is None and number != len(self.accounts):
            self._wrong("account", place, f"account {number} is not the next number")
        if old is not None and (old.member != member or number == 0):
            self._wrong("account", place, f"account {number} is taken from {old.member!r}")
        if old is not None:
            self.names.pop(_as_seen(old.label), None)
        for name in (member, label):
            if self.names.setdefault(_as_seen(name), number) != number:
                self._wrong("account", place, f"{name!r} looks like another member's name")
        joined = (_positive(content["from_round"]), content["run"])
        self.accounts[number] = _Account(member, label, joined)
        self.balances.setdefault(number, 0)

    def _check_correction(self, content: Any, place: int) -> None:
        """A correction must have a reason and may refer only to an earlier record."""
        if not content["reason"].strip():
            self._wrong("form", place, "a correction without a reason")
        corrected = content["corrects"]
        if corrected is not None and not 1 <= _integer(corrected) < place:
            self._wrong("form", place, f"corrects record {corrected}, which is not earlier")

    def _check_settlement(self, content: Any, place: int) -> None:
        """A settlement's amounts must be the sums of its transfers."""
        sums: dict[int, int] = {}
        for payer, receiver, amount in content["transfers"]:
            if payer == receiver or _integer(amount) <= 0:
                self._wrong("entry", place, "a transfer moves no money")
            sums[payer] = sums.get(payer, 0) - amount
            sums[receiver] = sums.get(receiver, 0) + amount
        if dict(zip(content["accounts"], content["amounts"], strict=True)) != sums:
            self._wrong("entry", place, "the amounts are not the sums of the transfers")

    def _check_entries(self, content: Any, row: _Row | None, place: int) -> None:
        """Entries must be whole numbers that sum to zero, the same in the record and the table."""
        accounts, amounts = content.get("accounts", []), content.get("amounts", [])
        if len(accounts) != len(amounts):
            raise ValueError("there must be as many amounts as accounts")
        if set(map(type, amounts)) - {int} or max(map(abs, amounts), default=0) > _MAX_AMOUNT:
            raise ValueError("an amount is not a whole number of 63 bits")
        for number, amount in zip(accounts, amounts, strict=True):
            self.balances[number] += amount  # raises KeyError if the account is unknown
        if total := sum(amounts):
            self._wrong("unbalanced", place, f"entries sum to {total}, must sum to zero")
        if any(map(ge, accounts, accounts[1:])):
            self._wrong("form", place, "accounts are not in ascending order")
        if row is not None:
            pairs = zip(accounts, amounts, strict=True)
            if row.entries != [pair for pair in pairs if pair[1]]:
                self._wrong("entry", place, "rows in `entry` differ from the record")
        self.result.entries += len(accounts)
        self.escrow_used = self.escrow_used or 0 in accounts

    # Rounds

    def _check_round(self, content: Any, place: int) -> None:
        """A round must follow from its inputs and from the terms in force."""
        run, t = content["run"], _positive(content["round"])
        name = f"round {t} of run {run!r}"
        self.result.rounds += 1
        if not self.rounds.setdefault(run, _Intervals()).add(t):
            self._wrong("repeated", place, f"{name} is in the book twice")
        terms = self._check_terms_of_round(content, t, name, place)
        accounts = content["accounts"]
        members = [self.accounts[number] for number in accounts]
        for each in members:
            if (each.left or each.joined[0] > 1) and not each.may_take_part(run, t):
                self._wrong("member", place, f"{name}: {each.member!r} is not a member then")
        statuses = _full_column(content["statuses"], accounts, "ok")
        weights = _full_column(content["weights"], accounts, 1.0)
        self._check_inputs(content, terms, statuses, place)
        order = _listed_order(terms, members)
        if order is None:
            message = f"{name}: participants are not exactly the members that the terms list"
            self._wrong("member", place, message)
        else:
            self._check_weights(terms, members, statuses, weights, name, place)
            self._check_payments(content, terms, t, statuses, order, name, place)
        units = _to_units(content["payments"], terms.scale, [each.member for each in members])
        if units != content["amounts"]:
            self._wrong("amount", place, f"{name}: amounts do not follow from the payments")
        if self.own_norms is not None:
            self.own_norms.compare(content, members, statuses, weights, self.result, place)

    def _check_terms_of_round(self, content: Any, t: int, name: str, place: int) -> _Terms:
        """Terms, rule and price must be those in force; returns the terms to compute with."""
        terms = next(each for each in reversed(self.terms) if each.from_round <= t)
        if content["terms"] != terms.hash:
            self._wrong("terms", place, f"{name}: charged by other terms than those in force")
            terms = next((each for each in self.terms if each.hash == content["terms"]), terms)
        if content["rule"] != terms.rule:
            message = f"{name}: rule {content['rule']!r}, the terms say {terms.rule!r}"
            self._wrong("terms", place, message)
        price = terms.price(t)
        booked = content["price"]
        if len(price) != len(booked) or any(
            not math.isclose(a, b, rel_tol=1e-12, abs_tol=0.0)
            for a, b in zip(price, booked, strict=True)
        ):
            self._wrong("terms", place, f"{name}: price {booked}, the terms say {price}")
        return terms

    def _check_inputs(self, content: Any, terms: _Terms, statuses: list[str], place: int) -> None:
        """Exactly what the rule reads must be recorded: a statistic each, or the Gram matrix."""
        reads, values, gram = content["reads"], content["statistics"], content["gram"]
        if reads not in ("norms", "misreport", "gram") or terms.reads not in (None, reads):
            raise ValueError(f"rule {terms.rule} cannot read {reads!r}")
        if (reads == "gram") != (gram is not None) or (reads == "gram") != (values is None):
            raise ValueError(f"rule {terms.rule} needs other inputs")
        for status in content["statuses"].values():
            if status not in ("missing", "rejected", "error"):
                self._wrong("form", place, f"status {status!r} is unknown")
        if reads == "gram":
            _check_gram(gram, statuses.count("ok"))
            return
        if len(values) != len(statuses):
            raise ValueError("there must be as many statistics as accounts")
        measured = values
        if content["statuses"]:
            pairs = list(zip(values, statuses, strict=True))
            measured = [value for value, status in pairs if status == "ok"]
            if any(value is not None for value, status in pairs if status != "ok"):
                self._wrong("form", place, "a member that is not ok has a statistic")
        # A record in canonical form holds no infinities and no NaN.
        if set(map(type, measured)) - {float} or min(measured, default=0.0) < 0:
            raise ValueError("a statistic is not a real number ≥ 0")

    def _check_weights(
        self,
        terms: _Terms,
        members: list[_Account],
        statuses: list[str],
        weights: list[float],
        name: str,
        place: int,
    ) -> None:
        """Weights must be those that the terms fix; reported weights must have the mean 1."""
        ok = [i for i, status in enumerate(statuses) if status == "ok"]
        if not ok:
            return
        booked = [weights[i] for i in ok]
        if terms.weights == "reported":
            right = min(booked) >= 0 and abs(math.fsum(booked) / len(ok) - 1) <= 2e-9 * len(ok)
        else:
            expected = [1.0] * len(ok)
            if terms.weights == "fixed":
                table = terms.weight_table
                own = [table.get(members[i].member, table.get(members[i].label, 0)) for i in ok]
                expected = [value * len(ok) / math.fsum(own) for value in own]
            right = all(
                abs(a - b) <= 2e-9 * max(1, b) for a, b in zip(booked, expected, strict=True)
            )
        if not right:
            self._wrong("weight", place, f"{name}: weights are not those of the terms")

    def _check_payments(
        self,
        content: Any,
        terms: _Terms,
        t: int,
        statuses: list[str],
        order: list[int],
        name: str,
        place: int,
    ) -> None:
        """Payments must follow from inputs and terms, up to rounding."""
        booked = content["payments"]
        if len(booked) != len(statuses):
            raise ValueError("there must be as many payments as accounts")
        if not booked:
            return
        recomputed = terms.payments(t, content["statistics"], content["gram"], statuses, order)
        if recomputed is not None:
            payments, rounding = recomputed
            difference = max(map(abs, map(sub, payments, booked)))
            if not difference <= 1e-9 * max(map(abs, payments)) + rounding:
                message = f"{name}: payments differ by {difference:.6g} from inputs and terms"
                self._wrong("payment", place, message)
            return
        # The rule is unknown: only what is true of every rule can be checked.
        total = abs(math.fsum(booked))
        if not total <= max(0.5 * 10.0**-terms.scale, 2e-9 * math.fsum(map(abs, booked))):
            self._wrong("payment", place, f"{name}: payments do not sum to zero")
        for payment, status in zip(booked, statuses, strict=True):
            if payment and status != "ok" and terms.policy[status] == "excuse":
                self._wrong("payment", place, f"{name}: a member that is excused pays {payment}")


class _Intervals:
    """A set of whole numbers, stored as intervals, so that rounds without gaps need no memory."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, value: int) -> bool:
        """Add a number; False if it was there already."""
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


# Terms and payments


class _Terms:
    """What the TOML of the terms says about a charge."""

    def __init__(self, text: str, from_round: int, rules: Mapping[str, Measure]) -> None:
        table = tomllib.loads(text)
        self.hash = hashlib.sha256(text.encode()).hexdigest()
        self.from_round = _positive(from_round)
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
        # What the rule reads (None: any input), and its measure (None: an unknown rule).
        self.reads, self.measure = _BUILT_IN.get(self.rule, (None, rules.get(self.rule)))

    def block(self, t: int) -> int:
        """The block of the price that a round belongs to."""
        if self.last and t > self.last:
            raise ValueError(f"round {t} is after the last round of the terms, {self.last}")
        return bisect_right(self.starts, t) - 1

    def price(self, t: int) -> list[float]:
        """C of a round, one number or one per listed member."""
        factor = (1 - self.discount) ** (self.last - t) if self.discount else 1.0
        return [value * factor for value in self.prices[self.block(t)]]

    def payments(
        self,
        t: int,
        statistics: list[float | None] | None,
        gram: list[list[float]] | None,
        statuses: list[str],
        order: list[int],
    ) -> tuple[list[float], float] | None:
        """The payments of a round and by how much rounding may change them; None: unknown rule.

        p_i = C_i n_i − mean_{j≠i} C_j n_j − κ_i for all participants, then the flat fees.
        """
        if self.measure is None:
            return None
        ok = [status == "ok" for status in statuses]
        count = sum(ok)
        measured, fewest = self.measure(statistics, gram, ok)
        measures = [float(m) if there else 0.0 for m, there in zip(measured, ok, strict=True)]
        prices = self._by_participant(self.price(t), order)
        actions = [None if s == "ok" else self.policy[s] for s in statuses]
        present = ok
        if count and "largest" in actions:
            largest = max(measures)
            measures = [
                largest if action == "largest" else m
                for m, action in zip(measures, actions, strict=True)
            ]
            present = [action in (None, "largest") for action in actions]
        result = [0.0] * len(ok)
        if sum(present) >= max(fewest, 2):
            result = _balanced([c * m for c, m in zip(prices, measures, strict=True)], present)
            if self.allowances:
                result = self._less_allowances(result, t, present, order)
        fined = actions.count("flat-fee")
        if fined and count:
            fee = self.policy["fee"]
            share = fee * fined / count
            for i, action in enumerate(actions):
                result[i] += fee if action == "flat-fee" else -share if action is None else 0.0
        inputs = [v for v in statistics or () if v] + [
            40 * row[i] for i, row in enumerate(gram or ())
        ]
        size = max(map(abs, [*inputs, *measures]), default=0.0)
        return result, 1e-12 * max(prices, default=0.0) * size

    def _by_participant(self, listed: list[float], order: list[int]) -> list[float]:
        """Numbers in the order of the terms' members, put into that of the participants."""
        if len(listed) == 1:
            return listed * len(order)
        result = [0.0] * len(order)
        for value, i in zip(listed, order, strict=True):
            result[i] = value
        return result

    def _less_allowances(
        self, payments: list[float], t: int, present: list[bool], order: list[int]
    ) -> list[float]:
        row = self.allowances[min(self.block(t), len(self.allowances) - 1)]
        kappa = self._by_participant(row, order)
        mean = math.fsum(k for k, p in zip(kappa, present, strict=True) if p) / sum(present)
        return [
            payment - (k - mean) if p else payment
            for payment, k, p in zip(payments, kappa, present, strict=True)
        ]


def _balanced(levies: list[float], present: list[bool]) -> list[float]:
    """Each participant pays its levy and receives the mean of the others' levies."""
    total = math.fsum(levy for levy, p in zip(levies, present, strict=True) if p)
    others = sum(present) - 1
    return [
        levy - (total - levy) / others if p else 0.0
        for levy, p in zip(levies, present, strict=True)
    ]


def _recorded(statistics: Any, _gram: Any, _ok: list[bool]) -> tuple[list[float], int]:
    """The statistics themselves are the measure."""
    return [value or 0.0 for value in statistics], 2


def _nothing(_statistics: Any, _gram: Any, ok: list[bool]) -> tuple[list[float], int]:
    return [0.0] * len(ok), 2


def _distance_to_others(_statistics: Any, gram: Any, ok: list[bool]) -> tuple[list[float], int]:
    """The squared distance from the mean of the others: (N/(N−1))² ‖m_i − m̄‖²."""
    n = max(sum(ok), 2)
    return _distances(gram, ok, (n / (n - 1)) ** 2), 2


def _groves_ledyard(_statistics: Any, gram: Any, ok: list[bool]) -> tuple[list[float], int]:
    """((N−1)/(N−2)) ‖m_i − m̄‖²."""
    n = max(sum(ok), 3)
    return _distances(gram, ok, (n - 1) / (n - 2)), 3


def _distances(gram: list[list[float]], ok: list[bool], factor: float) -> list[float]:
    """‖m_i − m̄‖² = G_ii − (2/n) Σ_j G_ij + (1/n²) Σ_jk G_jk of the ok updates, times a factor."""
    n = len(gram)
    sums = [math.fsum(row) for row in gram]
    total = math.fsum(sums)
    distances = iter(
        factor * max(0.0, row[i] - 2 * sums[i] / n + total / n**2) for i, row in enumerate(gram)
    )
    return [next(distances) if there else 0.0 for there in ok]


#: The rules that come with Verax: what is recorded for them, and what they measure.
_BUILT_IN: dict[str, tuple[str, Measure]] = {
    "squared-norm": ("norms", _recorded),
    "spot-audit": ("misreport", _recorded),
    "none": ("norms", _nothing),
    "squared-distance": ("gram", _distance_to_others),
    "groves-ledyard": ("gram", _groves_ledyard),
}


def _check_gram(gram: list[list[float]], count: int) -> None:
    """A Gram matrix must be square, finite and symmetric, with a diagonal ≥ 0."""
    if len(gram) != count or any(len(row) != count for row in gram):
        raise ValueError(f"the Gram matrix must have {count} rows and columns")
    size = max((abs(row[i]) for i, row in enumerate(gram)), default=0.0)
    for i, row in enumerate(gram):
        for j, value in enumerate(row):
            if type(value) is not float or not math.isfinite(value):
                raise ValueError(f"Gram entry {value!r} is not a finite number")
            if abs(value - gram[j][i]) > 2e-6 * size or (i == j and value < 0):
                raise ValueError(f"Gram entry {value!r} cannot be an inner product")


def _listed_order(terms: _Terms, members: list[_Account]) -> list[int] | None:
    """The positions of the listed members; None if they are not exactly the participants."""
    if not terms.members:
        return list(range(len(members)))
    order: list[int] = []
    for listed in terms.members:
        by_id = [i for i, each in enumerate(members) if each.member == listed]
        order += by_id or [i for i, each in enumerate(members) if each.label == listed]
    if sorted(order) != list(range(len(members))) or len(order) != len(terms.members):
        return None
    return order


def _to_units(payments: list[float], scale: int, keys: list[str]) -> list[int]:
    """Payments in minor units by the largest-remainder method, in exact arithmetic."""
    units = [0] * len(payments)
    paying = [i for i, payment in enumerate(payments) if payment]
    if not paying:
        return units
    ratios = [payments[i].as_integer_ratio() for i in paying]
    common = max(denominator for _, denominator in ratios)  # all are powers of two
    power = 10**scale
    parts = [divmod(n * power * (common // d), common) for n, d in ratios]
    each, rest = divmod(-sum(whole for whole, _ in parts), len(parts))
    for i, (whole, _) in zip(paying, parts, strict=True):
        units[i] = whole + each
    by_remainder = sorted((-part, keys[i], i) for i, (_, part) in zip(paying, parts, strict=True))
    for _, _, i in by_remainder[:rest]:
        units[i] += 1
    return units


# A member's own evidence


class _Checkpoint:
    """A checkpoint that a member kept."""

    def __init__(self, path: Path, signer: str | None, result: Verification) -> None:
        self.path = path
        self.result = result
        self.sequence = 0
        self.compared = False
        try:
            content = json.loads(path.read_bytes())
            self.sequence = _positive(content["sequence"])
            self.hash: str = content["hash"]
            self.federation: str = content["federation"]
            self.balances: dict[str, int] = content["balances"]
            signature, key = content.pop("signature", None), content.get("key")
            if signature is None:
                if signer is not None:
                    result.add("signature", 0, f"{path.name}: not signed")
            elif not _is_signed(_canonical(content).encode(), signature, key):
                result.add("signature", 0, f"{path.name}: the signature is wrong")
            elif signer is not None and key != signer:
                result.add("signature", 0, f"{path.name}: signed by {key}, not by {signer}")
        except OSError:
            raise
        except _MALFORMED as error:
            self.sequence = 0
            self.compared = True
            result.add("checkpoint", 0, f"{path.name}: not a checkpoint ({_describe(error)})")

    def compare(self, hash_: str, balances: dict[str, int]) -> None:
        """Compare it with the record that it was made at."""
        name = self.path.name
        self.compared = True
        self.result.checkpoints += 1
        if self.federation != self.result.federation:
            self.result.add("checkpoint", 0, f"{name}: belongs to {self.federation!r}")
        if hash_ != self.hash:
            message = f"record {self.sequence} is not the one in {name}: history was rewritten"
            self.result.add("fork", self.sequence, message)
        elif _nonzero(balances) != _nonzero(self.balances):
            self.result.add("balance", self.sequence, f"balances differ from those in {name}")

    def finish(self, result: Verification) -> None:
        """Report a checkpoint whose record the book does not have."""
        if not self.compared:
            message = (
                f"the book ends at record {result.sequence}, {self.path.name} was made at record "
                f"{self.sequence}: records were removed"
            )
            result.add("fork", self.sequence, message)


def _is_signed(message: bytes, signature: str, key: str) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, *_MALFORMED):
        return False
    return True


class _OwnNorms:
    """The squared norms that a member wrote down itself."""

    def __init__(self, path: Path, member: str | None) -> None:
        if member is None:
            raise ValueError("whose record is it? give the member")
        self.path, self.member = path, member
        self.norms: dict[tuple[str, int], float] = {}
        self.took_part = False
        with path.open(encoding="utf-8") as file:
            for i, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    self.norms[str(row["run"]), _positive(row["round"])] = float(row["norm"])
                except _MALFORMED:
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
        """Compare the member's norm with the input of the round."""
        at = [i for i, each in enumerate(members) if self.member in (each.member, each.label)]
        if not at:
            return
        i = at[0]
        self.took_part = True
        norm = self.norms.pop((content["run"], content["round"]), None)
        name = f"round {content['round']} of run {content['run']!r}"
        if statuses[i] != "ok":
            if norm is not None:
                message = f"{name}: the book says {statuses[i]}, {self.path.name} says {norm}"
                result.add("mine", place, message)
            return
        if content["reads"] == "misreport":
            return  # the book holds a distance that others computed
        if content["reads"] == "norms":
            booked = content["statistics"][i]
        else:
            k = statuses[:i].count("ok")
            booked = content["gram"][k][k]
        if norm is None:
            result.add("mine", place, f"{name}: in the book but not in {self.path.name}")
        elif not math.isclose(norm * weights[i] ** 2, booked, rel_tol=1e-5, abs_tol=0.0):
            message = f"{name}: the book says {booked}, {self.path.name} says {norm}"
            result.add("mine", place, f"{message} (weight {weights[i]})")

    def finish(self, result: Verification) -> None:
        """Report rounds that the member wrote down and the book does not have."""
        if not self.took_part:
            result.add("mine", 0, f"{self.member!r} takes part in no round of the book")
            return
        for run, t in self.norms:
            message = f"round {t} of run {run!r}: in {self.path.name} but not in the book"
            result.add("mine", 0, message)


# Where records come from


def _is_export(source: str | Path) -> bool:
    if "://" in str(source):
        return False
    with Path(source).open("rb") as file:
        return file.read(16) != b"SQLite format 3\x00"


def _check_export(
    path: Path, federation: str | None, chain: _Chain, progress: Callable[[int], None] | None
) -> None:
    """Check every line of an export, then its last line: sequence, hash and balances."""
    result = chain.result
    result.federation = federation or ""
    end: Any = None
    with path.open("rb") as file:
        for i, line in enumerate(file, 1):
            if end is not None:
                result.add("added", result.sequence, f"line {i}: after the end of the export")
                break
            if not line.endswith(b"\n"):
                result.add("missing", result.sequence, f"line {i}: cut off")
            line = line.removesuffix(b"\n")
            end = _end_of_export(line)
            if end is None:
                chain.check(line)
            if progress is not None:
                progress(1)
    if end is None:
        result.add("missing", result.sequence, "the export has no last line: it was cut off")
        return
    if (end.get("sequence"), end.get("hash")) != (result.sequence, result.hash):
        message = f"the export ends at record {result.sequence}, says {end.get('sequence')}"
        result.add("missing", 0, message)
    computed = {account.member: chain.balances[n] for n, account in chain.accounts.items()}
    stated = end.get("balances")
    if not isinstance(stated, dict) or _nonzero(stated) != _nonzero(computed):
        result.add("balance", 0, "the export's balances are not the sums of its entries")


def _end_of_export(line: bytes) -> Any:
    """The content of an export's last line; None if this is another line."""
    if b'"kind":"end"' not in line:
        return None
    try:
        content = json.loads(line)
    except _MALFORMED:
        return None
    return content if isinstance(content, dict) and content.get("kind") == "end" else None


def _check_database(
    source: str, federation: str | None, chain: _Chain, progress: Callable[[int], None] | None
) -> None:
    """Check every record of a database with its entries, then the tables beside the records."""
    result = chain.result
    with _open_database(source) as query:
        ((version,),) = query("SELECT number FROM verax_schema")
        if version != _SCHEMA:
            raise ValueError(f"the book has schema {version}, this verifier knows {_SCHEMA}")
        heads = query("SELECT id, name, sequence, hash FROM federation")
        chosen = [row for row in heads if federation in (None, row[1])]
        if len(chosen) != 1:
            names = ", ".join(repr(row[1]) for row in heads)
            raise ValueError(f"which federation? the book holds {names or 'none'}")
        number, result.federation, sequence, hash_ = chosen[0]
        if "://" not in source or source.startswith("sqlite"):
            # A damaged index would hide records from the queries of others.
            for (message,) in query("PRAGMA integrity_check(5)"):
                if message != "ok":
                    result.add("damaged", 0, f"the file is damaged: {message}")
        extra = _check_records(query, number, chain, progress)
        if (sequence, hash_) != (result.sequence, result.hash):
            message = f"the chain ends at record {result.sequence}, the book says {sequence}"
            result.add("missing", 0, message)
        accounts = query(
            "SELECT account, member, label FROM account WHERE federation = :f ORDER BY account",
            f=number,
        )
        if accounts != [(n, a.member, a.label) for n, a in sorted(chain.accounts.items()) if n]:
            result.add("account", 0, "rows in `account` differ from the records")
        ((later,),) = query(
            "SELECT count(*) FROM entry WHERE (federation = :f AND sequence > :last) "
            "OR federation NOT IN (SELECT id FROM federation)",
            f=number,
            last=max(result.sequence, 0),
        )
        if extra + later:
            result.add("entry", 0, f"{extra + later} rows in `entry` belong to no record")


def _check_records(
    query: _Query,
    federation: int,
    chain: _Chain,
    progress: Callable[[int], None] | None,
) -> int:
    """Check all records of a database; returns how many entries lie between them."""
    after, extra = -(2**62), 0
    while batch := query(
        "SELECT sequence, kind, run, round, hash, content FROM record "
        "WHERE federation = :f AND sequence > :after ORDER BY sequence LIMIT :n",
        f=federation,
        after=after,
        n=_BATCH,
    ):
        last = batch[-1][0]
        entries: dict[Any, list[tuple[Any, Any]]] = {}
        for sequence, account, amount in query(
            "SELECT sequence, account, amount FROM entry WHERE federation = :f "
            "AND sequence > :after AND sequence <= :last ORDER BY sequence, account",
            f=federation,
            after=after,
            last=last,
        ):
            entries.setdefault(sequence, []).append((account, amount))
        for row in batch:
            line = str(row[5]).encode("utf-8", "surrogatepass")
            chain.check(line, _Row(row[:4], row[4], entries.pop(row[0], [])))
        extra += sum(map(len, entries.values()))
        after = last
        if progress is not None:
            progress(len(batch))
    return extra


@contextmanager
def _open_database(source: str) -> Generator[_Query]:
    """Open a database read-only, in one transaction; gives a function that returns rows."""
    if "://" in source and not source.startswith("sqlite"):
        with _open_postgres(source) as query:
            yield query
    else:
        with _open_sqlite(Path(re.sub(r"^sqlite[^:]*:///", "", source))) as query:
            yield query


@contextmanager
def _open_postgres(url: str) -> Generator[_Query]:
    try:
        import psycopg
    except ModuleNotFoundError:
        raise OSError("PostgreSQL needs a driver: pip install 'verax[postgres]'") from None
    conninfo = re.sub(r"^postgres\w*(\+\w+)?://", "postgresql://", url)
    try:
        with psycopg.connect(conninfo) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True

            def query(statement: str, **values: Any) -> list[tuple[Any, ...]]:
                text: Any = re.sub(r":(\w+)", r"%(\1)s", statement)
                return connection.execute(text, values).fetchall()

            yield query
    except psycopg.Error as error:
        raise OSError(f"the database cannot be read: {_describe(error)}") from error


@contextmanager
def _open_sqlite(path: Path) -> Generator[_Query]:
    import sqlite3

    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with closing(_connect_sqlite(path)) as connection:
            connection.execute("BEGIN")
            yield lambda statement, **values: connection.execute(statement, values).fetchall()
    except sqlite3.Error as error:
        raise OSError(f"the database cannot be read: {_describe(error)}") from error


def _connect_sqlite(path: Path) -> Any:
    import sqlite3
    from urllib.parse import quote

    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        # SQLite cannot create its -shm file in a read-only directory; without a -wal file nobody
        # writes, and the database can be opened as immutable.
        in_use = path.with_name(path.name + "-wal").exists()
        if in_use or error.sqlite_errorname != "SQLITE_CANTOPEN":
            raise
        return sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return connection


# Helpers


def _full_column(table: dict[str, Any], accounts: list[int], default: Any) -> list[Any]:
    """A column of which only the values that differ from the default are recorded."""
    if not table:
        return [default] * len(accounts)
    column = [table.get(str(number), default) for number in accounts]
    if len(table) != sum(str(number) in table for number in accounts):
        raise ValueError("a status or weight belongs to nobody in the round")
    if any(value == default for value in table.values()):
        raise ValueError("a default value must be left out")
    return column


def _nonzero(balances: dict[str, int]) -> dict[str, int]:
    return {member: amount for member, amount in balances.items() if amount}


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _positive(value: Any) -> int:
    if _integer(value) < 1:
        raise ValueError(f"{value!r} is less than 1")
    return value


def _as_seen(name: str) -> str:
    """The same text for names that look the same to a reader."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _describe(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:160]


def _report(result: Verification) -> Iterator[str]:
    yield (
        f"{result.federation}: {result.sequence} records, {result.rounds} rounds, "
        f"{result.entries} entries, last hash {result.hash}"
    )
    for finding in result.findings:
        word = "WARNING" if finding.kind == "unchecked" else "WRONG"
        yield f"{word} ({finding.kind}): {finding.message}"
    unchecked = f"; payments by {', '.join(result.unchecked)} not recomputed"
    verdict = "nothing wrong found" if result.ok else f"{result.wrong} findings"
    yield verdict + (unchecked if result.unchecked else "")


if __name__ == "__main__":
    outcome = verify(sys.argv[1], checkpoints=sys.argv[2:])
    print("\n".join(_report(outcome)))
    sys.exit(0 if outcome.ok else 1)
