"""What a field of a record may hold: functions that return the value, or raise ValueError."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any, NamedTuple

from verax.ledger.money import MAX_AMOUNT
from verax.ledger.names import check_name

#: The longest reason, in characters.
MAX_REASON = 500
#: The largest number of an account.
MAX_ACCOUNT = 10**9

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NUMBER = re.compile(r"[1-9]\d{0,9}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REAL = re.compile(r"(0|[1-9]\d{0,30})(\.\d{1,30})?(e[+-]?\d{1,3})?")
_FIELD = 2**255 - 19  # the coordinates of points on Ed25519's curve are below this prime

Check = Callable[[Any], Any]


class SignedStatement(NamedTuple):
    """A member's statement as a round's record holds it; see `verax.ledger.evidence`.

    Attributes:
        sent: the digest of the model that the member sends.
        norm: the squared norm of its update, as it wrote the number.
        examples: how many examples it trained on; 0 if it does not say.
        signature: Ed25519, in base64.
    """

    sent: str
    norm: str
    examples: int
    signature: str


def whole(low: int, high: int) -> Check:
    """A whole number in a range."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"is {_short(value)}, must be a whole number in {low} … {high}")
        return value

    return check


def wholes(low: int, high: int) -> Check:
    """A list of whole numbers in a range."""

    def check(value: Any) -> tuple[int, ...]:
        if type(value) is not list or set(map(type, value)) - {int}:
            raise ValueError(f"is {_short(value)}, must be a list of whole numbers")
        if value and not low <= min(value) <= max(value) <= high:
            raise ValueError(f"holds a number outside {low} … {high}")
        return tuple(value)

    return check


def reals(low: float, *, or_none: bool = False) -> Check:
    """A list of finite real numbers, some of which may be left out (None)."""
    kinds = {float, type(None)} if or_none else {float}

    def check(value: Any) -> tuple[float | None, ...]:
        if type(value) is not list or set(map(type, value)) - kinds:
            raise ValueError(f"is {_short(value)}, must be a list of real numbers")
        known = [each for each in value if each is not None] if or_none else value
        if known and not (low <= min(known) and -inf < min(known) and max(known) < inf):
            raise ValueError(f"holds a number that is not finite or less than {low:g}")
        return tuple(value)

    return check


def rows(row: Check) -> Check:
    """A list whose rows pass a check."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ValueError(f"is {_short(value)}, must be a list of lists")
        return tuple(map(row, value))

    return check


def or_none(check: Check) -> Check:
    """None, or what passes a check."""
    return lambda value: None if value is None else check(value)


def text(most: int) -> Check:
    """A text of a bounded length, without half characters."""

    def check(value: Any) -> str:
        if type(value) is not str or len(value) > most:
            raise ValueError(f"is {_short(value)}, must be text of at most {most} characters")
        value.encode()  # a UnicodeEncodeError, which is a ValueError, for a lone surrogate
        return value

    return check


def line(value: Any) -> str:
    """A text of one line, which may be empty."""
    if len(text(MAX_REASON)(value).splitlines()) > 1 or value.endswith(("\n", "\r")):
        raise ValueError(f"is {_short(value)}, must be one line")
    return value


def name(value: Any) -> str:
    """A name that people read."""
    return check_name("name", value)


def matching(pattern: re.Pattern[str], words: str) -> Check:
    """A text that matches a pattern."""

    def check(value: Any) -> str:
        if type(value) is not str or not pattern.fullmatch(value):
            raise ValueError(f"is {_short(value)}, must be {words}")
        return value

    return check


def digest(value: Any) -> str:
    """A SHA-256."""
    return matching(_DIGEST, "64 hexadecimal digits")(value)


def base64(size: int) -> Check:
    """Base64 of so many bytes, in exactly one form."""

    def check(value: Any) -> str:
        try:
            raw = b64decode(value, validate=True) if type(value) is str else b""
        except ValueError:
            raw = b""
        if len(raw) != size or b64encode(raw).decode() != value:
            raise ValueError(f"is {_short(value)}, must be {size} bytes in base64")
        return value

    return check


def key(value: Any) -> str:
    """The public key (Ed25519) of a member."""
    raw = b64decode(base64(32)(value))
    if int.from_bytes(raw, "little") % 2**255 >= _FIELD:
        raise ValueError(f"is {_short(value)}, must be a public key of Ed25519")
    return value


def measured(value: Any) -> tuple[int, str, str]:
    """What a spot check found: a round, ‖m − g‖² and ‖g‖², as the auditor wrote the numbers."""
    if type(value) is not list or len(value) != 3:
        raise ValueError(f"holds {_short(value)}, must be round, distance and norm")
    return whole(1, MAX_AMOUNT)(value[0]), real_text(value[1]), real_text(value[2])


def real_text(value: Any) -> str:
    """A finite number ≥ 0 as text, which is signed as it is written."""
    if type(value) is not str or not _REAL.fullmatch(value) or float(value) == inf:
        raise ValueError(f"holds the number {_short(value)}, must be a number ≥ 0 as text")
    return value


def outcome(value: Any) -> str:
    """How a spot check ended."""
    if value not in ("checked", "refused", "mismatch", "missing"):
        raise ValueError(f"is {_short(value)}, must be checked, refused, mismatch or missing")
    return value


def statement(value: Any) -> SignedStatement:
    """What a member signed, and its signature."""
    if type(value) is not list or len(value) != 4:
        raise ValueError(f"holds {_short(value)}, must be sent, norm, examples and signature")
    sent, norm, examples, signature = value
    return SignedStatement(
        digest(sent), real_text(norm), whole(0, 2**53)(examples), base64(64)(signature)
    )


def time(value: Any) -> str:
    """A time in UTC, to the second."""
    text = matching(_TIME, "a time in UTC such as 2026-05-04T03:02:01Z")(value)
    datetime.fromisoformat(text[:-1])
    return text


def by_account(check: Check) -> Check:
    """A table from account numbers, written as texts, to values."""

    def table(value: Any) -> dict[int, Any]:
        if type(value) is not dict:
            raise ValueError(f"is {_short(value)}, must be an object")
        for key in value:
            if not _NUMBER.fullmatch(key):
                raise ValueError(f"has the key {_short(key)}, must be an account number")
        return {int(key): check(each) for key, each in value.items()}

    return table


def transfer(value: Any) -> tuple[int, int, int]:
    """Payer, receiver and amount."""
    row = wholes(0, MAX_AMOUNT)(value)
    if len(row) != 3 or max(row[:2]) > MAX_ACCOUNT:
        raise ValueError(f"holds {_short(value)}, must be payer, receiver and amount")
    return row  # pyright: ignore[reportReturnType]


def status(value: Any) -> str:
    """What became of an update that is not ok."""
    if value not in ("missing", "rejected", "error"):
        raise ValueError(f"holds {_short(value)}, must be missing, rejected or error")
    return value


def weight(value: Any) -> float:
    """How an update counted, if not as 1."""
    if type(value) is not float or not 0 <= value < inf or value == 1.0:
        raise ValueError(f"holds {_short(value)}, must be a real number ≥ 0 other than 1")
    return value


def reason(value: Any) -> str:
    """A reason that is not empty."""
    if not text(MAX_REASON)(value):
        raise ValueError("holds an empty reason, which must be left out")
    return value


def reads(value: Any) -> str:
    """What is recorded for a rule."""
    if value not in ("norms", "misreport", "gram"):
        raise ValueError(f"is {_short(value)}, must be norms, misreport or gram")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
