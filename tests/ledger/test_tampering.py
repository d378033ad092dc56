"""Forged books: every kind of tampering that we could think of; each is found or refused.

The last test prints how many kinds were tried.
"""

import ast
import json
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import forgeries
import psycopg
import pytest
from books import fill, norms, stored, stored_in_postgresql
from forgeries import CLOSED, OPEN, chained, export_bytes, signed

import verax.verifier
from verax.ledger import Book, BookError
from verax.ledger.export import export_book, import_book
from verax.ledger.notes import OPERATOR, public_key
from verax.ledger.witness import compare, make_checkpoint, read_log
from verax.verifier import verify

RECORDS = {f"{name} ({book})": (book, *row) for book, table in (("open", OPEN), ("closed", CLOSED))
           for name, row in table.items()}  # fmt: skip


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """The two books, as files and as contents of records."""
    folder = tmp_path_factory.mktemp("originals")
    forgeries.open_book(folder / "open.db")
    forgeries.closed_book(folder / "closed.db")
    return {
        name: (folder / f"{name}.db", federation,
               forgeries.contents(folder / f"{name}.db", federation, folder))
        for name, federation in (("open", "clinics"), ("closed", "banks"))
    }  # fmt: skip


def forged_lines(originals, kind):
    book, forge, called = RECORDS[kind]
    _, federation, contents = originals[book]
    records = json.loads(json.dumps(contents))
    forge(records)
    return federation, chained(records), called


@pytest.mark.parametrize("book", ["open", "closed"])
def test_the_books_are_right_before_they_are_forged(originals, tmp_path, book):
    path, federation, contents = originals[book]
    found = verify(path)
    assert found.ok, found.findings
    export = tmp_path / "export.jsonl"
    export.write_bytes(export_bytes(chained(json.loads(json.dumps(contents)))))
    assert verify(export).ok, verify(export).findings
    with Book.create(tmp_path / "copy.db") as copy:
        assert import_book(copy, export) == (federation, len(contents))


@pytest.mark.parametrize("kind", RECORDS)
def test_forged_records_are_found_in_exports_and_not_imported(originals, tmp_path, kind):
    _, lines, called = forged_lines(originals, kind)
    export = tmp_path / "export.jsonl"
    export.write_bytes(export_bytes(lines))
    found = verify(export)
    assert called in {each.kind for each in found.findings}, found.findings
    assert not found.ok
    with Book.create(tmp_path / "copy.db") as copy, pytest.raises(BookError, match="not imported"):
        import_book(copy, export)


@pytest.mark.parametrize("kind", RECORDS)
def test_forged_records_are_found_in_sqlite(originals, tmp_path, kind):
    federation, lines, called = forged_lines(originals, kind)
    path = stored(tmp_path / "book.db", federation, lines)
    assert called in {each.kind for each in verify(path).findings}


@pytest.fixture
def postgres_book(new_postgres, originals):
    """The open book on PostgreSQL, and somebody who may do anything in its database."""
    url = new_postgres()
    with Book.open(url) as book:
        fill(book)
    assert verify(url).ok
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        yield url, connection


@pytest.fixture(scope="module")
def empty_postgres(postgres):
    """A book on PostgreSQL, and a connection that empties and fills it."""
    url = postgres()
    Book.create(url).close()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        yield url, connection


@pytest.mark.parametrize("kind", RECORDS)
def test_forged_records_are_found_in_postgresql(originals, empty_postgres, kind):
    federation, lines, called = forged_lines(originals, kind)
    url, connection = empty_postgres
    stored_in_postgresql(connection, federation, lines)
    assert called in {each.kind for each in verify(url).findings}


