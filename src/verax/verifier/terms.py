"""The terms of a round, read as strictly as the writer reads them; and what the rules measure.

A field that is unknown, has another type or an impossible value makes the terms invalid.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from verax.verifier.forms import MAX_AMOUNT, WrongRecordError
from verax.verifier.signatures import parse_key

#: What a payment rule measures. Called with the round's statistics (one number per participant,
#: None for those not ok) or None, with the Gram matrix of the ok participants or None, and with one
#: boolean per participant that says who is ok. Returns one number per participant, and how many
#: participants a round needs before anybody is charged.
Measure = Callable[
    [list[float | None] | None, list[list[float]] | None, list[bool]],
    tuple[Sequence[float], int],
]

_ACTIONS = ("excuse", "flat-fee", "largest")
_WEIGHTS = ("equal", "reported", "fixed")
_SPOT_FEES = ("refused", "mismatch", "missing")


class Terms:
    """What the TOML of the terms says about a charge."""

    def __init__(self, text: str, from_round: int, rules: Mapping[str, Measure]) -> None:
        try:
            self._read(tomllib.loads(text))
        except WrongRecordError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise WrongRecordError("terms", f"the terms cannot be read ({error!r:.80})") from None
        self.hash = hashlib.sha256(text.encode()).hexdigest()
        self.from_round = from_round
        # What the rule reads (None: any input), and its measure (None: an unknown rule).
        self.reads, self.measure = _BUILT_IN.get(self.rule, (None, rules.get(self.rule)))
        self.sequence = 0  # of the record that introduced them

    def _read(self, table: Any) -> None:
        known = {"price", "rule", "members", "allowances", "weights", "policy", "currency", "scale"}
        known |= {"arrays", "worth", "changes", "evidence", "spot", "audited", "openness"}
        _fields(table, known, {"price"})
        self.rule: str = _text(table.get("rule", "squared-norm"))
        name = r"[A-Za-z_][\w.]*"
        _true(self.rule in _BUILT_IN or re.fullmatch(f"{name}:{name}", self.rule), "rule")
        self.members: list[str] = _texts(table.get("members", []))
        _true(len(set(self.members)) == len(self.members) and "" not in self.members, "members")
        self.scale = _integer(table.get("scale", 6))
        self.money = (_text(table.get("currency", "credits")), self.scale)
        currency = self.money[0]
        _true(currency.strip() and currency.isprintable(), "currency")
        _true(0 <= self.scale <= 18, "scale")
        self._read_price(table["price"])
        self._read_weights(table.get("weights", {}))
        self._read_policy(table.get("policy", {}))
        self.allowances = _rows(table.get("allowances", []))
        if self.allowances:
            blocks = len(self.starts) if len(self.allowances) > 1 else 1
            _check_rows(self.allowances, blocks, -math.inf)
            for row in self.allowances:
                _true(len(row) == len(self.members), "allowances")
                _true(abs(sum(row)) <= 1e-9 * sum(map(abs, row)), "allowances")
        worth = _numbers(table.get("worth", []))
        _true(len(worth) in (0, 1, len(self.members)), "worth")
        _true(all(math.isfinite(x) and x > 0 for x in worth), "worth")
        _fields(table.get("arrays", {}), {"uncharged"})
        _true("" not in _texts(table.get("arrays", {}).get("uncharged", [])), "arrays")
        self._read_changes(table.get("changes", {}))
        self._read_evidence(table.get("evidence", {}))
        self._read_spot(table.get("spot"))
        openness = table.get("openness", {})
        _fields(openness, {"amounts", "norms"})
        _true(all(shown in ("own", "all") for shown in openness.values()), "openness")
        if "audited" in table:
            _check_audited(table["audited"])
        limit = MAX_AMOUNT / 10**self.scale
        sizes = [abs(x) for row in (*self.prices, *self.allowances) for x in row]
        sizes += [(self.spot or {}).get(name, 0.0) for name in _SPOT_FEES]
        _true(max(*sizes, self.policy["fee"]) <= limit and self.last <= MAX_AMOUNT, "price")

    def _read_price(self, price: Any) -> None:
        _fields(price, {"values", "starts", "discount", "rounds"}, {"values"})
        self.prices = _rows(price["values"])
        self.starts = [_integer(x) for x in _list(price.get("starts", [1]))]
        self.discount = _number(price.get("discount", 0.0))
        self.last = _integer(price.get("rounds", 0))
        _check_rows(self.prices, len(self.starts), 0.0)
        _true(0 <= self.discount < 1, "price.discount")
        _true(self.last >= 1 or not (self.discount or len(self.starts) > 1), "price.rounds")
        _check_blocks(self.starts, self.last or 1)
        _true(all(len(row) in (1, len(self.members)) for row in self.prices), "price.values")

    def _read_weights(self, weights: Any) -> None:
        _fields(weights, {"kind", "values", "fewest", "most"})
        self.weights = weights.get("kind", "reported")
        values = _numbers(weights.get("values", []))
        _true(self.weights in _WEIGHTS and (self.weights == "fixed") == bool(values), "weights")
        _true(all(math.isfinite(x) and x > 0 for x in values), "weights.values")
        _true(len(values) in (0, 1, len(self.members)), "weights.values")
        fewest, most = weights.get("fewest", 1), weights.get("most", 10**9)
        _true(type(fewest) is int and type(most) is int, "weights.fewest")
        _true(1 <= fewest <= most <= 2**53, "weights.most")
        self.weight_values, self.counts = values, (fewest, most)

    def _read_policy(self, policy: Any) -> None:
        _fields(policy, {"missing", "rejected", "error", "fee", "outside"})
        default = {"missing": "excuse", "rejected": "largest", "error": "", "fee": 0.0}
        self.policy: dict[str, Any] = default | {"outside": "warn"} | policy
        if self.policy["error"] == "":  # an error costs what silence costs
            self.policy["error"] = self.policy["missing"]
        actions = [self.policy[name] for name in ("missing", "rejected", "error")]
        _true(all(action in _ACTIONS for action in actions), "policy")
        _true(self.policy["outside"] in ("warn", "stop"), "policy.outside")
        fee = self.policy["fee"] = _number(self.policy["fee"])
        _true(math.isfinite(fee) and fee >= 0 and (fee or "flat-fee" not in actions), "policy.fee")

    def _read_changes(self, changes: Any) -> None:
        _fields(changes, {"notice_rounds", "witnesses", "quorum", "cosigned"})
        default: dict[str, Any] = {"notice_rounds": 0, "witnesses": [], "quorum": 0}
        self.changes = default | {"cosigned": ["settlement"]} | changes
        keys, kinds = _texts(self.changes["witnesses"]), _texts(self.changes["cosigned"])
        _true(0 <= _integer(self.changes["notice_rounds"]) <= 10**9, "changes.notice_rounds")
        _true(bool(keys) <= _integer(self.changes["quorum"]) <= len(keys), "changes.quorum")
        _true(len(set(keys)) == len(keys), "changes.witnesses")
        _true(all(parse_key(key, 4) for key in keys), "changes.witnesses")
        decided = {"settlement", "correction", "terms", "deposit", "key", "skip", "time"}
        _true(len(set(kinds)) == len(kinds) and set(kinds) <= decided, "changes.cosigned")

    def _read_evidence(self, evidence: Any) -> None:
        _fields(evidence, {"signed", "operator"})
        self.signed = _text(evidence.get("signed", "none"))
        self.operator = _text(evidence.get("operator", ""))
        _true(self.signed in ("none", "optional", "required"), "evidence.signed")
        _true(not self.operator or parse_key(self.operator, 1), "evidence.operator")

    def _read_spot(self, spot: Any) -> None:
        self.spot: dict[str, Any] | None = None
        if spot is None:
            return
        _fields(spot, {"auditor", "fine", "rounds", "tolerance", *_SPOT_FEES}, {"auditor", "fine"})
        numbers = {name: _number(spot.get(name, 0.0)) for name in ("fine", *_SPOT_FEES)}
        _true(all(math.isfinite(x) and x >= 0 for x in numbers.values()), "spot")
        tolerance, rounds = _number(spot.get("tolerance", 0.0)), _integer(spot.get("rounds", 1))
        _true(0 <= tolerance < 1 and 1 <= rounds <= 1000, "spot")
        key = parse_key(_text(spot["auditor"]), 1)
        _true(key and self.signed != "none", "spot")
        self.spot = numbers | {"tolerance": tolerance, "rounds": rounds, "key": key and key[2]}

    def block(self, t: int) -> int:
        """The block of the price that a round belongs to."""
        if self.last and t > self.last:
            raise WrongRecordError(
                "terms", f"round {t} is after the last round of the terms, {self.last}"
            )
        return bisect_right(self.starts, t) - 1

    def price(self, t: int) -> list[float]:
        """C of a round, one number or one per listed member."""
        factor = (1 - self.discount) ** (self.last - t) if self.discount else 1.0
        return [value * factor for value in self.prices[self.block(t)]]


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
    n = sum(ok)
    check_gram(gram, n)
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


def check_gram(gram: list[list[float]], count: int) -> None:
    """A Gram matrix must be square and symmetric, with a diagonal ≥ 0."""
    if len(gram) != count or any(len(row) != count for row in gram):
        raise WrongRecordError("form", f"the Gram matrix must have {count} rows and columns")
    size = max((row[i] for i, row in enumerate(gram)), default=0.0)
    for i, row in enumerate(gram):
        for j, value in enumerate(row):
            if abs(value - gram[j][i]) > 1e-6 * max(size, 0.0) or (i == j and value < 0):
                raise WrongRecordError("form", f"Gram entry {value!r} cannot be an inner product")


# Reading values of the terms


def _true(condition: Any, name: str) -> None:
    if not condition:
        raise WrongRecordError("terms", f"{name} of the terms is not allowed")


def _fields(table: Any, known: set[str], needed: set[str] | None = None) -> None:
    _true(type(table) is dict and (needed or set()) <= table.keys() <= known, "a field")


def _text(x: Any) -> str:
    _true(type(x) is str, repr(x)[:40])
    return x


def _integer(x: Any) -> int:
    _true(type(x) is int, repr(x)[:40])
    return x


def _number(x: Any) -> float:
    _true(type(x) in (int, float), "a number")
    # Larger integers have no floating-point value, and so many digits may not even be printed.
    _true(type(x) is float or abs(x) <= 2**1023, "a number")
    return float(x)


def _list(x: Any) -> list[Any]:
    _true(type(x) is list, repr(x)[:40])
    return x


def _texts(x: Any) -> list[str]:
    return [_text(each) for each in _list(x)]


def _numbers(x: Any) -> list[float]:
    return [_number(each) for each in _list(x)]


def _rows(x: Any) -> list[list[float]]:
    """A number, or a list of numbers and lists of numbers."""
    return [
        _numbers(row if type(row) is list else [row]) for row in (x if type(x) is list else [x])
    ]


def _check_rows(rows: list[list[float]], blocks: int, low: float) -> None:
    _true(len(rows) == blocks and all(row and len(row) == len(rows[0]) for row in rows), "a row")
    _true(all(math.isfinite(x) and x >= low for row in rows for x in row), "a number")


def _check_blocks(starts: list[int], rounds: int) -> None:
    _true(starts and starts[0] == 1 and starts[-1] <= rounds, "starts")
    _true(all(a < b for a, b in pairwise(starts)), "starts")


def _check_audited(table: Any) -> None:
    texts = {"protocol", "local_work", "audit", "digest", "versions"}
    lists = {"starts", "lowest", "highest"}
    every = texts | lists | {"message", "rounds", "weights", "members"}
    _fields(table, every, every)
    _true(all(type(table[name]) is str for name in texts), "audited")
    _true(table["message"] in ("gradient", "model difference"), "audited.message")
    _true(table["weights"] in _WEIGHTS, "audited.weights")
    rounds, members = _integer(table["rounds"]), _integer(table["members"])
    _true(rounds >= 1 and members >= 2, "audited")
    starts = [_integer(x) for x in _list(table["starts"])]
    lowest, highest = _numbers(table["lowest"]), _numbers(table["highest"])
    _check_blocks(starts, rounds)
    _true(len(starts) == len(lowest) == len(highest), "audited")
    _true(all(0 <= a <= b < math.inf for a, b in zip(lowest, highest, strict=True)), "audited")
    _true(re.fullmatch(r"[0-9a-f]{64}", table["digest"]), "audited.digest")
