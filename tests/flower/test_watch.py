"""`verax watch` and `verax audit --from-ledger`, on books of federations in this process."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from verax.audit.live import CANNOT_TELL, judge_live
from verax.ledger import Book, Report
from verax.ledger.money import format_units
from verax.mechanism import Weights

from .grid import But, Honest, numpy_of, reply_to, terms

VERAX = Path(sys.executable).parent / "verax"


def verax(*arguments, code=0):
    done = subprocess.run(
        [VERAX, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def in_terminal(*command):
    """What a command prints to a terminal of 24 lines and 80 columns."""
    master, slave = os.openpty()
    running = subprocess.Popen(
        command, stdout=slave, env=os.environ | {"LINES": "24", "COLUMNS": "80"}
    )
    os.close(slave)
    said = b""
    with contextlib.suppress(OSError):  # the terminal's end, once the command is gone
        while part := os.read(master, 1 << 16):
            said += part
    os.close(master)
    assert running.wait() == 0
    return said.decode()


def jumping(request, after):
    """Honest for seven rounds, then four times the update."""
    before = numpy_of(request.content["arrays"])
    factor = 4 if request.content["config"]["server-round"] > 7 else 1
    return reply_to(request, {k: before[k] + factor * (after[k] - before[k]) for k in before})


@pytest.fixture
def made(run, tmp_path):
    ran = run(
        But(1, jumping, examples=(10, 10, 10)),
        agreed=terms(weights=Weights("equal"), currency="EUR"),
        rounds=9,
        run="spring",
    )
    return ran, tmp_path / "book.db"


def test_watch_prints_a_line_a_round(made):
    _, path = made
    lines = verax("watch", path, "--once").splitlines()
    assert len(lines) == 9
    assert "round 9 of spring (EUR)" in lines[8]
    assert "ALARM: 1" in lines[7]
    assert "client-1" in lines[7]
    assert "ALARM" not in lines[6]


def test_watch_as_json(made):
    ran, path = made
    rows = [json.loads(line) for line in verax("watch", path, "--once", "--json").splitlines()]
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
    )
    time.sleep(2)
    assert follower.poll() is None
    run(run="summer", rounds=2)
    said, _ = follower.communicate(timeout=30)
    assert [line.split(" of ")[1].split()[0] for line in said.splitlines()] == [
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
        book.deposit("clinics", "m59", 123_456_789)
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
    assert "does not exist" in verax("watch", tmp_path / "none.db", code=2)
    assert "--every is 0" in verax("watch", tmp_path / "none.db", "--every", "0", code=2)


def test_audit_from_the_ledger(made):
    ran, path = made
    said = json.loads(verax("audit", "--from-ledger", path, "--json"))
    assert said["cannot_tell"] == list(CANNOT_TELL)
    assert (said["rounds"], said["charged"]) == (9, 9)
    members = {member["name"]: member for member in said["members"]}
    norms = np.array(
        [[ran.column("statistics", t)[f"client-{i}"] for i in range(3)] for t in range(1, 10)]
    )
    for i in range(3):
        own = members[f"client-{i}"]
        others = np.delete(norms, i, axis=1).mean(axis=1)
        assert own["margin"] == pytest.approx(float((norms[:, i] - others).sum()), rel=1e-9)
        assert own["paid"] == pytest.approx(0.5 * own["margin"], abs=1e-4)
        assert own["tax"] == pytest.approx(own["paid"] / 9, rel=1e-9)
    text = verax("audit", "--from-ledger", path)
    assert "Norms alone cannot tell" in text
    assert "nothing is said" in " ".join(text.split())


def test_audit_from_the_ledger_beside_a_matching_audit(made, tmp_path):
    _, path = made
    folder = tmp_path / "audit"
    folder.mkdir()
    ends = [(0.4, 0.6), (0.6, None), (None, None)]
    clients = [
        {"name": f"client {i}", "windows": [{"schedule": "constant", "low": low, "high": high}]}
        for i, (low, high) in enumerate(ends)
    ]
    (folder / "audit.json").write_text(json.dumps({"clients": clients}))
    said = json.loads(verax("audit", "--from-ledger", path, "--matching", folder, "--json"))
    assert [m["inside"] for m in sorted(said["members"], key=lambda m: m["name"])] == [
        True, False, False,
    ]  # fmt: skip
    (folder / "audit.json").write_text(json.dumps({"clients": clients[:2]}))
    assert "matching task" in verax("audit", "--from-ledger", path, "--matching", folder, code=2)


def test_a_drift_is_seen_and_its_size_is_right():
    rng = np.random.default_rng(0)
    rounds = []
    for t in range(60):
        level = np.exp(-0.03 * t) * np.array([1.0, 2.0, 3.0]) * np.exp(0.05 * rng.normal(size=3))
        level[2] *= 1.02**t
        rounds.append(
            {
                "accounts": [1, 2, 3], "statuses": {}, "gram": None, "price": [0.1],
                "statistics": level.tolist(), "amounts": [0, 0, 0],
            }
        )  # fmt: skip
    live = judge_live("f", "r", rounds, {1: "a", 2: "b", 3: "c"}, "EUR", 2)
    low, high = live.members[2].drift_interval
    assert low < np.log(1.02) < high
    assert low > 0
    assert "drifts" in " ".join(live.sentences())


def test_honest_rounds_only(run, tmp_path):
    run(Honest(), rounds=2)
    assert "2 rounds, 2 charged" in " ".join(
        verax("audit", "--from-ledger", tmp_path / "book.db").split()
    )


def test_watch_draws_a_table_in_a_terminal(made):
    _, path = made
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        running = subprocess.Popen(
            [VERAX, "watch", path, "--once"],
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        )
        os.close(theirs)
        shown = b""
        try:
            while part := screen.read(4096):
                shown += part
        except OSError:  # the terminal is gone with the process
            pass
        assert running.wait(30) == 0
    text = shown.decode()
    assert "round 9 of run spring" in text
    assert "squared norm" in text
    assert "ALARM round 8 of spring: client-1 sent" in text