SQLITE = {  # what somebody does who may write to the file; None: the book is not opened at all
    "content": ("UPDATE record SET content = CAST(replace(content, '4.0', '5.0') AS BLOB) "
                "WHERE sequence = 5", "chain"),
    "content as text": ("UPDATE record SET content = CAST(content AS TEXT)", "form"),
    "content of another record": ("UPDATE record SET content = (SELECT content FROM record "
                                  "WHERE sequence = 7) WHERE sequence = 6", "missing"),
    "a record is removed": ("DELETE FROM record WHERE sequence = 7", "missing"),
    "the first record is removed": ("DELETE FROM record WHERE sequence = 1", "missing"),
    "the last record is removed": ("DELETE FROM record WHERE sequence = 14", "missing"),
    "the last record and its entries": ("DELETE FROM record WHERE sequence = 14; "
                                        "DELETE FROM entry WHERE sequence = 14", "missing"),
    "all records": ("DELETE FROM record", "missing"),
    "a record at another place": ("UPDATE record SET sequence = 500 WHERE sequence = 7", "missing"),
    "a record before the first": ("UPDATE record SET sequence = -1 WHERE sequence = 7", "column"),
    "two records change places": ("UPDATE record SET sequence = 99 WHERE sequence = 6; "
                                  "UPDATE record SET sequence = 6 WHERE sequence = 7; "
                                  "UPDATE record SET sequence = 7 WHERE sequence = 99", "missing"),
    "a record twice": ("INSERT INTO record SELECT 1, 15, content FROM record WHERE sequence = 8",
                       "added"),
    "a record of another federation": ("INSERT INTO record SELECT 7, 1, content FROM record "
                                       "WHERE sequence = 8", "entry"),
    "the head set back": ("UPDATE federation SET sequence = 13", "missing"),
    "the head set forward": ("UPDATE federation SET sequence = 15", "missing"),
    "the head's hash": ("UPDATE federation SET hash = '00'", "missing"),
    "the head as text": ("UPDATE federation SET sequence = 'fourteen'", "missing"),
    "the federation's name": ("UPDATE federation SET name = 'banks'", "chain"),
    "an amount": ("UPDATE entry SET amount = amount + 1 WHERE sequence = 6 AND account = 1",
                  "entry"),
    "two amounts, balanced": ("UPDATE entry SET amount = amount + 3 - 2 * account "
                              "WHERE sequence = 6 AND account < 3", "entry"),
    "amounts that change places": ("UPDATE entry SET amount = -amount WHERE sequence = 6", "entry"),
    "an amount as text": ("UPDATE entry SET amount = 'much' WHERE sequence = 6 AND account = 1",
                          "entry"),
    "an amount as a real": ("UPDATE entry SET amount = amount + 0.5 WHERE sequence = 6 "
                            "AND account = 1", "entry"),
    "an amount as bytes": ("UPDATE entry SET amount = CAST(amount AS BLOB) WHERE sequence = 6",
                           "entry"),
    "an account as text": ("UPDATE entry SET account = 'a' WHERE sequence = 6 AND account = 1",
                           "entry"),
    "an entry is removed": ("DELETE FROM entry WHERE sequence = 6 AND account = 1", "entry"),
    "all entries": ("DELETE FROM entry", "entry"),
    "an entry of another account": ("UPDATE entry SET account = 9 WHERE sequence = 6 "
                                    "AND account = 1", "entry"),
    "an entry of another record": ("UPDATE entry SET sequence = 2 WHERE sequence = 6", "entry"),
    "an entry is added": ("INSERT INTO entry VALUES (1, 2, 1, 50)", "entry"),
    "an entry of nothing": ("INSERT INTO entry VALUES (1, 2, 1, 0)", "entry"),
    "an entry of no record": ("INSERT INTO entry VALUES (1, 99, 1, 5)", "entry"),
    "an entry before the first": ("INSERT INTO entry VALUES (1, -5, 1, 5)", "entry"),
    "an entry of no federation": ("INSERT INTO entry VALUES (7, 1, 1, 5)", "entry"),
    "a label": ("UPDATE account SET label = 'me' WHERE account = 2", "account"),
    "a member": ("UPDATE account SET member = 'evil' WHERE account = 2", "account"),
    "an account too many": ("INSERT INTO account VALUES (1, 9, 'ghost', 'ghost')", "account"),
    "an account too few": ("DELETE FROM account WHERE account = 3", "account"),
    "a view in place of the records": (
        "ALTER TABLE record RENAME TO hidden; CREATE VIEW record AS SELECT * FROM hidden", None),
    "a view in place of the entries": (
        "ALTER TABLE entry RENAME TO hidden; "
        "CREATE VIEW entry AS SELECT federation, sequence, account, -amount AS amount FROM hidden",
        None),
    "a view beside the tables": ("CREATE VIEW balances AS SELECT 1", None),
    "a trigger": ("CREATE TRIGGER t AFTER INSERT ON entry BEGIN "
                  "UPDATE entry SET amount = 0 WHERE account = 1; END", None),
    "a table too many": ("CREATE TABLE extra (x)", None),
    "a table too few": ("DROP TABLE entry", None),
    "a column too many": ("ALTER TABLE entry ADD COLUMN note TEXT", None),
    "a column of another name": ("ALTER TABLE entry RENAME COLUMN amount TO sum", None),
    "an index": ("CREATE INDEX i ON entry (account)", None),
    "a table without its types": (
        "ALTER TABLE entry RENAME TO old; CREATE TABLE entry AS SELECT * FROM old; DROP TABLE old",
        None),
    "another schema": ("UPDATE verax_schema SET number = 3", None),
    "two schemas": ("INSERT INTO verax_schema VALUES (2)", None),
}  # fmt: skip


