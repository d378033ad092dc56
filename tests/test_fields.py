"""Reading TOML field by field."""

import pytest

from verax.fields import Fields


def test_fields_are_taken_and_leftovers_named():
    fields = Fields({"a": 1, "b": {"c": [1, 2]}, "d": "x"})
    assert fields.number("a") == 1.0
    assert fields.table("b").numbers("c") == (1.0, 2.0)
    assert fields.text("e", "default") == "default"
    with pytest.raises(ValueError, match="unknown field d"):
        fields.refuse_rest()


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda f: f.integer("x"), "x is missing"),
        (lambda f: f.integer("t"), "t must be a whole number, is 'text'"),
        (lambda f: f.number("yes"), "yes must be a number, is True"),
        (lambda f: f.integers("t"), "t must be a list of whole numbers"),
        (lambda f: f.table("t"), "t must be a table"),
        (lambda f: f.table("none"), "none is missing"),
    ],
)
def test_errors_name_the_field(read, message):
    with pytest.raises(ValueError, match=message):
        read(Fields({"t": "text", "yes": True}))
