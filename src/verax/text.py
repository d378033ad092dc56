"""Text from outside, made safe to show: in terminals, logs, errors, records and spreadsheets.

Members, operators of other systems and forged books decide about names, reasons and metrics. A
control character among them can rewrite what a terminal shows; a cell that begins like a formula is
executed by a spreadsheet. Everything that is shown passes through `printable`.
"""

from __future__ import annotations

import json
from typing import Any

#: With one of these a spreadsheet's formula begins, or its next cell.
_FORMULA = ("=", "+", "-", "@", ";", "|", "%")


def printable(text: str, most: int | None = None, keep: str = "") -> str:
    r"""The text with invisible characters escaped as in JSON, cut to a number of characters.

    Args:
        text: any text.
        most: of how many characters the result has at most; None: of any number.
        keep: invisible characters that stay, such as a line break of one's own.

    Example:
        >>> printable("a\x1b[2J" + "b" * 9, most=12)
        'a\\u001b[2Jb…'
    """
    cut = text if most is None else text[: most + 1]  # a long text is not escaped in vain
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() or c in keep else json.dumps(c)[1:-1] for c in cut)
    return cut if most is None or len(cut) <= most else cut[: most - 1] + "…"


def shown(value: Any, most: int = 80) -> str:
    """Any value for an error message; a number of too many digits is named as such.

    Example:
        >>> shown("a"), shown(10**5000)
        ("'a'", 'a number of more than 4000 digits')
    """
    try:
        return printable(repr(value), most)
    except ValueError:  # Python refuses to write very long integers
        return "a number of more than 4000 digits"


def printable_json(value: Any, indent: int | None = None) -> str:
    """One JSON document; letters of all scripts stay, invisible characters are escaped."""
    return printable(json.dumps(value, ensure_ascii=False, indent=indent), keep="\n")


def csv_cell(value: Any) -> Any:
    """A cell of a table; text that a spreadsheet would run as a formula begins with a quote.

    Example:
        >>> csv_cell("=1+1"), csv_cell(-1), csv_cell(None)
        ("'=1+1", -1, '')
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    safe = printable(value)
    return "'" + safe if value != value.lstrip() or safe.startswith(_FORMULA) else safe