def refused_or_found(source, called):
    """What is not accepted: by the verifier, and by whoever opens the book to read or to write."""
    if called is None:
        with pytest.raises((ValueError, OSError)):
            verify(source)
        with pytest.raises((BookError, OSError)):
            Book.open(source)
        return
    found = verify(source)
    assert called in {each.kind for each in found.findings}, found.findings


@pytest.mark.parametrize("kind", SQLITE)
def test_tampering_with_a_sqlite_book(small, kind):
    statements, called = SQLITE[kind]
    with closing(sqlite3.connect(small, isolation_level=None)) as raw:
        raw.executescript(statements)
    refused_or_found(small, called)
    if called is not None and kind not in HARMLESS:  # nor are balances taken from it
        with pytest.raises((BookError, OSError)), Book.open(small) as book:
            book.balances("clinics")


#: Rows that belong to nobody, or to a place that the chain does not reach, change no balance.
HARMLESS = {
    "an entry of nothing",
    "an entry of no federation",
    "a record of another federation",
    "a record twice",
    "an entry of another record",
}


POSTGRES = {
    "content": ("UPDATE verax.record SET content = content || ' ' WHERE sequence = 5", "chain"),
    "a record is removed": ("DELETE FROM verax.record WHERE sequence = 7", "missing"),
    "the last record is removed": ("DELETE FROM verax.record WHERE sequence = 14", "missing"),
    "the head set back": ("UPDATE verax.federation SET sequence = 13", "missing"),
    "the head's hash": ("UPDATE verax.federation SET hash = ''", "missing"),
    "an amount": ("UPDATE verax.entry SET amount = amount + 1 WHERE sequence = 6 AND account = 1",
                  "entry"),
    "an entry is removed": ("DELETE FROM verax.entry WHERE sequence = 6", "entry"),
    "an entry of no record": ("INSERT INTO verax.entry VALUES (1, 99, 1, 5)", "entry"),
    "a label": ("UPDATE verax.account SET label = 'me' WHERE account = 2", "account"),
    "a view in place of the records": (
        "ALTER TABLE verax.record RENAME TO hidden; "
        "CREATE VIEW verax.record AS SELECT * FROM verax.hidden", None),
    "a view beside the tables": ("CREATE VIEW verax.balances AS SELECT 1 AS x", None),
    "a materialised view": ("CREATE MATERIALIZED VIEW verax.m AS SELECT 1 AS x", None),
    "a trigger": (
        "CREATE FUNCTION verax.f() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.amount := 0; RETURN NEW; END'; "
        "CREATE TRIGGER t BEFORE INSERT ON verax.entry FOR EACH ROW EXECUTE FUNCTION verax.f()",
        None),
    "a rule": ("CREATE RULE r AS ON DELETE TO verax.entry DO INSTEAD NOTHING", None),
    "rows that are hidden": ("ALTER TABLE verax.record ENABLE ROW LEVEL SECURITY", None),
    "a table that inherits": ("CREATE TABLE verax.more () INHERITS (verax.entry)", None),
    "a table too many": ("CREATE TABLE verax.extra (x int)", None),
    "a table too few": ("DROP TABLE verax.account", None),
    "a column too many": ("ALTER TABLE verax.entry ADD COLUMN note text", None),
    "amounts as text": (
        "ALTER TABLE verax.entry ALTER COLUMN amount TYPE text", None),
    "amounts as reals": (
        "ALTER TABLE verax.entry ALTER COLUMN amount TYPE double precision", None),
    "content as text": (
        "ALTER TABLE verax.record ALTER COLUMN content TYPE text USING encode(content, 'escape')",
        None),
    "amounts that may be missing": (
        "ALTER TABLE verax.entry ALTER COLUMN amount DROP NOT NULL", None),
    "records without their key": ("ALTER TABLE verax.record DROP CONSTRAINT record_pkey", None),
    "names that may stand twice": (
        "ALTER TABLE verax.federation DROP CONSTRAINT federation_name_key", None),
    "a key of fewer columns": (
        "ALTER TABLE verax.record DROP CONSTRAINT record_pkey, ADD PRIMARY KEY (sequence)", None),
    "a key that is checked later": (
        "ALTER TABLE verax.entry DROP CONSTRAINT entry_pkey, "
        "ADD PRIMARY KEY (federation, sequence, account) DEFERRABLE INITIALLY DEFERRED", None),
    "an index of an expression": ("CREATE INDEX i ON verax.entry ((-amount))", None),
    "an index of some rows": (
        "CREATE UNIQUE INDEX i ON verax.record (sequence) WHERE federation = 1", None),
    "a condition on amounts": ("ALTER TABLE verax.entry ADD CHECK (amount < 1000000)", None),
    "a reference to another table": (
        "ALTER TABLE verax.entry ADD FOREIGN KEY (federation) REFERENCES verax.federation "
        "ON DELETE CASCADE", None),
    "a default amount": ("ALTER TABLE verax.entry ALTER COLUMN amount SET DEFAULT 0", None),
    "accounts that number themselves": (
        "ALTER TABLE verax.account ALTER COLUMN account ADD GENERATED ALWAYS AS IDENTITY", None),
    "names in another order": (
        'ALTER TABLE verax.account ALTER COLUMN label TYPE text COLLATE pg_catalog."C"', None),
    "records that a crash loses": ("ALTER TABLE verax.record SET UNLOGGED", None),
    "another schema": ("UPDATE verax.verax_schema SET number = 3", None),
}  # fmt: skip


