"""What a record must look like: exactly its fields, each of its type and within its bounds."""

from __future__ import annotations

import json
import re
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from verax.verifier.look_alikes import LOOK_ALIKES_TABLE

MAX_AMOUNT = 2**63 - 1
MAX_ACCOUNT = 10**9
_INFINITY = float("inf")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_LOOK_ALIKES = {
    int(code, 16): shown
    for shown, *codes in map(str.split, LOOK_ALIKES_TABLE.splitlines()[1:])
    for code in codes
}

Record = dict[str, Any]
Test = Callable[[Any], bool]


@dataclass
class Account:
    """A member and when it takes part."""

    member: str
    label: str
    joined: tuple[int, str | None] = (1, None)  # from which round, of which run
    left: tuple[int, str | None] | None = None
    keys: list[tuple[int, str | None]] = field(default_factory=list[tuple[int, str | None]])
    commitment: tuple[str, str] | None = None  # data and app, for spot checks

    @property
    def key(self) -> str | None:
        """The public key of its statements."""
        return self.keys[-1][1] if self.keys else None

    def key_at(self, sequence: int) -> str | None:
        """The key that it had when a record was booked."""
        earlier = [key for place, key in self.keys if place < sequence]
        return earlier[-1] if earlier else None

    def may_take_part(self, run: str, t: int) -> bool:
        """Whether the member may take part in a round that is booked now."""
        first, which = self.joined
        if which in (None, run) and t < first:
            return False
        return self.left is None or (self.left[1] in (None, run) and t < self.left[0])


