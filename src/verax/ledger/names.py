"""Names that people read: no invisible characters, and no two names that look the same.

Programs treat the names of members, labels, federations and runs as data: statements have bound
parameters, and output is escaped. These checks refuse names that would deceive a reader.
"""

from __future__ import annotations

import re
import unicodedata

from verax.ledger.look_alikes import TABLE

_MAX_LENGTH = 500
# Control and format characters (bidirectional marks, zero width), surrogates, private and
# unassigned characters, line and paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Of other categories: what Unicode calls default-ignorable (fillers, variation selectors), and
# characters that are blank.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_LOOK_ALIKES = {
    int(code, 16): shown
    for shown, *codes in map(str.split, TABLE.splitlines()[1:])
    for code in codes
}


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
            if unicodedata.category(character) in _INVISIBLE or _BLANK.match(character):
                raise ValueError(
                    f"{what} contains the invisible character U+{ord(character):04X}; remove it"
                )
    return text


def as_seen(name: str) -> str:
    """The same text for names that look the same to a reader.

    As the skeletons of Unicode's UTS 39, without regard to case and to the number of spaces; m
    stands for r and n.

    Example:
        >>> as_seen("Nоrth") == as_seen("N0RTH")  # the first one has a Cyrillic о
        True
    """
    shown = unicodedata.normalize("NFKD", name).translate(_LOOK_ALIKES).casefold()
    return " ".join(unicodedata.normalize("NFKD", shown).replace("rn", "m").split())
