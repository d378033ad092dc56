"""The canonical form, compared with an encoder written from `docs/theory/ledger.md`."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from verax.ledger.canonical import digest, encode

REALS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = REALS | st.integers() | st.none()
CONTENTS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.recursive(
        NUMBERS | st.booleans() | st.text(max_size=5) | st.lists(NUMBERS, max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    ),
    max_size=4,
)
ESCAPES = {c: f"\\{letter}" for c, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)}


def by_the_document(value):
    """The rules of the document, one after the other."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        body = "".join(
            ESCAPES.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 0x20 else c) for c in value
        )
        return f'"{body}"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return real(value)
    if isinstance(value, list):
        return f"[{','.join(map(by_the_document, value))}]"
    pairs = sorted(value.items(), key=lambda pair: [ord(c) for c in pair[0]])
    return f"{{{','.join(f'{by_the_document(k)}:{by_the_document(v)}' for k, v in pairs)}}}"


def real(value):
    """The shortest digits that read back, positional for decimal exponents −4 … 15."""
    exact = Decimal(abs(value))
    for n in range(1, 18):
        texts = [Context(n, mode).create_decimal(exact) for mode in (ROUND_FLOOR, ROUND_CEILING)]
        same = [text for text in texts if float(text) == abs(value)]
        if same:
            break
    nearest = min(same, key=lambda text: abs(text - exact))
    sign = "-" if math.copysign(1, value) < 0 else ""
    figures = "".join(map(str, nearest.as_tuple().digits)).rstrip("0") or "0"
    power = nearest.adjusted() if nearest else 0
    if not -4 <= power <= 15:
        point = f".{figures[1:]}" if len(figures) > 1 else ""
        return f"{sign}{figures[0]}{point}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{figures}"
    figures = figures.ljust(power + 1, "0")
    return f"{sign}{figures[: power + 1]}.{figures[power + 1 :] or '0'}"


@given(CONTENTS)
@example({"x": [1e-4, 9.999e-5, -1e-05, 1e15, 1e16, 1.5e300, 5e-324, 0.0, -0.0, 10.00001]})
@example({"x": [2**63 - 1, -(2**63), 2**64, -(2**70), None, 1.5]})
@example({"x": 1e-7, "ä": {"b": 1e-7, "a": [True, None]}, "": '\x00\x1f\x7f\u2028\\"/é😀'})
@example({"\ue000": 1, "\U00010000": 2, "z": {"\ue000": 1, "\U00010000": 2}})
def test_any_content_is_written_as_the_document_says(content):
    assert encode(content) == by_the_document(content)


def test_every_character_is_written_as_the_document_says():
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert encode({every: every}) == by_the_document({every: every})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [1.5, x], lambda x: [None, [x, None]]])
def test_numbers_that_are_not_finite_are_refused(value, wrap):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"x": wrap(value)})


def test_the_hash_is_that_of_the_utf8_bytes():
    assert digest("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"
