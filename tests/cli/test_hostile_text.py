"""Names, reasons and numbers of strangers on the command line: escaped, or refused in one line."""

import csv
import io

import pytest

from tests import command
from verax.ledger import Book, Report
from verax.mechanism import Price, Terms

ESCAPE = "\x1b[2J\u202e\x9b31m\r"


def verax(*words, folder):
    return command.verax(words, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A book with a reason that holds control characters, a formula and a semicolon."""
    made = tmp_path_factory.mktemp("text")
    with Book.create(made / "book.db") as book:
        book.create_federation("clinics", Terms(Price.constant(0.5), scale=2))
        reports = [
            Report("north", statistic=4.0),
            Report("south", statistic=1.0),
            Report("west", "rejected", reason=f"=1+1;{ESCAPE}@x"),
        ]
        book.post("clinics", "first", 1, reports)
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "statement", "book.db", "west"),
        ("ledger", "statement", "book.db", "west", "--format", "csv"),
        ("ledger", "statement", "book.db", "west", "--format", "json"),
        ("ledger", "statement", "book.db", "west", "--format", "html"),
        ("watch", "book.db", "--once", "--json"),
        ("watch", "book.db", "--once"),
        ("ledger", "verify", "book.db"),
        ("ledger", "join", "book.db", f"x{ESCAPE}"),
        ("ledger", "statement", "book.db", f"x{ESCAPE}"),
        ("ledger", "deposit", "book.db", "west", f"1{ESCAPE}"),
    ],
)
def test_control_characters_reach_no_terminal(words, folder):
    _, out, err = verax(*words, folder=folder)
    for line in (out + err).splitlines():
        assert line.isprintable(), line
    assert out or err


def test_a_spreadsheet_runs_nothing(folder):
    _, out, _ = verax("ledger", "statement", "book.db", "west", "--format", "csv", folder=folder)
    for delimiter in ",;":
        for row in csv.reader(io.StringIO(out), delimiter=delimiter):
            for cell in row:
                assert not cell.startswith(("=", "+", "@", ";")), (delimiter, cell)


@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "deposit", "book.db", "west", "9" * 5000),
        ("ledger", "deposit", "book.db", "west", "1e999999999"),
        ("ledger", "deposit", "book.db", "west", "1e99999"),
        ("ledger", "deposit", "book.db", "west", "nan"),
        ("ledger", "create", "other.db", "--federation", "a", "--terms", "long.toml"),
        ("ledger", "create", "other.db", "--federation", "a", "--terms", "large.toml"),
        ("ledger", "create", "other.db", "--federation", "a", "--terms", "deep.toml"),
        ("ledger", "post", "book.db", "--file", "deep.jsonl"),
        ("ledger", "post", "book.db", "--file", "large.jsonl"),
    ],
)
def test_very_long_numbers_end_in_one_line(words, folder):
    (folder / "long.toml").write_text(f"[price]\nvalues = {'9' * 5000}\n")
    (folder / "large.toml").write_text(f"[price]\nvalues = {'9' * 400}\n")
    (folder / "deep.toml").write_text(f"[price]\nvalues = {'[' * 5000}{']' * 5000}\n")
    (folder / "deep.jsonl").write_text("[" * 100_000 + "\n")
    report = f'{{"member": "north", "statistic": {"9" * 400}}}'
    (folder / "large.jsonl").write_text(f'{{"run": "a", "round": 1, "reports": [{report}]}}\n')
    code, out, err = verax(*words, folder=folder)
    assert code == 2, out + err
    assert err.startswith("verax: ")
    assert err.count("\n") == 1
    assert len(err) < 1000
    assert not (folder / "other.db").exists()
