"""Forged books: every kind of tampering that we could think of, and the verifier finds each."""

import ast
import hashlib
import json
import random
import sqlite3
import sys
from pathlib import Path

import pytest
from books import fill, norms

from verax.ledger import Book
from verax.ledger import verify as verifier
from verax.ledger.checkpoint import make_checkpoint, new_key, public_key
from verax.ledger.export import export_book
from verax.ledger.verify import verify


def dump(content):
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class Forger:
    """Somebody who may write to the database as they like."""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA foreign_keys = OFF")
        self.db.execute("PRAGMA ignore_check_constraints = ON")

    def sql(self, text, *values):
        return self.db.execute(text, values).fetchall()

    def content(self, n):
        return json.loads(self.sql("SELECT content FROM record WHERE sequence = ?", n)[0][0])

    def put(self, n, text, rehash=True):
        """A record's text anew; with all the hashes after it, its columns and its entries."""
        self.sql("UPDATE record SET content = ? WHERE sequence = ?", text, n)
        if not rehash:
            return
        self.rechain()

    def edit(self, n, rehash=True, **changes):
        content = self.content(n)
        for key, value in changes.items():
            content[key] = value(content[key]) if callable(value) else value
        self.put(n, dump(content), rehash)

    def rechain(self, entries=True):
        """Make the whole chain consistent again: sequence, previous, hash, entries, head."""
        previous = "0" * 64
        rows = self.sql("SELECT rowid, content FROM record ORDER BY sequence")
        for place, (row, text) in enumerate(rows, 1):
            content = json.loads(text)
            plain = dump(content) == text
            content["previous"], content["sequence"] = previous, place
            # an odd form is kept where the form itself is the forgery
            text = dump(content) if plain else text
            previous = hashlib.sha256(text.encode()).hexdigest()
            round_ = content["kind"] == "round"
            self.sql(
                "UPDATE record SET content = ?, hash = ?, sequence = ?, kind = ?, run = ?, "
                "round = ? WHERE rowid = ?",
                text, previous, place, content["kind"], content["run"] if round_ else None,
                content.get("round"), row,
            )  # fmt: skip
        if entries:
            self.sql("DELETE FROM entry")
            for (text,) in self.sql("SELECT content FROM record"):
                content = json.loads(text)
                for account, amount in zip(
                    content.get("accounts", []), content.get("amounts", []), strict=False
                ):
                    if amount:
                        self.sql(
                            "INSERT INTO entry VALUES (1, ?, ?, ?)",
                            content["sequence"], account, amount,
                        )  # fmt: skip
        self.sql("UPDATE federation SET sequence = ?, hash = ?", len(rows), previous)

    def unconstrained(self):
        """The record table without its constraints."""
        self.sql("CREATE TABLE free AS SELECT * FROM record")
        self.sql("DROP TABLE record")
        self.sql("ALTER TABLE free RENAME TO record")


def plus(i, amount):
    def change(values):
        return [v + amount * (k == i) for k, v in enumerate(values)]

    return change


def moved(amount, i=0, j=1):
    def change(values):
        return [v + amount * (k == i) - amount * (k == j) for k, v in enumerate(values)]

    return change


def swap(forger, i, j, rehash):
    one, two = forger.sql("SELECT content, hash, run, round FROM record WHERE sequence IN (?, ?)",
                          i, j)  # fmt: skip
    for n, row, run in ((i, two, "x"), (j, one, "y")):
        forger.sql("UPDATE record SET run = ? WHERE sequence = ?", run, n)
        forger.sql("UPDATE record SET content = ?, hash = ? WHERE sequence = ?", *row[:2], n)
    for n, row in ((i, two), (j, one)):
        forger.sql("UPDATE record SET run = ?, round = ? WHERE sequence = ?", *row[2:], n)
    if rehash:
        forger.rechain()


def double(forger):
    forger.unconstrained()
    forger.sql("INSERT INTO record SELECT federation, 15, kind, run, round, hash, content "
               "FROM record WHERE sequence = 8")  # fmt: skip
    forger.rechain()


def settlement(forger, **changes):
    """Append a settlement that was never one."""
    content = {
        "accounts": [1, 2], "amounts": [-5, 5], "federation": "clinics", "kind": "settlement",
        "previous": "", "sequence": 15, "time": "2026-01-01T00:00:00Z",
        "transfers": [[1, 2, 5]], "version": 1,
    } | changes  # fmt: skip
    forger.sql("INSERT INTO record VALUES (1, 15, ?, NULL, NULL, '', ?)", content["kind"],
               dump(content))  # fmt: skip
    forger.rechain()


