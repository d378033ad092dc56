"""Names that people read: no control or invisible characters, none that passes for another.

Member ids, labels, federations and runs are data everywhere (bound parameters, escaped output);
this keeps out those that would deceive a reader rather than a program.
"""

from __future__ import annotations

import unicodedata

__all__ = ["check_name", "looks"]

_LONGEST = 500
# Controls, formats (bidi, zero width), surrogates, private, unassigned; line and paragraph ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def check_name(what: str, text: str) -> str:
    """The text itself, or an error that names what is wrong with it."""
    if not isinstance(text, str):
        raise ValueError(f"{what} is {text!r}, must be text")
    if not text.strip() or text != text.strip():
        raise ValueError(f"{what} is {text!r}, must be text without spaces at its ends")
    if len(text) > _LONGEST:
        raise ValueError(f"{what} has {len(text)} characters, must be at most {_LONGEST}")
    if not text.isascii() or not text.isprintable():
        for character in text:
            if unicodedata.category(character) in _HIDDEN:
                raise ValueError(
                    f"{what} holds the invisible character U+{ord(character):04X}; leave it out"
                )
    return text


def looks(text: str) -> str:
    """What a name looks like: two that look the same are the same here."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