class WrongRecordError(Exception):
    """Something that a book must not contain: its kind and a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def as_seen(name: str) -> str:
    """The same text for names that look the same to a reader."""
    shown = unicodedata.normalize("NFKD", name).translate(_LOOK_ALIKES).casefold()
    return " ".join(unicodedata.normalize("NFKD", shown).replace("rn", "m").split())


def _whole(low: int, high: int) -> Test:
    return lambda x: type(x) is int and low <= x <= high


def _wholes(low: int, high: int) -> Test:
    def test(x: Any) -> bool:
        if type(x) is not list or set(map(type, x)) - {int}:
            return False
        return not x or low <= min(x) <= max(x) <= high

    return test


def _reals(low: float) -> Test:
    def test(x: Any) -> bool:
        if type(x) is not list or set(map(type, x)) - {float}:
            return False
        return not x or (low <= min(x) and min(x) > -_INFINITY and max(x) < _INFINITY)

    return test


def _statistics(x: Any) -> bool:
    return x is None or (type(x) is list and _reals(0.0)([each for each in x if each is not None]))


def _gram(x: Any) -> bool:
    return x is None or (type(x) is list and all(map(_reals(-_INFINITY), x)))


def _text(most: int) -> Test:
    return lambda x: type(x) is str and len(x) <= most and not _has_surrogate(x)


def _has_surrogate(x: str) -> bool:
    return not x.isascii() and any("\ud800" <= character <= "\udfff" for character in x)


def is_name(x: Any) -> bool:
    """Whether a name has no character that a reader cannot see."""
    if type(x) is not str or not 1 <= len(x) <= 500 or x != x.strip():
        return False
    if x.isascii() and x.isprintable():
        return True
    if _BLANK.search(x):
        return False
    return not any(unicodedata.category(character) in _INVISIBLE for character in x)


def _time(x: Any) -> bool:
    if type(x) is not str or not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", x):
        return False
    try:
        datetime.fromisoformat(x[:-1])
    except ValueError:
        return False
    return True


def _by_account(test: Test) -> Test:
    return lambda x: (
        type(x) is dict
        and all(re.fullmatch(r"[1-9]\d{0,9}", key) and test(value) for key, value in x.items())
    )


def _weight(x: Any) -> bool:
    return type(x) is float and 0 <= x < _INFINITY and x != 1.0


def _transfers(x: Any) -> bool:
    amounts = _wholes(0, MAX_AMOUNT)
    return type(x) is list and all(
        amounts(row) and len(row) == 3 and max(row[:2]) <= MAX_ACCOUNT for row in x
    )


def _base64(size: int) -> Test:
    def test(x: Any) -> bool:
        try:
            raw = b64decode(x, validate=True) if type(x) is str else b""
        except ValueError:
            return False
        return len(raw) == size and b64encode(raw).decode() == x

    return test


def _key(x: Any) -> bool:
    """A public key of Ed25519: 32 bytes, of which 255 bits are a number below the prime."""
    return _base64(32)(x) and int.from_bytes(b64decode(x), "little") % 2**255 < 2**255 - 19


def _statement(x: Any) -> bool:
    """What a member signed: digest of what is sent, norm as text, example count, signature."""
    if type(x) is not list or len(x) != 4:
        return False
    return _digest(x[0]) and _real_text(x[1]) and _whole(0, 2**53)(x[2]) and _base64(64)(x[3])


def _real_text(x: Any) -> bool:
    """A finite number ≥ 0 as text, which was signed as it is written."""
    number = r"(0|[1-9]\d{0,30})(\.\d{1,30})?(e[+-]?\d{1,3})?"
    return type(x) is str and bool(re.fullmatch(number, x)) and float(x) < _INFINITY


def _found(x: Any) -> bool:
    """What a spot check found: rows of a round, a distance and a norm."""
    return type(x) is list and all(
        type(row) is list and len(row) == 3 and _round(row[0]) and all(map(_real_text, row[1:]))
        for row in x
    )


def _line(x: Any) -> bool:
    """A text of one line, which may be empty."""
    return _reason(x) and len(x.splitlines()) <= 1 and not x.endswith(("\n", "\r"))


def _or_none(test: Test) -> Test:
    return lambda x: x is None or test(x)


def _digest(x: Any) -> bool:
    return type(x) is str and re.fullmatch(r"[0-9a-f]{64}", x) is not None


_round = _whole(1, MAX_AMOUNT)
_account = _whole(1, MAX_ACCOUNT)
_reason = _text(500)
_terms = _text(2**22)
_entries: dict[str, Test] = {
    "reference": is_name,
    "accounts": _wholes(0, MAX_ACCOUNT),
    "amounts": _wholes(-MAX_AMOUNT, MAX_AMOUNT),
}
_FIELDS: dict[str, dict[str, Test]] = {
    "founding": {"terms": _terms},
    "terms": {"from_round": _round, "terms": _terms},
    "join": {
        "account": _account,
        "member": is_name,
        "label": is_name,
        "from_round": _round,
        "run": _or_none(is_name),
        "key": _or_none(_key),
        "data": _or_none(_digest),
        "app": _or_none(_digest),
    },
    "leave": {"account": _account, "from_round": _round, "run": _or_none(is_name)},
    "limit": {"account": _or_none(_account), "limit": _or_none(_whole(0, MAX_AMOUNT))},
    "opening": {"run": is_name, "round": _round, "terms": _digest, "config": _or_none(_digest)},
    "round": {
        "run": is_name,
        "round": _round,
        "accounts": _wholes(1, MAX_ACCOUNT),
        "reads": lambda x: x in ("norms", "misreport", "gram"),
        "statistics": _statistics,
        "gram": _gram,
        "statuses": _by_account(lambda x: x in ("missing", "rejected", "error")),
        "weights": _by_account(_weight),
        "reasons": _by_account(lambda x: _reason(x) and x != ""),
        "model_before": _or_none(_digest),
        "model_after": _or_none(_digest),
        "examples": _by_account(_whole(1, 2**53)),
        "statements": _by_account(_statement),
        "terms": _digest,
        "rule": _reason,
        "price": _reals(0.0),
        "payments": _reals(-_INFINITY),
        "amounts": _entries["amounts"],
    },
    "deposit": _entries | {"reason": _reason},
    "correction": _entries | {"corrects": _or_none(_round), "reason": _reason},
    "settlement": _entries | {"transfers": _transfers},
    "checkpoint": {"note": _text(2**16)},
    "closing": {"run": is_name, "beacon": _line},
    "draw": {"run": is_name, "value": _digest, "drawn": _by_account(_wholes(1, MAX_AMOUNT))},
    "spot-check": {
        "run": is_name,
        "account": _account,
        "outcome": lambda x: x in ("checked", "refused", "mismatch", "missing"),
        "reason": _line,
        "found": _found,
        "signature": _base64(64),
        "accounts": _wholes(1, MAX_ACCOUNT),
        "payments": _reals(-_INFINITY),
        "amounts": _entries["amounts"],
    },
}
_COMMON: dict[str, Test] = {
    "version": _whole(1, 1),
    "kind": lambda x: type(x) is str and x in _FIELDS,
    "federation": is_name,
    "sequence": _round,
    "previous": _digest,
    "time": _time,
}


def decode(line: bytes) -> Record:
    """The record that a line stands for; whatever is odd about it is refused."""
    if type(line) is not bytes or len(line) > 2**26 or b"\n" in line or b"\r" in line:
        raise WrongRecordError("form", "is not one line of bytes of a bounded size")
    try:
        record: Any = json.loads(
            line.decode(), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise WrongRecordError("form", f"is not JSON as it must be ({str(error)[:80]})") from None
    if type(record) is not dict or not _COMMON["kind"](record.get("kind")):
        raise WrongRecordError("form", "is of no known kind")
    fields = _COMMON | _FIELDS[record["kind"]]
    if record.keys() != fields.keys():
        odd = ", ".join(sorted(record.keys() ^ fields.keys())[:5])
        raise WrongRecordError("form", f"has missing or unknown fields: {odd}")
    for name, test in fields.items():
        if not test(record[name]):
            raise WrongRecordError(
                "form", f"has a field {name} that cannot be: {repr(record[name])[:60]}"
            )
    if len(record.get("accounts", ())) != len(record.get("amounts", ())):
        raise WrongRecordError("form", "does not have as many amounts as accounts")
    for name in ("statuses", "weights", "reasons", "examples", "statements", "drawn"):
        if name in record:
            record[name] = {int(key): value for key, value in record[name].items()}
    return record


def _object(pairs: list[tuple[str, Any]]) -> Record:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