def leave(forger):
    """A member who left stands in a later round."""
    forger.edit(12, kind="leave")
    content = forger.content(12)
    for key in ("accounts", "amounts", "corrects", "reason"):
        content.pop(key)
    forger.put(12, dump(content | {"account": 1, "from_round": 2, "run": None}))


T = {  # name: (what the forger does, what the verifier calls it)
    # in place, without making hashes anew
    "a norm is changed": (lambda f: f.edit(6, False, statistics=[9.0, 2.0, 1.0]), "changed"),
    "an amount is changed": (lambda f: f.edit(6, False, amounts=moved(1)), "changed"),
    "a record's hash is changed": (
        lambda f: f.sql("UPDATE record SET hash = ? WHERE sequence = 6", "0" * 64),
        "changed",
    ),
    "a deposit is doubled": (lambda f: f.edit(9, False, amounts=[2000, -2000]), "changed"),
    "a record and its own hash": (
        lambda f: (
            f.edit(6, False, time="2020-01-01T00:00:00Z"),
            f.sql(
                "UPDATE record SET hash = ? WHERE sequence = 6",
                hashlib.sha256(dump(f.content(6)).encode()).hexdigest(),
            ),
        ),
        "chain",
    ),
    "a round is removed": (lambda f: f.sql("DELETE FROM record WHERE sequence = 7"), "missing"),
    "the first record is removed": (
        lambda f: f.sql("DELETE FROM record WHERE sequence = 1"),
        "missing",
    ),
    "the last round is removed": (
        lambda f: (
            f.sql("DELETE FROM record WHERE sequence = 14"),
            f.sql("DELETE FROM entry WHERE sequence = 14"),
        ),
        "missing",
    ),
    "two rounds change places": (lambda f: swap(f, 6, 7, False), "chain"),
    "the head is set back": (lambda f: f.sql("UPDATE federation SET sequence = 13"), "missing"),
    "the head's hash": (lambda f: f.sql("UPDATE federation SET hash = ?", "f" * 64), "missing"),
    # the tables beside the records
    "an entry's amount": (
        lambda f: f.sql("UPDATE entry SET amount = amount + 1 WHERE sequence = 6 AND account = 1"),
        "entry",
    ),
    "two entries, balanced": (
        lambda f: (
            f.sql("UPDATE entry SET amount = amount + 1 WHERE sequence = 6 AND account = 1"),
            f.sql("UPDATE entry SET amount = amount - 1 WHERE sequence = 6 AND account = 2"),
        ),
        "entry",
    ),
    "an entry is removed": (
        lambda f: f.sql("DELETE FROM entry WHERE sequence = 6 AND account = 1"),
        "entry",
    ),
    "an entry is added": (lambda f: f.sql("INSERT INTO entry VALUES (1, 2, 1, 50)"), "entry"),
    "an entry of no record": (lambda f: f.sql("INSERT INTO entry VALUES (1, 99, 1, 5)"), "entry"),
    "an entry of no federation": (
        lambda f: f.sql("INSERT INTO entry VALUES (7, 1, 1, 5)"),
        "entry",
    ),
    "an entry before the first": (
        lambda f: f.sql("INSERT INTO entry VALUES (1, -5, 1, 5)"),
        "entry",
    ),
    "a label": (lambda f: f.sql("UPDATE account SET label = 'me' WHERE account = 2"), "account"),
    "a member's key": (
        lambda f: f.sql("UPDATE account SET member = 'evil' WHERE account = 2"),
        "account",
    ),
    "an account too many": (
        lambda f: f.sql("INSERT INTO account VALUES (1, 9, 'ghost', 'ghost')"),
        "account",
    ),
    "a round's number in its column": (
        lambda f: f.sql("UPDATE record SET round = 77 WHERE sequence = 6"),
        "column",
    ),
    "a run's name in its column": (
        lambda f: f.sql("UPDATE record SET run = 'other' WHERE sequence = 6"),
        "column",
    ),
    # with every hash made anew
    "norm, all rehashed": (lambda f: f.edit(6, statistics=[9.0, 2.0, 1.0]), "payment"),
    "payment alone, rehashed": (lambda f: f.edit(6, payments=moved(0.01)), "payment"),
    "payment by a millionth of it": (lambda f: f.edit(6, payments=moved(1e-6)), "payment"),
    "payment and amount": (
        lambda f: f.edit(6, payments=moved(0.01), amounts=moved(1)),
        "payment",
    ),
    "amount alone": (lambda f: f.edit(6, amounts=moved(1)), "amount"),
    "a unit of rounding": (lambda f: f.edit(11, amounts=moved(1, 0, 2)), "amount"),
    "amounts out of balance": (lambda f: f.edit(6, amounts=plus(0, -1)), "unbalanced"),
    "a deposit out of balance": (lambda f: f.edit(9, amounts=[1000, -999]), "unbalanced"),
    "a status": (lambda f: f.edit(6, statuses={"1": "missing"}), "form"),
    "a status and its norm": (
        lambda f: f.edit(6, statuses={"1": "missing"}, statistics=[None, 2.0, 1.0]),
        "payment",
    ),
    "a status nobody knows": (
        lambda f: f.edit(6, statuses={"1": "late"}, statistics=[None, 2.0, 1.0]),
        "form",
    ),
    "a weight": (lambda f: f.edit(13, weights={"1": 0.5, "2": 1.6}), "weight"),
    "a weight that is negative": (lambda f: f.edit(13, weights={"1": -1.0, "2": 3.0}), "weight"),
    "the price": (lambda f: f.edit(6, price=[0.4]), "terms"),
    "the rule": (lambda f: f.edit(6, rule="none"), "terms"),
    "what the statistics are": (lambda f: f.edit(6, reads="misreport"), "form"),
    "the terms of another time": (
        lambda f: f.edit(11, terms=f.content(6)["terms"]),
        "terms",
    ),
    "the first terms": (
        lambda f: f.edit(1, terms=lambda text: text.replace("values = 0.5", "values = 0.4")),
        "terms",
    ),
    "terms in another currency": (
        lambda f: f.edit(10, terms=lambda text: text.replace("EUR", "USD")),
        "terms",
    ),
    "terms in force earlier": (lambda f: f.edit(10, from_round=8), "terms"),
    "a round twice": (double, "repeated"),
    "an account passes on": (lambda f: f.edit(4, account=2), "account"),
    "a member renamed in its record": (lambda f: f.edit(3, member="evil"), "account"),
    "two members who look the same": (lambda f: f.edit(3, label="NORTH"), "account"),
    "an account that nobody has": (lambda f: f.edit(9, accounts=[0, 77]), "form"),
    "white space": (lambda f: f.put(14, json.dumps(f.content(14))), "form"),
    "a key twice": (
        lambda f: f.put(14, dump(f.content(14))[:-1] + ',"weights":{}}'),
        "form",
    ),
    "a number written otherwise": (
        lambda f: f.put(14, dump(f.content(14)).replace('"price":[0.25]', '"price":[2.5e-1]')),
        "form",
    ),
    "a field too many": (lambda f: f.put(14, dump(f.content(14) | {"bonus": 1})), "form"),
    "no JSON at all": (lambda f: f.put(14, "", False), "form"),
    "nested beyond measure": (lambda f: f.put(14, "[" * 100_000, False), "form"),
    "infinity": (
        lambda f: f.put(14, dump(f.content(14)).replace("[1.0,2.0,3.0]", "[Infinity,2.0,3.0]"), 0),
        "form",
    ),
    "a correction without a reason": (lambda f: f.edit(12, reason=" "), "form"),
    "a correction of the future": (lambda f: f.edit(12, corrects=13), "form"),
    "a deposit between members": (lambda f: f.edit(9, accounts=[1, 2]), "entry"),
    "a settlement without its transfers": (lambda f: settlement(f, transfers=[]), "entry"),
    "a transfer of nothing": (
        lambda f: settlement(f, transfers=[[1, 2, 5], [2, 2, 5]]),
        "entry",
    ),
    "a kind nobody knows": (lambda f: settlement(f, kind="gift"), "form"),
    "a second creation": (lambda f: settlement(f, kind="create"), "form"),
    "another federation's record": (lambda f: f.edit(6, federation="banks"), "chain"),
    "a member who left": (leave, "member"),
    "amounts as text": (lambda f: f.edit(9, amounts=["1000", "-1000"]), "form"),
    "amounts as reals": (lambda f: f.edit(9, amounts=[1000.0, -1000.0]), "form"),
    "amounts beyond 63 bits": (lambda f: f.edit(9, amounts=[2**63, -(2**63)]), None),
    "participants out of order": (
        lambda f: f.edit(
            6, **{k: (lambda v: v[::-1]) for k in ("accounts", "amounts", "payments", "statistics")}
        ),
        "form",
    ),
}  # fmt: skip


