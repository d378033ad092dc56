"""A federation of 50 members over 300 rounds: posted, verified, recomputed, settled."""

import csv
import io
import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from books import forged, norms, simulate

from verax.ledger import Book, Report
from verax.ledger.export import export_book, import_book
from verax.ledger.settlement import settle
from verax.ledger.statement import make_statement, to_csv, to_html, to_json
from verax.mechanism import Arrays, Audited, FailurePolicy, Price, Terms
from verax.verifier import verify

ROUNDS = 300

# By hand and in fractions, with nothing of Verax: price 1/2, missing excused, rejected as the
# largest, errors pay a fee of 3 that the others share. What rounding leaves over is carried.
INDEPENDENT = """
import json, sys
from fractions import Fraction as F
members, sums, owed = {}, {}, {}
for line in open(sys.argv[1], encoding="utf-8"):
    r = json.loads(line)
    if "end" in r:
        break
    if r["kind"] == "join":
        members[r["account"]] = r["member"]
    if r["kind"] != "round":
        continue
    n = dict(zip(r["accounts"], r["statistics"]))
    st = {a: r["statuses"].get(str(a), "ok") for a in n}
    ok = [a for a in n if st[a] == "ok"]
    levy = {a: F(1, 2) * F(n[a]) for a in ok}
    most = max(levy.values())
    levy |= {a: most for a in n if st[a] == "rejected"}
    whole, N = sum(levy.values()), len(levy)
    pay = {a: levy[a] - (whole - levy[a]) / (N - 1) for a in levy}
    fined = [a for a in n if st[a] == "error"]
    for a in fined:
        pay[a] = F(3)
    for a in ok:
        pay[a] -= F(3 * len(fined), len(ok))
    for a, p in pay.items():
        owed[a] = owed.get(a, 0) + p * 10**4
    shared = sum(owed[a] for a in pay) / len(pay)
    units = {a: (owed[a] - shared).__floor__() for a in pay}
    short = -sum(units.values())
    for a in sorted(pay, key=lambda a: (units[a] - owed[a], a))[:short]:
        units[a] += 1
    for a, u in units.items():
        owed[a] -= u
        sums[members[a]] = sums.get(members[a], 0) + u
print(json.dumps(sums))
"""


@pytest.fixture(scope="module")
def exported(big):
    """An export of the big book."""
    path = Path(big).with_suffix(".jsonl")
    with Book.open(big) as book:
        export_book(book, "net", path)
    return path


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("big") / "book.db")
    terms = Terms(
        Price.constant(0.5),
        policy=FailurePolicy(error="flat-fee", fee=3.0),
        currency="EUR",
        scale=4,
    )
    with Book.create(path) as book:
        book.create_federation("net", terms)
        simulate(book, "net", members=50, rounds=ROUNDS, seed=7)
    return path


def test_every_round_sums_to_zero(big):
    raw = sqlite3.connect(big)
    sums = raw.execute("SELECT sequence, sum(amount) FROM entry GROUP BY sequence").fetchall()
    raw.close()
    assert len(sums) == ROUNDS
    assert {total for _, total in sums} == {0}


def test_verify_is_clean(big, exported):
    found = verify(big)
    assert found.ok, found.findings
    assert (found.rounds, found.entries) == (ROUNDS, 50 * ROUNDS)
    with Book.open(big) as book:
        assert found.balances == book.balances("net")
    of_export = verify(exported)
    assert of_export.ok
    assert (of_export.hash, of_export.balances) == (found.hash, found.balances)


