"""`verax ledger` as a user runs it: exit codes, one line for an error.

In this process, through the command's own entry: starting Python takes longer than any of them.
"""

import io
import json
import sqlite3
import subprocess
import sys
import warnings

import pytest

from verax.ledger.witness import check_presence
from verax.verifier.pack import packed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of typer, about click, while it is loaded
    from verax.cli.ledger import app
    from verax.cli.main import main

TERMS = 'currency = "EUR"\nscale = 2\n[price]\nvalues = 0.5\n'


def line(t, *values, **more):
    reports = [
        {"member": m, "statistic": v}
        for m, v in zip(("north", "south", "west"), values, strict=False)
    ]
    return json.dumps({"run": "first", "round": t, "reports": reports, **more}) + "\n"


@pytest.fixture
def verax(tmp_path, monkeypatch, capsys):
    (tmp_path / "terms.toml").write_text(TERMS)
    (tmp_path / "rounds.jsonl").write_text(line(1, 4.0, 1.0, 1.0) + line(2, 3.0, 2.0, 1.0))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(command, given=None, code=0):
        monkeypatch.setattr("sys.argv", ["verax", "ledger", *command.split()])
        monkeypatch.setattr("sys.stdin", io.StringIO(given or ""))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert ended.value.code == code, (out, err)
        if code == 2:
            assert len(err.splitlines()) == 1
            assert err.startswith("verax: ")
            return err
        assert err == ""
        return json.loads(out) if "--json" in command else out

    run.folder = tmp_path
    return run


@pytest.fixture
def book(verax):
    verax("create book.db --federation clinics --terms terms.toml")
    verax("post book.db --file rounds.jsonl")
    return verax


def test_from_creation_to_settlement(book):
    verax = book
    assert "had it already" in verax("create book.db --federation clinics --terms terms.toml")
    assert "0 rounds booked, 2 were" in verax("post book.db --file rounds.jsonl")
    owed = verax("balances book.db --json")
    assert owed["balances"] == {"north": 225, "south": -75, "west": -150}
    assert [row["round"] for row in verax("rounds book.db --json")] == [1, 2]
    plan = verax("settle book.db --json")
    assert plan["fewest"]
    assert not plan["committed"]
    assert verax("balances book.db --json") == owed
    assert verax("settle book.db --commit --json")["committed"]
    assert set(verax("balances book.db --json")["balances"].values()) == {0}
    assert verax("verify book.db --json")["ok"]