def test_the_book_is_right_before_it_is_forged(small):
    assert verify(small).ok


@pytest.mark.parametrize("kind", T)
def test_tampering_is_found(small, kind):
    forge, called = T[kind]
    forger = Forger(small)
    try:
        forge(forger)
    except (sqlite3.IntegrityError, OverflowError):
        assert called is None, "the database itself refuses this"
        return
    forger.db.close()
    found = verify(small)
    assert not found.ok
    if called is not None:
        assert called in {each.kind for each in found.findings}, found.findings


@pytest.fixture
def checkpoint(small, tmp_path):
    """What a member kept when the book had 14 records."""
    path = tmp_path / "kept.json"
    key = new_key(tmp_path / "key.pem")
    with Book.open(small) as book:
        path.write_text(json.dumps(make_checkpoint(book, "clinics", key)))
    return path, public_key(key)


def removed(forger, n):
    forger.sql("DELETE FROM record WHERE sequence = ?", n)
    forger.rechain()


REWRITTEN = {  # consistent in itself: only a checkpoint shows it
    "the last round never was": lambda f: removed(f, 14),
    "a round in the middle never was": lambda f: removed(f, 8),
    "two rounds changed places": lambda f: swap(f, 6, 7, True),
    "a deposit was larger": lambda f: f.edit(9, amounts=[5000, -5000]),
    "a correction had another reason": lambda f: f.edit(12, reason="none of your business"),
    "a round had another number": lambda f: f.edit(7, round=4, run="other"),
    "a record was booked earlier": lambda f: f.edit(9, time="2020-01-01T00:00:00Z"),
}


