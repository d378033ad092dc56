"""Compiled code finds right only what the plain verifier finds right, and nearly all of that."""

import hashlib
import json
import math
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from books import norms, verify_both
from hypothesis import example, given, settings
from hypothesis import strategies as st

from verax.ledger import Book
from verax.ledger import verify as verifier
from verax.ledger.export import export_book
from verax.ledger.verify import verify
from verax.ledger.verify_compiled import _charged, read_number
from verax.mechanism import Price, Terms

MEMBERS = 5
NORMAL = 2.2250738585072014e-308


def read(text):
    """The number that a text is; None if it does not stand in its canonical form."""
    data = text.encode()
    value, end = read_number(np.frombuffer(data + b",12345678" + bytes(16), np.uint8), 0)
    return value if end == len(data) else None


@settings(max_examples=5000, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e22)
@example(9007199254740993.0)
@example(2.0**-1022)
@example(5e-324)
def test_a_number_as_python_writes_it_is_read(value):
    found = read(repr(value))
    assert found in (None, value)
    if 1e-250 < abs(value) < 1e15:
        assert found == value


@pytest.mark.parametrize("spread", [1, 5, 20])
def test_shortest_digits_are_known_from_others(spread):
    """Of many texts: accepted are those that Python would write, and no other."""
    rng = random.Random(spread)
    styles = ("{!r}", "{!r}0", "{:.17g}", "{:.16g}", "{:.18g}", "{:.16e}", "{:f}", "{:.20f}")
    accepted = 0
    for _ in range(150_000):
        value = rng.lognormvariate(0, spread) * rng.choice((1, -1))
        text = rng.choice(styles).format(value)
        canonical = repr(float(text)) == text and float(text) != 0
        found = read(text)
        assert found is None or (canonical and found == float(text))
        if canonical and 1e-200 < abs(float(text)) < 1e15:
            assert found is not None, text
        accepted += found is not None
    assert accepted > 15_000


@settings(max_examples=5000, deadline=None)
@given(st.text("0123456789.-+e", max_size=26))
@example("0.0")
@example("-0.0")
@example("1.e-05")
@example("1e-05")
@example("1e-5")
@example("00.5")
@example(".5")
@example("5")
@example("1e+16")
@example("1e16")
def test_no_other_text_is_read_as_a_number(text):
    found = read(text)
    if found is not None:
        assert repr(float(text)) == text
        assert float(text) == found


@pytest.mark.parametrize("turns", range(1, 6))
def test_digits_beyond_64_bits_do_not_pass_for_fewer(turns):
    """A text whose digits, modulo 2^64, are those of another number in its canonical form."""
    digits = next(d for d in range(12345678901234567, 2**54) if repr(d * 1e-20) == f"0.000{d}")
    assert read(f"0.000{digits}") == digits * 1e-20
    assert read(f"0.{digits + turns * 2**64}") is None


