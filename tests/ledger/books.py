"""Books for the tests: rounds, a book with records of every kind, and forgeries."""

import base64
import hashlib
import json
import sqlite3
from contextlib import closing, suppress

import numpy as np
import psycopg

from verax.ledger import Book, Report
from verax.ledger.export import export_book
from verax.mechanism import Price, Terms


def norms(*values, names="abcdefghjklmnopqrstuvwxyz"):
    return [Report(name, statistic=float(v)) for name, v in zip(names, values, strict=False)]


def fill(book, third=5):
    """Records of every kind; `third` is what b's norm is in the third round."""
    book.create_federation("clinics", Terms(Price.constant(0.5), currency="EUR", scale=2))  # 1
    book.join("clinics", "a", "North")  # 2
    book.join("clinics", "b", "South")  # 3
    for t, values in enumerate([(4, 1, 1), (3, 2, 1), (5, third, 1), (2, 7, 3)], 1):
        book.post("clinics", "first", t, norms(*values))  # 4 joins c, then 5, 6, 7, 8
    book.deposit("clinics", "a", 1000, "start", reference="d-1")  # 9
    book.change_terms(
        "clinics", Terms(Price.constant(0.25), currency="EUR", scale=2), from_round=5
    )  # 10
    broken = Report("c", "rejected", reason="NaN")
    book.post("clinics", "first", 5, [*norms(4.1, 1.3), broken])  # 11
    book.correct("clinics", {"a": -5, "b": 5}, "a test", corrects=4, reference="c-1")  # 12
    weighed = [Report("a", statistic=1.0, weight=0.5), Report("b", statistic=2.0, weight=1.5)]
    book.post("clinics", "first", 6, weighed)  # 13
    book.post("clinics", "first", 7, norms(1, 2, 3))  # 14


def simulate(book, federation, members, rounds, seed, run="run"):
    """Synthetic rounds, with a few updates missing or broken."""
    rng = np.random.default_rng(seed)
    for t in range(1, rounds + 1):
        fate = rng.random(members)
        reports = []
        for i, norm in enumerate(rng.lognormal(0, 1, members).tolist()):
            status = "ok"
            if fate[i] > 0.94:
                status = ("missing", "rejected", "error")[int((fate[i] - 0.94) * 50)]
            reports.append(Report(f"m{i:03d}", status, norm if status == "ok" else None))
        book.post(federation, run, t, reports)


def dump(content):
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def end_line(lines):
    """The last line of an export, by definition: RFC 6962's recursion, and the last hash."""

    def root(leaves):
        if len(leaves) < 2:
            return leaves[0] if leaves else hashlib.sha256(b"").digest()
        k = 1
        while 2 * k < len(leaves):
            k *= 2
        return hashlib.sha256(b"\x01" + root(leaves[:k]) + root(leaves[k:])).digest()

    leaves = [hashlib.sha256(b"\x00" + line).digest() for line in lines]
    hash_ = hashlib.sha256(lines[-1]).hexdigest() if lines else "0" * 64
    end = {"end": len(lines), "hash": hash_, "root": base64.b64encode(root(leaves)).decode()}
    return json.dumps(end).encode()


def chained(contents):
    """The bytes of records (dicts or bytes) whose places and hashes are made consistent."""
    lines, previous = [], "0" * 64
    for place, content in enumerate(contents, 1):
        if isinstance(content, dict):
            content = dump(content | {"sequence": place, "previous": previous})
        lines.append(content)
        previous = hashlib.sha256(content).hexdigest()
    return lines


def contents_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()[:-1]]


def rewritten(path, change):
    """An export after `change(content)` of every record, with consistent hashes."""
    contents = contents_of(path)
    for content in contents:
        change(content)
    lines = chained(contents)
    return b"".join(line + b"\n" for line in [*lines, end_line(lines)])


def rows_beside(lines):
    """The rows of `account` and `entry` that match records, without what no table can hold."""
    accounts, entries = {}, {}
    for place, line in enumerate(lines, 1):
        with suppress(ValueError, KeyError, TypeError, RecursionError, OverflowError):
            content = json.loads(line)
            if content["kind"] == "join":
                accounts[content["account"]] = (
                    1,
                    *(content[k] for k in ("account", "member", "label")),
                )
            pairs = zip(content.get("accounts", []), content.get("amounts", []), strict=False)
            for account, amount in pairs:
                if amount:
                    entries[place, account] = (1, place, account, amount)
    return {"account": list(accounts.values()), "entry": list(entries.values())}


def stored(path, federation, lines):
    """A book in a file that holds these lines as records, with entries and accounts to match."""
    Book.create(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        head = (federation, len(lines), hashlib.sha256(lines[-1]).hexdigest())
        db.execute("INSERT INTO federation (name, sequence, hash) VALUES (?, ?, ?)", head)
        rows = [(1, place, line) for place, line in enumerate(lines, 1)]
        for table, values in ({"record": rows} | rows_beside(lines)).items():
            for row in values:
                with suppress(sqlite3.Error, OverflowError):
                    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    return path


def stored_in_postgresql(connection, federation, lines):
    """The same in the tables of an open connection, in place of what they held."""
    tables = "verax.federation, verax.account, verax.record, verax.entry"
    connection.execute(f"TRUNCATE {tables} RESTART IDENTITY")
    head = (federation, len(lines), hashlib.sha256(lines[-1]).hexdigest())
    query = "INSERT INTO verax.federation (name, sequence, hash) VALUES (%s, %s, %s)"
    connection.execute(query, head)
    rows = [(1, place, line) for place, line in enumerate(lines, 1)]
    for table, values in ({"record": rows} | rows_beside(lines)).items():
        for row in values:
            with suppress(psycopg.Error, ValueError):
                connection.execute(
                    f"INSERT INTO verax.{table} VALUES ({', '.join(['%s'] * len(row))})", row
                )


def forged(book, federation, path, change):
    """A book in the file `path` whose records were changed before they were written."""
    export = path.with_suffix(".jsonl")
    export_book(book, federation, export)
    lines = rewritten(export, change).splitlines()[:-1]
    return stored(path, federation, lines)