@pytest.mark.parametrize("kind", REWRITTEN)
def test_rewritten_history_is_found_by_a_checkpoint(small, checkpoint, kind):
    forger = Forger(small)
    REWRITTEN[kind](forger)
    forger.db.close()
    assert verify(small).ok, "otherwise the forgery is no good"
    found = verify(small, checkpoints=[checkpoint[0]])
    assert {each.kind for each in found.findings} == {"fork"}


def test_a_whole_other_book_is_found_by_a_checkpoint(tmp_path, checkpoint):
    other = tmp_path / "other.db"
    with Book.create(other) as book:
        fill(book, third=6)
    assert verify(other).ok
    assert [f.kind for f in verify(other, checkpoints=[checkpoint[0]]).findings] == ["fork"]


def test_a_book_that_only_grew_passes(small, checkpoint):
    path, key = checkpoint
    with Book.open(small) as book:
        book.post("clinics", "first", 8, norms(1, 2, 3))
    found = verify(small, checkpoints=[path], signer=key)
    assert found.ok
    assert found.checkpoints == 1
    assert found.sequence == 15


@pytest.mark.parametrize(
    ("change", "called"),
    [
        ({"signature": "00" * 64}, "signature"),
        ({"signature": "zz"}, "signature"),
        ({"time": "2020-01-01T00:00:00Z"}, "signature"),
        ({"signature": None}, "signature"),
        ({"key": "11" * 32}, "signature"),
        ({"balances": {"a": 1, "b": -1}}, "balance"),
        ({"sequence": "x"}, "checkpoint"),
        ({"hash": "0" * 64}, "fork"),
        ({"federation": "banks"}, "checkpoint"),
        ({"sequence": 99}, "fork"),
    ],
)
def test_forged_checkpoints_are_found(small, checkpoint, change, called):
    path, key = checkpoint
    content = json.loads(path.read_text()) | change
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    found = verify(small, checkpoints=[path], signer=key)
    assert called in {each.kind for each in found.findings}


def test_a_checkpoint_signed_by_another_is_found(small, checkpoint, tmp_path):
    with Book.open(small) as book:
        other = make_checkpoint(book, "clinics", new_key(tmp_path / "other.pem"))
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert verify(small, checkpoints=[tmp_path / "other.json"]).ok
    found = verify(small, checkpoints=[tmp_path / "other.json"], signer=checkpoint[1])
    assert [each.kind for each in found.findings] == ["signature"]


def edited(line, **changes):
    return dump(json.loads(line) | changes).encode() + b"\n"