@pytest.mark.parametrize("price", [1e308, math.inf, math.nan])
def test_no_payment_is_right_where_charges_pass_float64(price):
    assert _charged(np.array([4.0, 1.0]), 0.5, np.array([1.5, -1.5]))
    assert not _charged(np.array([4.0, 1.0]), price, np.array([1.5, -1.5]))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Usual rounds in two runs, with a new price, new terms and a deposit on the way."""
    path = tmp_path_factory.mktemp("compiled") / "book.db"
    rng = np.random.default_rng(3)
    with Book.create(path) as book:
        book.found("clinics", Terms(Price(((0.5,), (0.75,)), (1, 12), rounds=30), scale=4))
        for run in ("first", "second"):
            for t in range(1, 31):
                book.post("clinics", run, t, norms(*rng.lognormal(0, 2, MEMBERS)))
                if (run, t) == ("first", 20):
                    book.change_terms("clinics", Terms(Price.constant(2.0), scale=4), from_round=25)
                if (run, t) == ("second", 5):
                    book.deposit("clinics", "a", 100)
        export_book(book, "clinics", path.with_suffix(".jsonl"))
    return path


@pytest.mark.parametrize("suffix", [".db", ".jsonl"])
def test_most_rounds_are_taken_by_compiled_code(book, suffix, monkeypatch):
    taken = []
    take = verifier._Chain.take

    def counted(self, line, *rest):
        taken.append(b'"kind":"round"' in line)
        take(self, line, *rest)

    monkeypatch.setattr(verifier._Chain, "take", counted)
    found = verify(book.with_suffix(suffix), patience=0)
    assert found.ok
    assert found.rounds == 60
    # the first of each run, of each price and after each other record
    assert 6 <= sum(taken) <= 12
    taken.clear()
    assert verify(book.with_suffix(suffix)) == found
    assert sum(taken) == 60


def lines_of(path):
    return path.read_bytes().splitlines()


def rechained(lines, start):
    """The lines with the hashes made anew from one on; what cannot be read stays as it is."""
    lines = list(lines)
    for k in range(start, len(lines)):
        previous = hashlib.sha256(lines[k - 1]).hexdigest().encode()
        at = lines[k].find(b'"previous":"') + 12
        if b'"kind":"end"' in lines[k]:
            at = lines[k].find(b'"hash":"') + 8
        lines[k] = lines[k][:at] + previous + lines[k][at + 64 :]
    return lines


def test_every_byte_of_a_round_matters(book, tmp_path):
    """Each byte changed, by itself and with all hashes made anew: both verifiers agree."""
    rng = random.Random(0)
    lines = lines_of(book.with_suffix(".jsonl"))
    k = next(k for k, line in enumerate(lines) if b'"round":8,' in line)
    path, passed = tmp_path / "forged.jsonl", []
    for at in range(len(lines[k])):
        byte = lines[k][at : at + 1]
        for new in {
            rng.choice(b"0123456789").to_bytes(),
            rng.choice((b",", b"-", b".", b"e", b'"')),
        }:
            if new == byte:
                continue
            forged = [*lines[:k], lines[k][:at] + new + lines[k][at + 1 :], *lines[k + 1 :]]
            path.write_bytes(b"\n".join([*rechained(forged, k + 1), b""]))
            if verify_both(path).ok:
                passed.append(at)
    # What no rule can tell from the truth: another time or run, the last digits of a real number.
    text = lines[k].decode()
    free, real = set[int](), set[int]()
    for start, end, found in (
        ('"time":', ',"version"', free),
        ('"run":', ',"sequence"', free),
        ('"payments":', ',"previous"', real),
        ('"statistics":', ',"statuses"', real),
    ):
        found.update(range(text.index(start), text.index(end)))
    assert set(passed) - free <= real
    assert len(set(passed) & real) < 0.6 * len(real)


def changed(line, **changes):
    content = json.loads(line)
    for key, value in changes.items():
        content[key] = value(content[key]) if callable(value) else value
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def longer(line):
    """A statistic with a digit too many, which reads as the same number."""
    value = json.loads(line)["statistics"][0]
    return line.replace(
        f'"statistics":[{value!r}'.encode(), f'"statistics":[{value:.17g}0'.encode()
    )


def rounded_otherwise(line):
    """One who was rounded up is rounded down, and another up."""
    content = json.loads(line)
    amounts = content["amounts"]
    rest = [a - p * 10**4 for a, p in zip(amounts, content["payments"], strict=True)]
    amounts[rest.index(max(rest))] -= 1
    amounts[rest.index(min(rest))] += 1
    return changed(line, amounts=amounts)


FORGERIES = {
    "another rounded up": rounded_otherwise,
    "units moved": lambda x: changed(x, amounts=lambda a: [a[0] + 1, a[1] - 1, *a[2:]]),
    "a unit too many": lambda x: changed(x, amounts=lambda a: [a[0] + 1, *a[1:]]),
    "a payment moved": lambda x: changed(x, payments=lambda p: [p[0] + 1, p[1] - 1, *p[2:]]),
    "a payment a little off": lambda x: changed(x, payments=lambda p: [p[0] * (1 + 1e-8), *p[1:]]),
    "a statistic doubled": lambda x: changed(x, statistics=lambda s: [2 * s[0], *s[1:]]),
    "a negative statistic": lambda x: changed(x, statistics=lambda s: [-s[0], *s[1:]]),
    "a statistic of too many digits": longer,
    "another price": lambda x: changed(x, price=[0.25]),
    "a price as a whole number": lambda x: changed(x, price=[1]),
    "another round": lambda x: changed(x, round=77),
    "a round again": lambda x: changed(x, round=3),
    "another sequence": lambda x: changed(x, sequence=3),
    "another rule": lambda x: changed(x, rule="spot-audit"),
    "other terms": lambda x: changed(x, terms="0" * 64),
    "another federation": lambda x: changed(x, federation="banks"),
    "one member fewer": lambda x: changed(
        x, **{k: lambda v: v[:-1] for k in ("accounts", "amounts", "payments", "statistics")}
    ),
    "a status": lambda x: changed(x, statuses={"2": "missing"}),
    "a weight": lambda x: changed(x, weights={"2": 2.0}),
    "a time that is none": lambda x: changed(x, time="2026-01-01 00:00:00Z"),
    "something after the record": lambda x: x + b" ",
    "something before it": lambda x: b" " + x,
    "a line in two": lambda x: x[:100] + b"\n" + x[100:],
    "nothing": lambda _: b"",
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("t", [8, 12])
def test_forged_rounds_are_left_to_the_plain_verifier(book, tmp_path, forgery, t):
    """Round 12 is the first at another price."""
    lines = lines_of(book.with_suffix(".jsonl"))
    k = next(k for k, line in enumerate(lines) if f'"round":{t},'.encode() in line)
    forged = [*lines[:k], FORGERIES[forgery](lines[k]), *lines[k + 1 :]]
    path = tmp_path / "forged.jsonl"
    for made in (forged, rechained(forged, k + 1)):
        path.write_bytes(b"\n".join([*made, b""]))
        assert not verify_both(path).ok


def test_an_old_price_after_its_time_is_found(book, tmp_path):
    """Round 12 as round 11 would have been charged: only the terms tell."""
    lines = lines_of(book.with_suffix(".jsonl"))
    k = next(k for k, line in enumerate(lines) if b'"round":12,' in line)
    eleven = changed(lines[k - 1], round=12, sequence=json.loads(lines[k])["sequence"])
    forged = rechained([*lines[:k], eleven, *lines[k + 1 :]], k)
    path = tmp_path / "forged.jsonl"
    path.write_bytes(b"\n".join([*forged, b""]))
    assert "terms" in {each.kind for each in verify_both(path).findings}


def test_checkpoints_between_rounds_are_compared(book, tmp_path):
    """One that was kept in the middle of usual rounds, and a forged one."""
    lines = lines_of(book.with_suffix(".jsonl"))
    hash_ = hashlib.sha256(lines[14]).hexdigest()
    part = tmp_path / "part.jsonl"
    part.write_bytes(b"\n".join([*lines[:15], b""]))
    kept = {"sequence": 15, "hash": hash_, "federation": "clinics"}
    for balances, ok in ((verify(part).balances, True), ({"a": 1, "b": -1}, False)):
        path = tmp_path / "kept.json"
        path.write_text(json.dumps(kept | {"balances": balances}))
        for suffix in (".db", ".jsonl"):
            found = verify_both(book.with_suffix(suffix), checkpoints=[path])
            assert found.ok is ok
            assert found.checkpoints == 1


ROWS = {
    "a changed amount": "UPDATE entry SET amount = amount + 1 WHERE sequence = 12 AND account = 2",
    "a missing row": "DELETE FROM entry WHERE sequence = 12 AND account = 2",
    "a row too many": "INSERT INTO entry VALUES (1, 12, 9, 5)",
    "a row of no record": "INSERT INTO entry VALUES (1, 999, 1, 5)",
    "another account": "UPDATE entry SET account = 9 WHERE sequence = 12 AND account = 2",
    "a real": "UPDATE entry SET amount = amount + 0.5 WHERE sequence = 12 AND account = 2",
    "a text": "UPDATE entry SET amount = amount || 'x' WHERE sequence = 12 AND account = 2",
    "two amounts in one row": (
        "UPDATE entry SET amount = amount || ',' || (SELECT amount FROM entry AS next "
        "WHERE next.sequence = 12 AND next.account = 3) WHERE sequence = 12 AND account = 2; "
        "UPDATE entry SET amount = '' WHERE sequence = 12 AND account = 3"
    ),
    "a row for two": (
        "UPDATE entry SET amount = amount || ',' || (SELECT amount FROM entry AS next "
        "WHERE next.sequence = 12 AND next.account = 3), account = '2,3' "
        "WHERE sequence = 12 AND account = 2; DELETE FROM entry WHERE sequence = 12 AND account = 3"
    ),
    "another hash": "UPDATE record SET hash = 'x' WHERE sequence = 12",
    "another round": "UPDATE record SET round = 77 WHERE sequence = 12",
    "another run": "UPDATE record SET run = 'third' WHERE sequence = 12",
    "another kind": "UPDATE record SET kind = 'deposit' WHERE sequence = 12",
    "another place": "UPDATE record SET sequence = 500 WHERE sequence = 12",
}


@pytest.mark.parametrize("forgery", ROWS)
def test_what_a_database_holds_beside_a_round_is_checked(book, tmp_path, forgery):
    path = Path(tmp_path / "forged.db")
    path.write_bytes(book.read_bytes())
    database = sqlite3.connect(path)
    database.execute("PRAGMA ignore_check_constraints = ON")
    database.executescript(ROWS[forgery])
    database.close()
    assert not verify_both(path).ok


def test_both_databases_are_read_alike(url):
    rng = np.random.default_rng(4)
    with Book.open(url) as book:
        book.found("clinics", Terms(Price.constant(0.5), scale=4))
        for t in range(1, 13):
            last = book.post("clinics", "run", t, norms(*rng.lognormal(0, 2, MEMBERS)))
        assert verify_both(url).ok
        with book.engine.begin() as connection:
            connection.exec_driver_sql(
                f"UPDATE entry SET amount = amount + 1 WHERE sequence = {last.sequence - 3}"
            )
    assert [each.kind for each in verify_both(url).findings] == ["entry"]