def test_an_independent_script_comes_to_the_same_units(big, exported):
    with Book.open(big) as book:
        done = subprocess.run(
            [sys.executable, "-I", "-c", INDEPENDENT, exported],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        again = json.loads(done.stdout)
        assert again == book.balances("net")
        statement = make_statement(book, "net", "m007")
    assert statement.closing == again["m007"]
    assert statement.differing == []
    assert len(statement.lines) == ROUNDS
    assert sum(line.amount for line in statement.lines) == again["m007"]


def test_settling_brings_every_balance_to_zero(big, tmp_path):
    copy = shutil.copy(big, tmp_path / "copy.db")
    with Book.open(copy) as book:
        sequence, _, balances = book.snapshot("net")
        result = settle(balances)
        assert not result.fewest
        assert len(result.transfers) < 50
        book.settle("net", result.transfers, sequence=sequence, reference="s")
        assert set(book.balances("net").values()) == {0}
    assert verify(copy).ok


def test_an_import_is_the_same_book(big, exported, tmp_path):
    with Book.open(big) as book:
        head = book.head("net")
    with Book.create(tmp_path / "copy.db") as copy:
        assert import_book(copy, exported) == ("net", head[0])
        assert import_book(copy, exported) == ("net", 0)
        assert copy.head("net") == head
        copy.post("net", "later", 1, [Report("m001", statistic=1.0)])
    assert verify(tmp_path / "copy.db").ok


def test_an_import_adds_what_is_new_and_refuses_a_fork(small, tmp_path):
    other = shutil.copy(small, tmp_path / "other.db")
    with Book.open(small) as book, Book.open(other) as fork:
        book.post("clinics", "first", 8, norms(1, 2, 3))
        export_book(book, "clinics", tmp_path / "book.jsonl")
        assert import_book(fork, tmp_path / "book.jsonl") == ("clinics", 1)
        assert fork.balances("clinics") == book.balances("clinics")
        fork.post("clinics", "first", 9, norms(1, 2, 3))
        book.post("clinics", "first", 9, norms(3, 2, 1))
        export_book(book, "clinics", tmp_path / "book.jsonl")
        with pytest.raises(ValueError, match="different histories from record 16"):
            import_book(fork, tmp_path / "book.jsonl")
        text = (tmp_path / "book.jsonl").read_text()
        (tmp_path / "book.jsonl").write_text(text.replace("EUR", "USD"))
        with pytest.raises(ValueError, match="is not imported"):
            import_book(fork, tmp_path / "book.jsonl")
    assert verify(other).ok


def test_terms_that_say_what_was_audited_are_exported_verified_and_imported(tmp_path):
    digits = "0123456789abcdef" * 4
    band = ((1, 2), (0.0, 0.5), (1e-9, 2.0))
    audited = Audited(
        "model difference", "FedAvg", "1 epoch", 9, "reported", 2, *band, "north", digits, "verax 0"
    )
    agreed = Terms(
        Price.constant(0.5),
        policy=FailurePolicy(outside="stop"),
        arrays=Arrays(("*.counter",)),
        audited=audited,
    )
    with Book.create(tmp_path / "book.db") as book:
        book.create_federation("clinics", agreed)
        book.post("clinics", "first", 1, norms(4, 1, 1))
        export_book(book, "clinics", tmp_path / "book.jsonl")
    with Book.create(tmp_path / "copy.db") as copy:
        import_book(copy, tmp_path / "book.jsonl")
        assert copy.terms("clinics") == agreed
    for name in ("book.db", "book.jsonl", "copy.db"):
        assert verify(tmp_path / name).ok


def test_a_statement_shows_everything_that_moved_a_balance(small):
    with Book.open(small) as book:
        statement = make_statement(book, "clinics", "North")
        kinds = [line.kind for line in statement.lines]
        assert kinds == ["round"] * 4 + ["deposit", "round", "correction", "round", "round"]
        assert statement.closing == book.balances("clinics")["a"] == statement.lines[-1].balance
        assert statement.opening == 0
        part = make_statement(book, "clinics", "a", run="first", first=2, last=3)
        assert [line.round for line in part.lines] == [2, 3]
        assert part.opening == statement.lines[1].balance - statement.lines[1].amount
        assert part.closing == part.lines[-1].balance == statement.lines[2].balance
        assert (part.between, part.balance) == (0, statement.closing)
        assert f"The balance now is {part.money(part.balance)}" in to_html(part)
        ends = make_statement(book, "clinics", "a", run="first")
        hidden = [x.amount for x in statement.lines if x.kind != "round"]
        assert ends.between == sum(hidden) != 0
        shown = sum(line.amount for line in ends.lines)
        assert ends.opening + shown + ends.between == ends.closing
        nothing = make_statement(book, "clinics", "a", run="never")
        assert (nothing.lines, nothing.opening) == ((), statement.closing)
        assert "No record was found" in to_html(nothing)
        assert "Every charge" not in to_html(nothing)
        with pytest.raises(ValueError, match="first is round 5, after the last, 2"):
            make_statement(book, "clinics", "a", first=5, last=2)
        rows = list(csv.DictReader(io.StringIO(to_csv(statement))))
        assert [int(row["amount"]) for row in rows] == [x.amount for x in statement.lines]
        data = json.loads(json.dumps(to_json(statement)))
        assert data["closing"] == statement.closing
        assert data["differing"] == 0
        page = to_html(statement)
    assert "Statement of North" in page
    assert "Every charge equals" in page


def test_a_statement_shows_a_wrong_charge(small, tmp_path):
    def change(content):
        if content["kind"] == "round" and content["round"] == 1:
            content["amounts"] = [200, -100, -100]

    with Book.open(small) as book:
        wrong = forged(book, "clinics", tmp_path / "wrong.db", change)
    with Book.open(wrong) as book:
        statement = make_statement(book, "clinics", "a")
    assert [(x.round, x.amount, x.recomputed) for x in statement.differing] == [(1, 200, 150)]
    assert "were NOT charged as the terms say" in to_html(statement)
