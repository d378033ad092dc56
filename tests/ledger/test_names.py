"""Names as weapons: SQL, markup, formulas, paths, look-alikes. Tried, and harmless."""

import csv
import io
from pathlib import Path

import pytest
from books import norms

from verax.ledger import Book, BookError, Report
from verax.ledger.export import default_name, export_book
from verax.ledger.statement import make_statement, to_csv, to_html
from verax.verifier import verify

NASTY = [
    "'; DROP TABLE record; --",
    '" OR 1=1 --',
    "Robert'); DELETE FROM entry; --",
    "%s %(name)s :name ? {0} $1",
    "<script>alert(1)</script>",
    "[red]not markup[/red]",
    "=HYPERLINK(\"http://x\",\"y\")",
    "@SUM(A1)",
    "../../etc/passwd",
    "C:\\windows\\system32",
    "a\\nb",
    "Ünïcödé 中文 🏥",
    "Zoë",
    "{{ 7 * 7 }}",
    "null",
    "0",
    '{"kind":"end"}',
]  # fmt: skip


def test_names_are_data(url, terms, tmp_path):
    with Book.open(url) as book:
        for name in NASTY[:3]:
            book.create_federation(name, terms)
        book.create_federation("clinics", terms)
        reports = [Report(name, statistic=float(i)) for i, name in enumerate(NASTY)]
        book.post("clinics", NASTY[0], 1, reports)
        book.post("clinics", NASTY[6], 1, [Report(NASTY[0], "error", reason="\x00\x1b[31m" * 200)])
        assert set(book.balances("clinics")) == set(NASTY)
        export_book(book, "clinics", tmp_path / "export.jsonl")
        page = to_html(make_statement(book, "clinics", NASTY[4]))
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page
        for name in NASTY:
            table = list(csv.reader(io.StringIO(to_csv(make_statement(book, "clinics", name)))))
            assert not any(cell[:1] in "=+@" for row in table[1:] for cell in row if cell), (
                "a spreadsheet would run this"
            )
        page = to_html(make_statement(book, "clinics", "{{ 7 * 7 }}"))
        assert page.count("{{ 7 * 7 }}") >= 2, "title and heading name the member, unevaluated"
    assert verify(url, federation="clinics").ok
    assert verify(tmp_path / "export.jsonl").ok


@pytest.mark.parametrize(
    "name",
    [
        "", " ", " a", "a\n", "a\x00b", "a\x1b[31m", "a\u202eb", "a\u200bb", "\ufeffa", "a\u2028b",
        "\ud800", "a\u00adb", "x" * 501, "\ue000", "North\ufe0f", "Nor\u034fth", "\u3164North",
        "North\u115f", "No\u17b4rth", "No\u180brth", "North\uffa0", "North\U000e0100", "a\u2800",
    ],
)  # fmt: skip
def test_names_that_deceive_readers_are_refused(path, terms, name):
    with Book.open(path) as book:
        book.create_federation("clinics", terms)
        head = book.head("clinics")
        for act in (
            lambda: book.create_federation(name, terms),
            lambda: book.post("clinics", name, 1, norms(1, 2)),
            lambda: book.post("clinics", "r", 1, [Report(name, statistic=1.0)]),
            lambda: book.join("clinics", name),
        ):
            with pytest.raises(ValueError, match=r"must be|invisible"):
                act()
        if name:
            with pytest.raises(ValueError, match=r"must be|invisible"):
                book.join("clinics", "fine", name)
        assert book.head("clinics") == head


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("North", "north"), ("Zoë", "Zoe\u0308"), ("fi", "ﬁ"), ("①", "1"), ("Straße", "STRASSE"),
        ("escrow", "Escrow"), ("North", "ꓠorth"), ("North", "N0rth"), ("North", "Νоrth"),
        ("India", "lndia"), ("Clinic 1", "Clinic l"), ("Farm", "Farrn"), ("a b", "a  b"),
        ("a b", "a\u00a0b"), ("a-b", "a\u2010b"), ("Noël", "No\u0451l"), ("West", "Ꮃest"),
        ("Н", "н"), ("Ꭰ", "ꭰ"),
    ],
)  # fmt: skip
def test_no_two_members_look_the_same(path, terms, first, second):
    with Book.open(path) as book:
        book.create_federation("clinics", terms)
        if first != "escrow":
            book.join("clinics", "key-1", first)
        with pytest.raises(BookError, match="looks like"):
            book.join("clinics", "key-2", second)
        with pytest.raises(BookError, match="looks like"):
            book.join("clinics", second)
        with pytest.raises(BookError, match=r"looks like"):
            book.post("clinics", "r", 1, [Report(second, statistic=1.0)])
        with pytest.raises(BookError, match="looks like"):  # two newcomers at once
            book.post("clinics", "r", 1, [Report("Q", statistic=1.0), Report("q", statistic=1.0)])


@pytest.mark.parametrize("name", [*NASTY, "....", "/", "CON", "a" * 400])
def test_file_names_stay_in_the_folder(name, tmp_path):
    made = default_name(name, ".jsonl")
    assert Path(made).name == made
    assert (tmp_path / made).resolve().parent == tmp_path.resolve()
    assert len(made) < 100
    assert not made.startswith(".")
