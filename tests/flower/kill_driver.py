"""Kills the server of a federation again and again, and checks its book and model afterwards.

Run as `python -m tests.flower.kill_driver FOLDER KILLS SEED`; prints one JSON object. Each child is
forked from this process and runs a federation in one process, from where the book ends. Three of
four children kill themselves at a boundary, by its number or by its name: a statement or commit of
the book, a file of the checkpoints that is opened, synced, renamed or removed, a member's training,
or the return of the aggregate. The fourth is killed by this process at a random moment. A run that
reaches its end must have the model and the payments of a run that nobody killed.
"""

import json
import os
import random
import select
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from flwr.serverapp.strategy import FedAvg
from sqlalchemy import event

from verax.flower import PaidStrategy
from verax.flower.checkpoints import Checkpoints
from verax.ledger import Book
from verax.verifier import verify

from .grid import Honest, LocalGrid, model, nodes, numpy_of, round_of, terms

ROUNDS = 5  # of one run
NAMED = ("aggregated", "os.rename", "before COMMIT", "trained", "before fsync")
FILES = {"open", "os.rename", "os.remove"}


def start(book, folder, run, client=None):
    """Train a run to its end, from where the book ends."""
    kept = {"run": run, "checkpoints": folder / "kept"}
    paid = PaidStrategy(FedAvg(), terms=terms(), ledger=book, federation=run, **kept)
    grid = LocalGrid(nodes(3), client or Honest())
    return paid.start(grid, model(size=200), ROUNDS).arrays


def watch(book, folder, reach):
    """Call `reach` at every statement, commit, file of the checkpoints, training and aggregate."""
    event.listen(book.engine, "before_cursor_execute", lambda *a: reach(a[2].split()[0]))
    event.listen(book.engine, "after_cursor_execute", lambda *a: reach(f"after {a[2].split()[0]}"))
    event.listen(book.engine, "commit", lambda *_: reach("before COMMIT"))
    kept = str(folder / "kept")
    sys.addaudithook(
        lambda name, args: reach(name) if name in FILES and str(args[0]).startswith(kept) else None
    )
    fsync, promote = os.fsync, Checkpoints.promote

    def synced(number):
        reach("before fsync")
        fsync(number)

    def promoted(self, round_):
        promote(self, round_)
        reach("aggregated")

    os.fsync, Checkpoints.promote = synced, promoted


class Watched(Honest):
    """Honest, and nobody trains a round that is in the book already."""

    def __init__(self, reach, booked):
        super().__init__()
        self.reach, self.booked = reach, booked

    def train(self, i, request):
        assert round_of(request) > self.booked
        reply = super().train(i, request)
        self.reach("trained")
        return reply


def child(folder, run, boundary, tell):
    """Run until killed; `boundary` is the one to die at, by number or by name, 0 for none."""
    passed = 0

    def reach(what):
        nonlocal passed
        passed += 1
        if boundary in (passed, what):
            os.write(tell, f"{what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    book = Book.open(folder / "book.db")
    booked = len(payments(book, run)) if run in book.federations() else 0
    watch(book, folder, reach)
    os.write(tell, b"open\n")
    start(book, folder, run, Watched(reach, booked))


def run_child(folder, run, number, rng):
    """Run one child to its end; returns where it was killed, or None if it was not."""
    read, write = os.pipe()
    timed = number % 4 == 3
    boundary = 0 if timed else 1 + (7 * number) % 400
    if number % 4 == 0:
        boundary = NAMED[number // 4 % len(NAMED)]
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            child(folder, run, boundary, write)
            os._exit(0)
        finally:
            os._exit(3)
    os.close(write)
    told = b""
    if timed:
        while b"open\n" not in told and select.select([read], [], [], 60)[0]:
            told += os.read(read, 4096)
        time.sleep(rng.uniform(0, 0.3))
        os.kill(pid, signal.SIGKILL)
    while part := os.read(read, 4096):
        told += part
    os.close(read)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        where = [line for line in told.decode().splitlines() if line != "open"]
        return (where or ["at any moment"])[0]
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"a child failed by itself, boundary {boundary}, told {told!r}")
    return None


def payments(book, federation):
    contents = [record.content for record in book.records(federation)]
    return [(c["round"], c["amounts"], c["statistics"]) for c in contents if c["kind"] == "round"]


def same(a, b):
    return all((numpy_of(a)[key] == numpy_of(b)[key]).all() for key in numpy_of(b))


def main(folder, kills, seed):
    rng = random.Random(seed)
    wrong, where, done, started, runs = [], Counter(), 0, 0, 0
    path = folder / "book.db"
    with Book.create(path) as book:
        whole = start(book, folder, "whole")
        expected = payments(book, "whole")
    while done < kills:
        run = f"run-{runs}"
        place = run_child(folder, run, started, rng)
        started += 1
        if place is not None:
            done += 1
            where[place] += 1
        with Book.open(path) as book:
            if run not in book.federations():
                continue
            report = verify(path, federation=run)
            if not report.ok:
                wrong.append([done, place, report.findings[0].message])
            booked = payments(book, run)
            if booked != expected[: len(booked)]:
                wrong.append([done, place, f"{booked} is booked"])
            if place is None:
                runs += 1
                if len(booked) < ROUNDS or not same(start(book, folder, run), whole):
                    wrong.append([done, place, f"{run} is not the run that nobody killed"])
    print(json.dumps({"kills": done, "where": dict(where), "runs": runs, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
