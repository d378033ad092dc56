"""Kills writers at every boundary and checks the book afterwards.

Run as `python kill_driver.py URL KILLS SEED`; prints one JSON object. Children are forked from this
process, because imports take a second. A child posts rounds and reports each round that it has a
receipt for. Three of four children die by SIGKILL at a boundary: the first child at the first
boundary, the next at the second, and so on, and some at those around the commit. Boundaries are
before and after each statement, before and after the commit, and after the report. The fourth is
killed by this process at a random moment.
"""

import json
import os
import random
import select
import signal
import sys
import time
from collections import Counter

from sqlalchemy import event

from verax.ledger import Book, Report
from verax.mechanism import Price, Terms
from verax.verifier import verify

TERMS = Terms(Price.constant(0.5), currency="EUR", scale=2)
POSTS = 6  # of one child, if it lives
PER_BOOK = 40  # kills on one federation; a new one then keeps verification short
BOUNDARIES = 150  # of the first rounds of a child
LAST = ("before COMMIT", "after COMMIT", "after receipt")  # few among many; killed at by name


def reports(t):
    """Three reports; in most rounds a new member joins."""
    return [Report(f"m{(t * k) % 23:02d}-{k}", statistic=float(t % 7 + k)) for k in (1, 2, 3)]


def watch(engine, reach):
    """Call `reach` before and after every statement and before every commit."""
    event.listen(engine, "before_cursor_execute", lambda *a: reach("before " + a[2].split()[0]))
    event.listen(engine, "after_cursor_execute", lambda *a: reach("after " + a[2].split()[0]))
    event.listen(engine, "commit", lambda *_: reach("before COMMIT"))


def child(url, federation, start, boundary, tell):
    """Post until killed; `boundary` is the one to die at, by number or name, 0 for none."""
    passed = 0

    def reach(what):
        nonlocal passed
        passed += 1
        if boundary in (passed, what):
            os.write(tell, f"{what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    book = Book.open(url)
    watch(book.engine, reach)
    os.write(tell, b"open\n")
    for t in range(start, start + POSTS):
        book.post(federation, "run", t, reports(t))
        reach("after COMMIT")
        os.write(tell, f"{t}\n".encode())
        reach("after receipt")
    os._exit(0)


def run_child(url, federation, start, number, rng):
    """Run one child to its end; returns its reported rounds, whether it was killed, and where."""
    read, write = os.pipe()
    timed = number % 4 == 3
    boundary = 0 if timed else 1 + (number - number // 4) % BOUNDARIES
    if number % 8 == 4:
        boundary = LAST[number // 8 % len(LAST)]
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            child(url, federation, start, boundary, write)
        finally:
            os._exit(3)
    os.close(write)
    told = b""
    if timed:
        while b"open\n" not in told and select.select([read], [], [], 20)[0]:
            told += os.read(read, 4096)
        time.sleep(rng.uniform(0, 0.012))
        os.kill(pid, signal.SIGKILL)
    while part := os.read(read, 4096):
        told += part
    os.close(read)
    _, status = os.waitpid(pid, 0)
    lines = told.decode().split("\n")[:-1]
    acknowledged = [int(line) for line in lines if line.isdigit()]
    where = [line for line in lines if not line.isdigit() and line != "open"]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and os.WEXITSTATUS(status):
        raise RuntimeError(f"a child failed by itself: {told!r}")
    return acknowledged, killed, (where or ["at any moment"])[0]


def main(url, kills, seed):
    rng = random.Random(seed)
    wrong, where, done, started, complete = [], Counter(), 0, 0, 0
    federation, last = "", 0
    while done < kills:
        if not federation:
            federation, last = f"f{done}", 0
            with Book.open(url) as book:
                book.create_federation(federation, TERMS)
        acknowledged, killed, place = run_child(url, federation, last + 1, started, rng)
        started += 1
        if killed:
            done += 1
            where[place] += 1
        report = verify(url, federation=federation)
        if not report.ok:
            wrong.append([done, place, report.findings[0].message])
        told = max(acknowledged, default=last)
        if report.rounds not in (told, told + 1):
            wrong.append([done, place, f"told {told}, found {report.rounds}"])
        complete += report.rounds == told + 1
        last = report.rounds  # the next child opens the book and goes on from here
        if killed and (done % PER_BOOK == 0 or done == kills):
            with Book.open(url) as book:
                rounds = [t for _, t, _, _ in book.rounds(federation)]
            if rounds != list(range(1, last + 1)):
                wrong.append([done, place, f"rounds {rounds}"])
            federation = ""
    print(
        json.dumps(
            {
                "kills": done,
                "where": dict(where),
                "wrong": wrong,
                "complete_but_unreported": complete,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
