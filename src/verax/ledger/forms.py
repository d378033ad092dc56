"""What a field of a record may hold: functions that return the value, or raise ValueError."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any

from verax.ledger.money import MAX_AMOUNT
from verax.ledger.names import check_name

#: The longest reason, in characters.
MAX_REASON = 500
#: The largest number of an account.
MAX_ACCOUNT = 10**9

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NUMBER = re.compile(r"[1-9]\d{0,9}")

Check = Callable[[Any], Any]


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