def test_export_checkpoint_import_verify(book):
    verax = book
    said = verax("checkpoint book.db --out may.note --key operator.pem --new-key")
    key = said.split()[-1]
    assert (verax.folder / "operator.pem").stat().st_mode & 0o077 == 0
    assert "operator.pem" in verax("checkpoint book.db --key operator.pem --new-key", code=2)
    verax("export book.db --out all.jsonl")
    found = verax(f"verify all.jsonl --checkpoint may.note --signer {key} --json")
    assert (found["ok"], found["checkpoints"]) == (True, 1)
    assert verax("import copy.db all.jsonl --json") == {"federation": "clinics", "new": 6}
    assert verax("verify copy.db --json")["hash"] == found["hash"]
    text = (verax.folder / "all.jsonl").read_text()
    (verax.folder / "all.jsonl").write_text(text.replace("4.0", "5.0"))
    assert "WRONG (payment)" in verax("verify all.jsonl", code=1)
    assert "is not imported" in verax("import other.db all.jsonl", code=2)
    (verax.folder / "verify.py").write_text(packed())
    alone = subprocess.run(  # the verifier's file and Python, nothing else
        [sys.executable, "-I", "-S", verax.folder / "verify.py", verax.folder / "all.jsonl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert alone.returncode == 1
    assert "WRONG (payment)" in alone.stdout


@pytest.mark.parametrize(
    ("mine", "code", "words"),
    [
        ([(1, 1.0), (2, 2.0)], 0, "nothing wrong"),
        ([(1, 1.0), (2, 2.000001)], 0, "nothing wrong"),
        ([(1, 1.0), (2, 2.5)], 1, "the book says 2.0, mine.jsonl says 2.5"),
        ([(1, 1.0)], 1, "round 2 of run 'first': in the book but not in mine.jsonl"),
        ([(1, 1.0), (2, 2.0), (3, 1.0)], 1, "in mine.jsonl but not in the book"),
    ],
)
def test_a_members_own_record(book, mine, code, words):
    rows = [json.dumps({"run": "first", "round": t, "norm": v}) + "\n" for t, v in mine]
    (book.folder / "mine.jsonl").write_text("".join(rows))
    assert words in book("verify book.db --mine mine.jsonl --member south", code=code)
    assert "whose record" in book("verify book.db --mine mine.jsonl", code=2)
    assert "in no round" in book("verify book.db --mine mine.jsonl --member x", code=1)


def test_own_record_sees_weights_and_statuses(verax):
    verax("create book.db --federation clinics --terms terms.toml")
    reports = [
        {"member": "north", "statistic": 4.0 * 0.25, "weight": 0.5},
        {"member": "south", "statistic": 1.0 * 2.25, "weight": 1.5},
        {"member": "west", "status": "missing"},
    ]
    verax("post book.db", json.dumps({"run": "first", "round": 1, "reports": reports}))
    (verax.folder / "mine.jsonl").write_text('{"run": "first", "round": 1, "norm": 4.0}\n')
    verax("verify book.db --mine mine.jsonl --member north")
    assert "the book says 2.25" in verax("verify book.db --mine mine.jsonl --member south", code=1)
    assert "says missing" in verax("verify book.db --mine mine.jsonl --member west", code=1)
    (verax.folder / "mine.jsonl").write_text('{"run": "first", "norm": 4.0}\n')
    assert "line 1: must be" in verax("verify book.db --mine mine.jsonl --member north", code=2)


def test_a_statement_says_what_the_model_is_worth_to_the_member(verax):
    """Terms with a worth are charged by, verified and shown; a member sees its own number."""
    members = 'members = ["south", "north", "west"]\nworth = [8000, 12000.5, 5000]\n'
    (verax.folder / "terms.toml").write_text(members + TERMS)
    verax("create book.db --federation clinics --terms terms.toml")
    for member in ("north", "south", "west"):
        verax(f"join book.db {member}")
    verax("post book.db --file rounds.jsonl")
    assert verax("verify book.db --json")["ok"]
    assert verax("statement book.db south --json")["worth"] == 8000
    said = "The terms take a unit of the reward to be worth 12,000.5 EUR to this member."
    assert said in verax("statement book.db north")
    assert said in verax("statement book.db north --format html")


def test_a_statement_is_silent_where_the_terms_are(book):
    assert book("statement book.db north --json")["worth"] is None
    assert "to be worth" not in book("statement book.db north")


def test_statements(book):
    text = book("statement book.db north")
    assert "Every charge equals the one recomputed" in text
    assert "2.25" in text
    assert book("statement book.db north --json")["closing"] == 225
    assert book("statement book.db north --format csv").startswith("sequence,time,kind,run,round")
    book("statement book.db north --format html --out north.html")
    assert (book.folder / "north.html").read_text().startswith("<!doctype html>")
    book("statement book.db north --out north.txt")
    assert "recomputed" in (book.folder / "north.txt").read_text()
    assert "must be text" in book("statement book.db north --format pdf", code=2)
    assert "not a member" in book("statement book.db nobody", code=2)


def test_limits_deposits_corrections_terms_members(book):
    assert "no debt exceeds" in book("watch book.db")
    book("limit book.db 2.00")
    assert "north" in book("watch book.db", code=1)
    assert book("limit book.db none --json")["posted"]
    book("watch book.db")
    book("limit book.db 2.00 --member north")
    assert book("deposit book.db north 0.25 --json")["amounts"] == {"escrow": 25, "north": -25}
    assert book("watch book.db --json") == []
    assert "2 decimal places" in book("deposit book.db north 0.255", code=2)
    assert "must be a number" in book("deposit book.db north much", code=2)
    book("correct book.db --reason typo --entry north=-0.10 --entry south=0.10")
    assert "MEMBER=AMOUNT" in book("correct book.db --reason typo --entry north", code=2)
    (book.folder / "new.toml").write_text(TERMS.replace("0.5", "1.0"))
    book("terms book.db --terms new.toml --from-round 3")
    assert [row["from_round"] for row in book("terms book.db --json")] == [1, 3]
    assert "values = 1.0" in book("terms book.db")
    book("join book.db key-4 --label East")
    book("leave book.db East --from-round 9")
    assert book("verify book.db --json")["ok"]


def test_posting_from_standard_input_and_what_is_refused(book):
    row = book("post book.db --json", line(3, 1.0, 2.0))
    assert row["amounts"] == {"north": -50, "south": 50}
    for given, words in [
        (line(1, 9.0, 1.0, 1.0), "line 1: round 1 of run 'first' is in the book with other"),
        ("{", "line 1: not JSON"),
        ("[]", 'needs "run"'),
        (line(4, 1.0) + '{"run": 1}', "line 2: a round needs"),
        (line(5, 1.0, colour="red"), "'colour' is no field"),
        ('{"run": "a", "round": 1, "reports": [{"norm": 1}]}', "a report is an object"),
        ('{"run": "a", "round": 1, "reports": [{"member": "x", "statistic": "1"}]}', "numbers"),
        ('{"run": "a", "round": "1", "reports": []}', "whole number"),
        ('{"run": "a", "round": 1, "reports": [{"member": 5, "statistic": 1}]}', "text"),
    ]:
        assert words in book("post book.db", given, code=2)
    assert [row["round"] for row in book("rounds book.db --json")] == [1, 2, 3, 4]


def test_the_export_of_an_odd_name_stays_in_the_folder(verax):
    verax("create book.db --federation ../../outside --terms terms.toml")
    before = set(verax.folder.parent.iterdir())
    assert verax("export book.db --json")["file"] == "outside.jsonl"
    assert (verax.folder / "outside.jsonl").exists()
    assert set(verax.folder.parent.iterdir()) == before


def test_which_federation(book):
    book("create book.db --federation banks --terms terms.toml")
    assert "holds 'banks', 'clinics'" in book("balances book.db", code=2)
    assert book("balances book.db --federation clinics --json")["federation"] == "clinics"
    assert book("verify book.db").count("nothing wrong found") == 2
    assert "'schools' is not in the book" in book("rounds book.db --federation schools", code=2)


def test_a_price_is_enough_to_begin(verax):
    verax("create book.db --federation clinics --price 0.5 --currency EUR --scale 2")
    assert verax("post book.db --json", line(1, 4.0, 1.0, 1.0))["amounts"]["north"] == 150
    assert "must be at most 9.22337e+12" in verax(
        "create book.db --federation banks --price 1e300", code=2
    )
    assert "must be a finite number" in verax(
        "create book.db --federation banks --price nan", code=2
    )
    (verax.folder / "dear.toml").write_text(TERMS.replace("0.5", "1e300"))
    assert "must be at most" in verax("terms book.db --terms dear.toml --from-round 9", code=2)
    beyond = "terms book.db --terms terms.toml --from-round 99999999999999999999"
    assert "must be a whole number in 1 … 9223372036854775807" in verax(beyond, code=2)
    both = "--price 1 --terms terms.toml"
    for options in ("", both):
        assert "either" in verax(f"create book.db --federation banks {options}", code=2)


def test_missing_books_and_terms(verax):
    assert "verax ledger create" in verax("balances nothing.db", code=2)
    assert "nothing.db" in verax("verify nothing.db", code=2)
    assert "none.toml" in verax("create b.db --federation x --terms none.toml", code=2)
    assert not (verax.folder / "b.db").exists()


def test_help_lists_every_command(verax):
    commands = {each.name or each.callback.__name__ for each in app.registered_commands}
    wanted = "create post rounds balances statement settle verify export checkpoint import watch"
    assert set(wanted.split()) <= commands
    text = verax("--help")
    for name in commands:
        assert f" {name} " in text


def test_without_the_extra_the_command_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from verax.cli.main import main\n"
        "sys.argv = ['verax', 'ledger', 'balances', 'x.db']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install '.[ledger]'" in done.stderr


def test_the_command_line_loads_no_database():
    code = (
        "import sys; import verax.cli.main; "
        "sys.exit(bool({'sqlalchemy', 'alembic', 'psycopg', 'cryptography'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_references_backup_and_rebuild(book):
    assert book("deposit book.db north 5 --reference bank-17 --json")["posted"]
    assert not book("deposit book.db north 5 --reference bank-17 --json")["posted"]
    assert "other content" in book("deposit book.db north 6 --reference bank-17", code=2)
    assert "copy.db" in book("backup book.db copy.db")
    assert "exists already" in book("backup book.db copy.db", code=2)
    assert book("verify copy.db --json")["hash"] == book("verify book.db --json")["hash"]
    with sqlite3.connect(book.folder / "book.db") as raw:
        raw.execute("UPDATE entry SET amount = amount + 1 WHERE sequence = 5 AND account = 1")
    raw.close()
    for command in ("balances", "settle", "statement book.db north --json"):
        name, *rest = command.split()
        said = book(" ".join([name, *(rest or ["book.db"])]), code=2)
        assert "differ from its records" in said
    assert "WRONG (entry)" in book("verify book.db", code=1)
    assert "anew" in book("rebuild book.db")
    assert book("balances book.db --json") == book("balances copy.db --json")
    assert book("verify book.db --json")["ok"]


def test_decisions_are_always_listed(book):
    book("deposit book.db north 5 --reason cash")
    book("correct book.db --reason typo --entry north=-0.10 --entry south=0.10")
    book("post book.db", line(4, 1.0, 2.0))
    said = book("verify book.db")
    assert "DECISION (deposit): record 7: deposit" in said
    assert "north -10, south +10 (typo)" in said
    assert "DECISION (skipped): run 'first' has no rounds 3 to 3" in said
    kinds = [each["kind"] for each in book("verify book.db --json")["decisions"]]
    assert kinds == ["deposit", "correction", "skipped"]


def test_a_witness_that_is_asked_again_gives_the_same_signature(book, monkeypatch):
    """Signatures draw the rounds of spot checks: another one would be another draw."""
    book("checkpoint book.db --out may.note --key operator.pem --new-key")
    words = "witness book.db --checkpoint may.note --key me.pem --name north --seen seen.note"
    book(f"{words} --out first.note --new-key")
    monkeypatch.setattr("time.time", lambda: 2e9)
    book(f"{words} --out second.note")
    first, second = ((book.folder / f"{name}.note").read_text() for name in ("first", "second"))
    assert first == second


def test_witnesses_prove_and_compare(book):
    book("checkpoint book.db --out may.note --key operator.pem --new-key")
    book("export book.db --out all.jsonl")
    sign = "--key me.pem --name north --seen seen.note --out signed.note"
    said = book(f"witness all.jsonl --checkpoint may.note {sign} --new-key")
    key = said.split()[-1]
    assert key.startswith("north+")
    assert book(f"verify book.db --checkpoint signed.note --witness {key} --json")["ok"]
    assert "not signed by the witness" in book(
        f"verify book.db --checkpoint may.note --witness {key}", code=1
    )
    assert "no valid signature of a witness" in book("checkpoint book.db --add signed.note", code=2)
    book("post book.db", line(3, 1.0, 2.0))
    book("checkpoint book.db --out june.note --key operator.pem")
    book("prove book.db --checkpoint june.note --since 6 --out growth.txt")
    book(f"witness growth.txt {sign}")
    assert (book.folder / "seen.note").read_text() == (book.folder / "signed.note").read_text()
    text = book("prove book.db --checkpoint june.note --record 5")
    assert check_presence(text)[0] == 5
    assert "must be 1 … 7" in book("prove book.db --checkpoint june.note --record 9", code=2)
    assert "the same book" in book("compare book.db all.jsonl")
    assert book("compare book.db june.note --json")["same"]
    book("create other.db --federation clinics --terms terms.toml")
    book("post other.db", line(1, 4.0, 1.0, 2.0))
    assert "SPLIT VIEW" in book("compare book.db other.db", code=1)
    assert book("compare other.db may.note --json", code=1)["differs"] == 6


def test_terms_of_the_documents_name_real_keys(book):
    """What `witness` prints can stand in terms, and its signature is then booked."""
    book("checkpoint book.db --out may.note --key operator.pem --new-key")
    sign = "--key me.pem --name north --seen seen.note --out signed.note"
    key = book(f"witness book.db --checkpoint may.note {sign} --new-key").split()[-1]
    changes = f'[changes]\nnotice_rounds = 5\nwitnesses = ["{key}"]\nquorum = 1\n'
    (book.folder / "watched.toml").write_text(TERMS + changes)
    book("create watched.db --federation clinics --terms watched.toml")
    book("post watched.db --file rounds.jsonl")
    assert "needs 1 of 1 witnesses" in book("settle watched.db --commit", code=2)
    book("checkpoint watched.db --out may.note --key operator.pem")
    (book.folder / "seen.note").unlink()
    book(f"witness watched.db --checkpoint may.note {sign}")
    assert "record 7" in book("checkpoint watched.db --add signed.note")
    assert book("settle watched.db --commit --json")["committed"]
    assert book("verify watched.db --json")["ok"]


def test_keys_are_created_printed_and_booked(verax):
    key = verax("key north.pem").strip()
    assert verax("key north.pem").strip() == key, "an existing key is not replaced"
    assert (verax.folder / "north.pem").stat().st_mode & 0o077 == 0
    operator = verax("key operator.pem --name operator").strip()
    assert operator.startswith("operator+")
    verax("create book.db --federation clinics --price 0.5")
    verax(f"join book.db north --key {key}")
    assert "had it already" in verax(f"join book.db north --key {key}")
    assert "another member's" in verax(f"join book.db south --key {key}", code=2)
    assert "32 bytes in base64" in verax("join book.db west --key x", code=2)
    (verax.folder / "none.pem").write_text("nothing")
    assert "no Ed25519 private key" in verax("key none.pem", code=2)