@pytest.mark.parametrize("kind", POSTGRES)
def test_tampering_with_a_postgres_book(postgres, kind):
    url = postgres()
    statements, called = POSTGRES[kind]
    with Book.create(url) as book:
        fill(book)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements.split("; ") if "FUNCTION" not in statements else [statements]:
            connection.execute(statement)
    refused_or_found(url, called)


def test_a_search_path_redirects_nobody(postgres):
    """Tables of the same names, and functions in place of PostgreSQL's own, are not looked at."""
    url = postgres()
    with Book.create(url) as book:
        fill(book)
        before = book.balances("clinics")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute("CREATE SCHEMA evil")
        for table in ("record", "entry", "account", "federation", "verax_schema"):
            connection.execute(f"CREATE TABLE evil.{table} AS SELECT * FROM verax.{table}")
        connection.execute("UPDATE evil.entry SET amount = 0")
        connection.execute(
            "CREATE FUNCTION evil.sum_of(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'"
        )
        connection.execute("CREATE AGGREGATE evil.sum(bigint) (SFUNC = int8pl, STYPE = bigint)")
        connection.execute(f"ALTER DATABASE {name} SET search_path = evil, verax, pg_catalog")
    found = verify(url)
    assert found.ok
    with Book.open(url) as book:
        assert book.balances("clinics") == before == found.balances


def edited(line, **changes):
    return json.dumps(json.loads(line) | changes).encode() + b"\n"


