"""Names that people read: no invisible characters, and no two names that look the same.

Programs treat the names of members, labels, federations and runs as data: statements have bound
parameters, and output is escaped. These checks refuse names that would deceive a reader.
"""

from __future__ import annotations

import unicodedata

_MAX_LENGTH = 500
# Control and format characters (bidirectional marks, zero width), surrogates, private and
# unassigned characters, line and paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Cyrillic and Greek letters that look like the Latin ones below them.
_LOOK_ALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТУХҮԌԚԜаесіјорѕухѵһԁԛԝցΑΒΕΖΗΙΚΜΝΟΡΤΥΧαινορυχϲϳı",
    "ABESIJKMHOPCTYXYGQWaecijopsyxvhdqwgABEZHIKMNOPTYXaivopuxcji",
)


def check_name(what: str, text: str) -> str:
    """Return the name, or raise an error that says what is wrong with it."""
    if not isinstance(text, str):
        raise ValueError(f"{what} is {text!r}, must be text")
    if not text.strip() or text != text.strip():
        raise ValueError(f"{what} is {text!r}, must be text without spaces at its ends")
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{what} has {len(text)} characters, must be at most {_MAX_LENGTH}")
    if not text.isascii() or not text.isprintable():
        for character in text:
            if unicodedata.category(character) in _INVISIBLE:
                raise ValueError(
                    f"{what} contains the invisible character U+{ord(character):04X}; remove it"
                )
    return text


def as_seen(name: str) -> str:
    """The same text for names that look the same to a reader.

    Example:
        >>> as_seen("Nоrth") == as_seen("NORTH")  # the first one has a Cyrillic о
        True
    """
    latin = unicodedata.normalize("NFKC", name).translate(_LOOK_ALIKES)
    return unicodedata.normalize("NFKC", latin.casefold()).translate(_LOOK_ALIKES)
