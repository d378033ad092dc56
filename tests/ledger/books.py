"""Books for the tests: rounds, a book with records of every kind, and forgeries."""

import hashlib
import json

import numpy as np

from verax.ledger import Book, Report
from verax.ledger.canonical import encode
from verax.ledger.export import export_book
from verax.ledger.store import entries_of
from verax.mechanism import Price, Terms


def norms(*values, names="abcdefghijklmnopqrstuvwxyz"):
    return [Report(name, statistic=float(v)) for name, v in zip(names, values, strict=False)]


def fill(book, third=5):
    """Records of every kind; `third` is what b's norm is in the third round."""
    book.create_federation("clinics", Terms(Price.constant(0.5), currency="EUR", scale=2))  # 1
    book.join("clinics", "a", "North")  # 2
    book.join("clinics", "b", "South")  # 3
    for t, values in enumerate([(4, 1, 1), (3, 2, 1), (5, third, 1), (2, 7, 3)], 1):
        book.post("clinics", "first", t, norms(*values))  # 4 joins c, then 5, 6, 7, 8
    book.deposit("clinics", "a", 1000, "start")  # 9
    book.change_terms(
        "clinics", Terms(Price.constant(0.25), currency="EUR", scale=2), from_round=5
    )  # 10
    broken = Report("c", "rejected", reason="NaN")
    book.post("clinics", "first", 5, [*norms(4.1, 1.3), broken])  # 11
    book.correct("clinics", {"a": -5, "b": 5}, "a test", corrects=4)  # 12
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


def rewritten(path, change):
    """The lines of an export after `change(content)` of every record, with consistent hashes.

    The balances of the last line are recomputed as well: only what the change itself makes wrong
    stays wrong.
    """
    lines, members, balances = [], {0: "escrow"}, {}
    previous = "0" * 64
    for line in path.read_bytes().splitlines()[:-1]:
        content = json.loads(line)
        change(content)
        content["previous"] = previous
        if content["kind"] == "join":
            members[content["account"]] = content["member"]
        for number, amount in entries_of(content):
            balances[number] = balances.get(number, 0) + amount
        lines.append(encode(content).encode())
        previous = hashlib.sha256(lines[-1]).hexdigest()
    named = {members[number]: amount for number, amount in balances.items() if amount}
    end = {"balances": named, "hash": previous, "kind": "end", "sequence": len(lines)}
    return b"".join(line + b"\n" for line in [*lines, encode(end).encode()])


def forged(book, federation, path, change):
    """A book in the file `path` whose records were changed before they were written."""
    export = path.with_suffix(".jsonl")
    export_book(book, federation, export)
    export.write_bytes(rewritten(export, change))
    texts = export.read_text().splitlines()[:-1]
    with Book.create(path) as copy:
        copy.import_records(federation, lambda: texts)
    return path
