"""Text from outside is shown without effect on terminals, logs and spreadsheets."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.text import csv_cell, printable, printable_json, shown

ANY = st.text(st.characters(codec=None))


@given(ANY, st.one_of(st.none(), st.integers(1, 20)))
def test_printable_text_is_printable_and_short(text, most):
    found = printable(text, most)
    assert found.isprintable()
    assert most is None or len(found) <= most


@given(st.text(st.characters(blacklist_categories=["C", "Z"])))
def test_visible_text_stays(text):
    assert printable(text) == text


@given(st.recursive(st.one_of(st.integers(), ANY), lambda inner: st.dictionaries(ANY, inner)))
def test_json_means_the_same_and_is_printable(value):
    text = printable_json(value)
    assert text.isprintable()
    assert json.loads(text) == value


@pytest.mark.parametrize(
    "value",
    [10**5000, "\x1b" * 10**6, [10**5000], b"\x00", None],
    ids=["long number", "long text", "list", "bytes", "nothing"],
)
def test_any_value_can_be_shown(value):
    assert len(shown(value)) <= 80
    assert shown(value).isprintable()


@given(ANY)
def test_no_cell_begins_like_a_formula_or_ends_early(text):
    cell = csv_cell(text)
    assert cell.isprintable()
    assert not cell.lstrip().startswith(tuple("=+-@;|%\t\r\n"))
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerow([cell, 1])
    for delimiter in ",;":  # spreadsheets choose one by the user's language
        rows = list(csv.reader(io.StringIO(file.getvalue()), delimiter=delimiter))
        assert len(rows) == 1
    assert next(csv.reader(io.StringIO(file.getvalue())))[0] == cell


def test_numbers_stay_numbers():
    assert [csv_cell(value) for value in (-1, 2.5, None)] == [-1, 2.5, ""]
