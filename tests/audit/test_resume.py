"""`verax audit` as a process: killed and resumed, its tables are those of an undisturbed run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.command import verax
from verax.audit.run.record import read_part

VERAX = Path(sys.executable).with_name("verax")
COMMAND = ["audit", "--model", "softmax", "--rounds", "150", "--scales", "0.5,1,3", "--phases="]
COMMAND += ["--surges", "5", "--surge-rounds", "1,60", "--noises", "0.5"]
COMMAND += ["--setting-seeds", "1", "--choosing-seeds", "1", "--judging-seeds", "2"]
COMMAND += ["--deviating", "0"]
COMMAND += ["--rules", "squared-norm", "--protocol", "fedsgd", "--block-scales=", "--absences="]
COMMAND += ["--momenta=", "--batches=", "--pushes=", "--tilts=", "--search", "off"]


def start(folder, *more):
    return subprocess.Popen(
        [VERAX, *COMMAND, "--out", folder, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def content(folder):
    return [pq.read_table(folder / f"{name}.parquet") for name in ("runs", "rounds")]


def equal(one, other):
    return all(a.equals(b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "audit"
    done = verax([*COMMAND, "--out", folder, "--json", "--workers", "1"])
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def finished_batches(folder):
    return len(list((folder / "work").glob("batch-*.runs.arrow")))


@pytest.mark.parametrize("batches", [*(pytest.param(k, marks=pytest.mark.slow) for k in (0, 1)), 4])
def test_killed_and_resumed(undisturbed, tmp_path, batches):
    """SIGKILL to the whole process group once so many batches are done; then to the end."""
    folder = tmp_path / "audit"
    process = start(folder)
    while not (folder / "work" / "claims").exists() and process.poll() is None:
        time.sleep(0.01)
    while finished_batches(folder) < batches and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "runs.parquet").exists()
    process = start(folder, "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert equal(content(folder), content(undisturbed[0]))
    assert json.loads(out)["clients"] == undisturbed[1]["clients"]
    assert not (folder / "work").exists()


def stopped_in_mid_run(tmp_path):
    """Ctrl-C after the first batch and before the last; a run too quick to hit is tried again."""
    for attempt in range(5):
        folder = tmp_path / f"audit-{attempt}"
        process = start(folder)
        while not list((folder / "work").glob("batch-*.runs.arrow")) and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        if process.returncode != 0:
            return folder, process.returncode, err
    raise AssertionError("five runs ended before they could be stopped")


@pytest.mark.slow
def test_ctrl_c_keeps_finished_work(undisturbed, tmp_path):
    folder, code, err = stopped_in_mid_run(tmp_path)
    assert code == 130, err
    assert "stopped; the same command goes on from here" in err
    assert list((folder / "work").glob("batch-*.runs.arrow"))
    process = start(folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert equal(content(folder), content(undisturbed[0]))


@pytest.mark.slow
def test_a_dead_worker_is_reported_and_its_work_taken_up(undisturbed, tmp_path):
    folder = tmp_path / "audit"
    process = start(folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        if len(found) >= 1 and (folder / "work").exists():
            break
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(int(found[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 2, err
    assert "a worker ended with code -9" in err
    process = start(folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert equal(content(folder), content(undisturbed[0]))


def test_verdict_and_exit_codes(undisturbed):
    """Without --fail-if-gain the exit code is 0, whatever was found; the fixture checks that."""
    folder, found = undisturbed
    strict = verax([*COMMAND, "--out", folder, "--fail-if-gain"])
    assert "Report:" in strict.stdout
    assert strict.returncode == (3 if found["window"] is None else 0)


def test_a_full_disk_is_told_and_leaves_no_half_file(tmp_path):
    """A file system of 300 kB: the audit says so; what is there is whole."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", small],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here (run as root: mount -t tmpfs)")
    try:
        process = start(small / "audit", "--workers", "1")
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "No space left" in err
        assert not list(small.rglob("*.part"))
        for table in small.rglob("*.arrow"):
            read_part(table)
    finally:
        subprocess.run(["umount", small], check=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--scales 0.5,2", "lacks 1"),
        ("--scales x", "--scales is 'x', must be numbers separated by commas"),
        ("--clients 1", "clients is 1"),
        ("--clients 1700", "more than half of the 1797 samples"),
        ("--rounds -1", "rounds is -1"),
        ("--rounds 1000000000000", "must be 1 … 1,000,000"),
        ("--aggregator krum:9", "of 3 clients at most 1 can be"),
        ("--rules no.such:rule", "cannot be imported"),
        ("--task chess", "task is 'chess'"),
        ("--aggregator vote", "aggregator is 'vote'"),
        ("--memory lots", "memory is 'lots'"),
        ("--memory 400K --workers 2", "give at least 1.8G, or fewer workers"),
        ("--plan absent.toml", "absent.toml"),
        ("--tolerance nan", "tolerance is nan"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(options, message, tmp_path):
    done = verax(f"audit --out here {options}", tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "here").exists()