LINES = {  # an export, line by line
    "a line is changed": (lambda x: [x[0].replace(b"EUR", b"USD"), *x[1:]], "chain"),
    "a line is removed": (lambda x: [*x[:6], *x[7:]], "missing"),
    "a line twice": (lambda x: [*x[:7], *x[6:]], "added"),
    "two lines change places": (lambda x: [*x[:5], x[6], x[5], *x[7:]], "missing"),
    "the end is missing": (lambda x: x[:-1], "missing"),
    "the last record is missing": (lambda x: [*x[:-2], x[-1]], "missing"),
    "cut in the middle of a line": (lambda x: [*x[:-1], x[-1][:-20]], "missing"),
    "cut in the middle of a record": (lambda x: [*x[:-2], x[-2][:-20]], "missing"),
    "something after the end": (lambda x: [*x, x[-2]], "added"),
    "two ends": (lambda x: [*x, x[-1]], "added"),
    "an end in the middle": (lambda x: [*x[:5], x[-1], *x[5:]], "added"),
    "the root in the end": (lambda x: [*x[:-1], edited(x[-1], root="AAAA")], "missing"),
    "the hash in the end": (lambda x: [*x[:-1], edited(x[-1], hash="0" * 64)], "missing"),
    "the size in the end": (lambda x: [*x[:-1], edited(x[-1], end=13)], "missing"),
    "more in the end": (lambda x: [*x[:-1], edited(x[-1], bonus=1)], "missing"),
    "an empty line": (lambda x: [*x[:3], b"\n", *x[3:]], "form"),
    "bytes that are no text": (lambda x: [*x[:-2], b"\xff\xfe\n", x[-1]], "form"),
    "another encoding": (lambda x: [line.decode().encode("utf-16") for line in x], "form"),
    "nothing at all": (lambda x: [], "missing"),
    "only the end": (lambda x: x[-1:], "missing"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LINES)
def test_forged_exports_are_found_and_not_imported(small, tmp_path, kind):
    path = tmp_path / "export.jsonl"
    with Book.open(small) as book:
        export_book(book, "clinics", path)
    change, called = LINES[kind]
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    assert called in {each.kind for each in verify(path).findings}, verify(path).findings
    with Book.create(tmp_path / "copy.db") as copy, pytest.raises(BookError, match="not imported"):
        import_book(copy, path)


REWRITTEN = {  # consistent in itself: only a checkpoint, or somebody with another copy, shows it
    "the last record never was": forgeries.drop(14),
    "a round never was": forgeries.drop(8),
    "the last records never were": forgeries.drop(12, 13, 14),
    "a deposit was larger": forgeries.put(9, amounts=[5000, -5000]),
    "a deposit had another reason": forgeries.put(9, reason="none of your business"),
    "a correction was of others": forgeries.put(12, accounts=[1, 3]),
    "a round was of another run": forgeries.put(8, run="other", round=1),
    "a record was booked earlier": forgeries.put(9, time="2020-01-01T00:00:00Z"),
    "a member had another label": forgeries.put(2, label="Nord"),
    "a deposit was never made": forgeries.drop(9),
}


@pytest.fixture
def kept(small, tmp_path):
    """What a member kept when the book had 14 records."""
    path = tmp_path / "kept.note"
    note = make_checkpoint(read_log(small), "operator", forgeries.OPERATOR_KEY)
    path.write_text(str(signed(note, "north")))
    return path, str(public_key(forgeries.OPERATOR_KEY, "operator", OPERATOR))


@pytest.mark.parametrize("kind", REWRITTEN)
def test_rewritten_history_is_found_by_a_checkpoint(small, tmp_path, kept, kind):
    records = forgeries.contents(small, "clinics", tmp_path)
    REWRITTEN[kind](records)
    export = tmp_path / "export.jsonl"
    export.write_bytes(export_bytes(chained(records)))
    assert verify(export).ok, "otherwise the forgery is no good"
    assert {each.kind for each in verify(export, checkpoints=[kept[0]]).findings} == {"fork"}
    mine, theirs = read_log(small), read_log(export)
    split = compare(mine, theirs)
    assert split is not None or len(theirs.leaves) < len(mine.leaves)


def test_a_whole_other_book_is_found_by_a_checkpoint(tmp_path, kept):
    other = tmp_path / "other.db"
    with Book.create(other) as book:
        fill(book, third=6)
    assert verify(other).ok
    assert [f.kind for f in verify(other, checkpoints=[kept[0]]).findings] == ["fork"]


def test_a_book_that_only_grew_passes(small, kept):
    path, key = kept
    with Book.open(small) as book:
        book.post("clinics", "first", 8, norms(1, 2, 3))
    found = verify(small, checkpoints=[path], signer=key, witnesses=[forgeries.KEYS[0]])
    assert found.ok
    assert (found.checkpoints, found.sequence) == (1, 15)


NOTES = {
    "another root": (lambda x: x.replace(x.split("\n")[2], "A" * 43 + "="), "fork"),
    "another size": (lambda x: x.replace("\n14\n", "\n13\n"), "signature"),
    "a size of the future": (lambda x: x.replace("\n14\n", "\n99\n"), "fork"),
    "another book": (lambda x: x.replace("verax/", "verax/0"), "fork"),
    "no signature": (lambda x: x.split("—")[0], "checkpoint"),
    "the operator's signature left out": (
        lambda x: "\n".join(y for y in x.split("\n") if "operator" not in y), "signature"),
    "the witness's signature left out": (
        lambda x: "\n".join(y for y in x.split("\n") if "north" not in y), "signature"),
    "a signature of nothing": (lambda x: x.split("—")[0] + "— operator AAAAAAA=\n", "signature"),
    "signatures with exchanged names": (
        lambda x: x.replace("operator", "n").replace("north", "operator").replace("— n", "— north"),
        "signature"),
    "nothing": (lambda x: "", "checkpoint"),
    "no text": (lambda x: "\x00\x01", "checkpoint"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NOTES)
def test_forged_checkpoints_are_found(small, kept, kind):
    path, key = kept
    change, called = NOTES[kind]
    path.write_text(change(path.read_text()))
    found = verify(small, checkpoints=[path], signer=key, witnesses=[forgeries.KEYS[0]])
    assert called in {each.kind for each in found.findings}, found.findings


def test_every_byte_of_a_round_matters(small, tmp_path):
    """A changed byte, with all hashes recomputed, is found unless no rule could tell it."""
    rng = random.Random(0)
    export = tmp_path / "export.jsonl"
    records = forgeries.contents(small, "clinics", tmp_path)
    k = 5  # record 6, the second round
    text = chained(records)[k].decode()
    passed = []
    for at in range(len(text)):
        for new in (rng.choice("0123456789"), rng.choice(',-.e"')):
            if new == text[at]:
                continue
            line = (text[:at] + new + text[at + 1 :]).encode()
            export.write_bytes(export_bytes(chained([*records[:k], line, *records[k + 1 :]])))
            if verify(export).ok:
                passed.append(at)
    # No rule tells another time or run, nor the last digits of a real number.
    free = set(range(text.index('"time":'), text.index(',"round"')))
    reals = text.index('"statistics"'), text.index(',"gram"')
    reals += text.index('"price"'), text.index(',"amounts"')
    free |= set(range(*reals[:2])) | set(range(*reals[2:]))
    assert set(passed) <= free, [text[at - 20 : at + 5] for at in set(passed) - free]
    assert len(passed) < 60


def imported(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names]
    return names + [
        node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    ]


def test_the_verifier_shares_no_code_with_the_writer():
    folder = Path(verax.verifier.__file__).parent
    for path in folder.glob("*.py"):
        names = {n for n in imported(path) if n.split(".")[0] not in sys.stdlib_module_names}
        assert {n for n in names if not n.startswith("verax.verifier")} <= {"psycopg"}, path


def test_at_least_150_kinds_are_tried(capsys):
    tables = {
        "records (exports, SQLite, PostgreSQL, import)": RECORDS, "exports": LINES,
        "SQLite": SQLITE, "PostgreSQL": POSTGRES,
        "rewritten histories": REWRITTEN, "checkpoints": NOTES,
    }  # fmt: skip
    total = sum(map(len, tables.values()))
    with capsys.disabled():
        parts = ", ".join(f"{name} {len(table)}" for name, table in tables.items())
        print(f"\n[{total} kinds of tampering: {parts}]", end="")
    assert total >= 150
