"""Dataclasses as TOML documents: they survive the round trip, and wrong fields are named."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax import documents
from verax.documents import check_choice, from_toml, option, options, to_toml

Colour = Literal["red", "green"]


@dataclass(frozen=True)
class Inner:
    depth: int = option(3, "How deep.")
    share: float = option(0.5, "Which part.", "part")


@dataclass(frozen=True)
class Outer:
    name: str
    on: bool = True
    colour: Colour = "red"
    names: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    rows: tuple[tuple[float, ...], ...] = ()
    inner: Inner = field(default_factory=Inner)
    other: Inner | None = None


real = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"]))


@st.composite
def outers(draw):
    width = draw(st.integers(1, 3))
    return Outer(
        draw(text),
        draw(st.booleans()),
        draw(st.sampled_from(["red", "green"])),
        tuple(draw(st.lists(text, max_size=3))),
        tuple(draw(st.lists(st.integers(-(2**62), 2**62), max_size=3))),
        tuple(draw(st.lists(st.tuples(*[real] * width), max_size=3))),
        Inner(draw(st.integers(-9, 9)), draw(real)),
        draw(st.none() | st.builds(Inner, st.integers(-9, 9), real)),
    )


@given(outers())
def test_round_trip(value):
    assert from_toml(Outer, to_toml(value, "a comment\n\nin = three lines")) == value


def test_defaults_and_whole_numbers_for_reals():
    assert from_toml(Outer, 'name = "x"') == Outer("x")
    found = from_toml(Outer, 'name = "x"\nrows = 2\n[inner]\nshare = 1')
    assert found == Outer("x", rows=((2.0,),), inner=Inner(3, 1.0))
    assert type(found.inner.share) is float
    assert from_toml(Outer, 'name = "x"\nrows = [1, [2, 3]]').rows == ((1.0,), (2.0, 3.0))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "name is missing"),
        ('name = "x"\nnombre = 1', "unknown field nombre"),
        ('name = "x"\n[inner]\nwidth = 1', r"unknown field inner\.width"),
        ('name = "x"\ninner = 3', "inner must be a table, is 3"),
        ('name = "x"\nother = 3', "other must be a table, is 3"),
        ('name = "x"\n[other]\nwidth = 1', r"unknown field other\.width"),
        ("name = 3", "name must be a text, is 3"),
        ('name = "x"\non = 1', "on must be true or false, is 1"),
        ('name = "x"\ncolour = 1', "colour must be a text, is 1"),
        ('name = "x"\nnames = "x"', "names must be a list of texts, is 'x'"),
        ('name = "x"\nnames = [1]', "names must be a list of texts"),
        ('name = "x"\nnumbers = [1.5]', "numbers must be a list of whole numbers"),
        ('name = "x"\nnumbers = [true]', "numbers must be a list of whole numbers"),
        ('name = "x"\nrows = "1"', "rows must be a list of numbers"),
        ('name = "x"\n[inner]\ndepth = 1.0', r"inner\.depth must be a whole number, is 1\.0"),
        ('name = "x"\n[inner]\ndepth = true', r"inner\.depth must be a whole number, is True"),
        ('name = "x"\n[inner]\nshare = "1"', r"inner\.share must be a number, is '1'"),
        ("name = ", "not TOML"),
    ],
)
def test_wrong_documents_are_refused_by_field(written, message):
    with pytest.raises(ValueError, match=message):
        from_toml(Outer, written)


def test_a_type_that_no_document_can_hold():
    @dataclass
    class Odd:
        value: Any = None

    with pytest.raises(TypeError, match="which no document can hold"):
        documents.read(Odd, {"value": 3})


def test_choices():
    check_choice("colour", "red", Colour)
    with pytest.raises(ValueError, match="colour is 'blue', must be one of red, green"):
        check_choice("colour", "blue", Colour)


def test_options_are_listed_with_their_names_and_help():
    found = {each.name: each for each in options(Outer)}
    assert set(found) == {"depth", "part"}
    assert found["part"].path == ("inner", "share")
    assert (found["part"].default, found["part"].help) == (0.5, "Which part.")
    assert found["depth"].kind is int
