"""The canonical form, held against Python's encoder, which defines it."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from verax.ledger.canonical import encode

REALS = st.floats(allow_nan=False, allow_infinity=False) | st.builds(
    # Numbers that lie halfway between two decimals of the same length, and those near one.
    lambda numerator, power: numerator / 2**power,
    st.integers(-(2**53), 2**53),
    st.integers(0, 60),
)
NUMBERS = REALS | st.integers() | st.none()
CONTENTS = st.dictionaries(
    st.text(st.characters(codec="utf-8")),
    st.recursive(
        NUMBERS | st.booleans() | st.text() | st.lists(NUMBERS, max_size=20),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)


def python(content):
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


@given(CONTENTS)
@example({"x": [1e-4, 9.999e-5, -1e-05, 1e15, 1e16, 1.5e300, 5e-324, 0.0, -0.0, 10.00001]})
@example({"x": [2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(2**70), None, 1.5]})
@example({"x": 1e-7, "ä": {"b": 1e-7, "a": [True, None]}, "": '\x00\x1f\x7f\u2028\\"/é😀\ud800'})
@example({"\ue000": 1, "\U00010000": 2, "z": {"\ue000": 1, "\U00010000": 2}})
def test_any_content_is_written_as_by_python(content):
    assert encode(content) == python(content)


def test_every_character_is_written_as_by_python():
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert encode({every: every}) == python({every: every})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [1.5, x], lambda x: [None, [x, None]]])
def test_numbers_that_are_not_finite_are_refused(value, wrap):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"x": wrap(value)})
