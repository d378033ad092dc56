"""Faults for real: processes are killed in mid-round, and the book stays right."""

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from .engines import Federation, descendants

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("faults") / "fed") as made:
        yield made


def test_kill_a_supernode_in_mid_round(federation):
    running = federation.begin(
        num_server_rounds=2, evaluate="false", run_name="supernode", pause=8.0, timeout=45.0
    )
    # It trains (and sleeps) in a process of its own below the SuperNode.
    node = federation.pid("node1")
    federation.until(lambda: any("clientapp" in c for c in descendants(node).values()))
    federation.script("stop", "node1", "--hard")
    federation.until(lambda: ("supernode", 1) in federation.rounds())
    federation.script("start", "node1")
    assert running.wait(180) == 0, federation.logs()
    labels, contents = federation.contents()
    first, second = [c for c in contents if c["run"] == "supernode"]
    statuses = {labels[int(n)]: status for n, status in first["statuses"].items()}
    assert statuses in ({"client-1": "missing"}, {"client-1": "error"})
    assert len(labels) == 3, "the same key is the same member"
    assert len(second["accounts"]) in (2, 3)
    federation.verified()


def test_kill_the_serverapp_between_aggregate_and_post(federation):
    """The book is locked, so that the ServerApp waits to post; then it is killed."""
    kept = federation.folder / "kept"
    config = {"num_server_rounds": 2, "evaluate": "false", "run_name": "serverapp"}
    before = federation.rounds()
    running = federation.begin(**config, checkpoints=kept)
    federation.until(lambda: ("serverapp", 1) in federation.rounds())
    lock = sqlite3.connect(federation.folder / "book.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    try:
        # The model is written just before the post, and gets its name just after.
        federation.until(lambda: list((kept / "serverapp").glob("round-000000002.*.staged.npz")))
        below = descendants(federation.pid("superlink"))
        (victim,) = [pid for pid, c in below.items() if "serverapp" in c and is_leaf(pid, below)]
        os.kill(victim, signal.SIGKILL)
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    running.wait(120)
    assert federation.rounds() == [*before, ("serverapp", 1)]
    federation.verified()
    said = federation.run(**config, checkpoints=kept)
    assert "resumes after round 1" in said
    assert federation.rounds() == [*before, ("serverapp", 1), ("serverapp", 2)]
    federation.verified()


def is_leaf(pid, below):
    return not descendants(pid).keys() & below.keys()


def test_restart_the_superlink_with_its_database(federation):
    kept = federation.folder / "kept"
    config = {"num_server_rounds": 2, "evaluate": "false", "run_name": "superlink"}
    running = federation.begin(**config, checkpoints=kept, pause=3.0)
    federation.until(lambda: ("superlink", 1) in federation.rounds())
    federation.script("stop", "superlink", "--hard")
    running.wait(120)
    federation.verified()
    federation.script("start", "superlink")
    said = federation.run(**config, checkpoints=kept)
    assert "resumes after round 1" in said
    assert [t for run, t in federation.rounds() if run == "superlink"] == [1, 2]
    labels, _ = federation.contents()
    assert sorted(labels.values()) == ["client-0", "client-1", "client-2"]
    federation.verified()
    assert Path(federation.folder / "superlink.db").exists()
