"""`verax watch` on books of federations in this process."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from verax.ledger import Book, Report
from verax.ledger.money import format_units

from ..command import verax
from .grid import terms

VERAX = Path(sys.executable).parent / "verax"


def in_terminal(*command, columns=80):
    """What a command prints to a terminal of 24 lines."""
    master, slave = os.openpty()
    terminal = {"TERM": "xterm", "LINES": "24", "COLUMNS": str(columns)}
    running = subprocess.Popen(command, stdout=slave, env=os.environ | terminal)
    os.close(slave)
    said = b""
    with contextlib.suppress(OSError):  # the terminal's end, once the command is gone
        while part := os.read(master, 1 << 16):
            said += part
    os.close(master)
    assert running.wait() == 0
    return said.decode()


def test_watch_prints_a_line_a_round(jumping_run):
    _, path = jumping_run
    lines = verax(["watch", path, "--once"]).stdout.splitlines()
    assert len(lines) == 9
    assert "round 9 of spring (EUR)" in lines[8]
    assert "ALARM: 1" in lines[7]
    assert "client-1" in lines[7]
    assert "ALARM" not in lines[6]


def test_watch_as_json(jumping_run):
    ran, path = jumping_run
    said = verax(["watch", path, "--once", "--json"]).stdout
    rows = [json.loads(line) for line in said.splitlines()]
    assert [row["round"] for row in rows] == list(range(1, 10))
    last = {member["member"]: member for member in rows[-1]["members"]}
    assert last["client-1"]["norm"] == ran.column("statistics", 9)["client-1"]
    assert sum(member["balance"] for member in last.values()) == 0


def test_watch_follows_a_federation_that_runs(run, tmp_path):
    run(run="spring", rounds=1)
    follower = subprocess.Popen(
        [VERAX, "watch", tmp_path / "book.db", "--every", "0.1", "--rounds", "3"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    first = follower.stdout.readline()
    assert follower.poll() is None
    run(run="summer", rounds=2)
    rest, _ = follower.communicate(timeout=300)
    assert [line.split(" of ")[1].split()[0] for line in [first, *rest.splitlines()]] == [
        "spring", "summer", "summer",
    ]  # fmt: skip


def test_watch_in_a_terminal_with_more_members_than_lines(tmp_path):
    """Who needs attention and who pays most stay in view; balances count deposits too."""
    path = tmp_path / "book.db"
    with Book.create(path) as book:
        book.create_federation("clinics", terms())
        reports = [Report(f"m{i:02d}", statistic=1 + i / 100) for i in range(60)]
        reports[7] = Report("m07", "rejected", reason="holds NaN")
        book.post("clinics", "spring", 1, reports)
        book.deposit("clinics", "m59", 123_456_789, reference="d")
    said = in_terminal(VERAX, "watch", path, "--once")
    last = said[said.rindex("round 1 of run spring") :]
    assert "and 48 members more" in last
    assert "m07" in last
    assert "rejected: holds NaN" in last
    assert "m59" in last
    assert "m30" not in last
    with Book.open(path) as book:
        owed = format_units(book.balances("clinics")["m59"], book.terms("clinics").scale)
    assert owed in last


def test_watch_says_what_is_wrong(tmp_path):
    missing = verax(["watch", tmp_path / "none.db"])
    assert missing.returncode == 2
    assert "does not exist" in missing.stderr
    assert "--every is 0" in verax(["watch", tmp_path / "none.db", "--every", "0"]).stderr


def test_watch_draws_a_table_in_a_terminal(jumping_run):
    _, path = jumping_run
    text = in_terminal(VERAX, "watch", path, "--once", columns=120)
    assert "round 9 of run spring" in text
    assert "squared norm" in text
    assert "ALARM round 8 of spring: client-1 sent" in text