LINES = {  # an export, line by line
    "a line is changed": (lambda x: [x[0].replace(b"EUR", b"USD"), *x[1:]], "chain"),
    "a line is removed": (lambda x: [*x[:6], *x[7:]], "missing"),
    "a line stands twice": (lambda x: [*x[:7], *x[6:]], "added"),
    "two lines change places": (lambda x: [*x[:5], x[6], x[5], *x[7:]], "chain"),
    "the end is missing": (lambda x: x[:-1], "missing"),
    "the last round is missing": (lambda x: [*x[:-2], x[-1]], "missing"),
    "cut in the middle of a line": (lambda x: [*x[:-1], x[-1][:-20]], "missing"),
    "something after the end": (lambda x: [*x, x[-2]], "added"),
    "balances in the end": (lambda x: [*x[:-1], edited(x[-1], balances={"a": 1})], "balance"),
    "the hash in the end": (
        lambda x: [*x[:-1], x[-1].replace(b'"hash":"', b'"hash":"0')],
        "missing",
    ),
    "an empty line": (lambda x: [*x[:3], b"\n", *x[3:]], "form"),
    "a round of another's making": (
        lambda x: [*x[:-2], edited(x[-2], amounts=[-20, 0, 20]), x[-1]],
        "amount",
    ),
    "bytes that are no text": (lambda x: [*x[:-2], b"\xff\xfe\n", x[-1]], "form"),
    "nothing at all": (lambda x: [], "missing"),
}


@pytest.mark.parametrize("kind", LINES)
def test_forged_exports_are_found(small, tmp_path, kind):
    path = tmp_path / "export.jsonl"
    with Book.open(small) as book:
        export_book(book, "clinics", path)
    change, called = LINES[kind]
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    assert called in {each.kind for each in verify(path).findings}


ROWS = {  # rows beside a round: what the database would not accept through SQLAlchemy
    "a real": "UPDATE entry SET amount = amount + 0.5 WHERE sequence = 7 AND account = 2",
    "a text": "UPDATE entry SET amount = amount || 'x' WHERE sequence = 7 AND account = 2",
    "another account": "UPDATE entry SET account = 9 WHERE sequence = 7 AND account = 2",
    "two amounts in one row": (
        "UPDATE entry SET amount = amount || ',' || (SELECT amount FROM entry AS next "
        "WHERE next.sequence = 7 AND next.account = 3), account = '2,3' "
        "WHERE sequence = 7 AND account = 2; DELETE FROM entry WHERE sequence = 7 AND account = 3"
    ),
    "another kind": "UPDATE record SET kind = 'deposit' WHERE sequence = 7",
    "another place": "UPDATE record SET sequence = 500 WHERE sequence = 7",
}


@pytest.mark.parametrize("kind", ROWS)
def test_odd_rows_beside_a_round_are_found(small, kind):
    forger = Forger(small)
    forger.db.executescript(ROWS[kind])
    forger.db.close()
    assert not verify(small).ok


def test_entries_in_postgres_are_compared_too(new_postgres):
    url = new_postgres()
    with Book.open(url) as book:
        fill(book)
        assert verify(url).ok
        with book.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE entry SET amount = amount + 1 WHERE sequence = 6 AND account = 1"
            )
    assert [each.kind for each in verify(url).findings] == ["entry"]


def test_every_byte_of_a_round_matters(small, tmp_path):
    """A changed byte, with all hashes recomputed, is found unless no rule could tell it."""
    rng = random.Random(0)
    export = tmp_path / "export.jsonl"
    with Book.open(small) as book:
        export_book(book, "clinics", export)
    lines = export.read_bytes().splitlines()
    k = 5  # record 6, the second round
    text = lines[k].decode()
    passed = []
    for at in range(len(text)):
        for new in (rng.choice("0123456789"), rng.choice(',-.e"')):
            if new == text[at]:
                continue
            forged = [*lines]
            forged[k] = (text[:at] + new + text[at + 1 :]).encode()
            for i in range(k + 1, len(forged)):
                previous = hashlib.sha256(forged[i - 1]).hexdigest().encode()
                name = b'"hash":"' if b'"kind":"end"' in forged[i] else b'"previous":"'
                start = forged[i].index(name) + len(name)
                forged[i] = forged[i][:start] + previous + forged[i][start + 64 :]
            export.write_bytes(b"\n".join([*forged, b""]))
            if verify(export).ok:
                passed.append(at)
    # No rule tells another time or run, nor the last digits of a real number.
    free = set(range(text.index('"time":'), text.index(',"version"')))
    free |= set(range(text.index('"run":'), text.index(',"sequence"')))
    assert set(passed) <= free


def imported(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names]
    return names + [
        node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    ]


def test_the_verifier_shares_no_code_with_the_writer():
    packages = {name.split(".")[0] for name in imported(Path(verifier.__file__))}
    assert packages - sys.stdlib_module_names == {"psycopg", "cryptography"}
