"""The same audit on Ray: equal records, whatever the number of workers, also when one is killed."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.audit.test_resume import content, equal, start


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "audit"
    process = start(folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return content(folder)


def workers(driver):
    """Processes of workers: descendants of the driver that Ray named after the actor."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = status.read_bytes().replace(b"\0", b" ").decode()
            session = os.getsid(int(status.parent.name))
        except (OSError, ValueError):
            continue
        if "ray::" in words and "_RemoteWorker" in words and session == driver:
            found.append(int(status.parent.name))
    return found


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(local, tmp_path):
    folder = tmp_path / "audit"
    process = start(folder, "--on", "ray", "--workers", "2")
    killed = None
    deadline = time.monotonic() + 120
    while killed is None and time.monotonic() < deadline and process.poll() is None:
        if list((folder / "work").glob("batch-*.runs.arrow")) and (found := workers(process.pid)):
            killed = found[0]
            os.kill(killed, signal.SIGKILL)
        time.sleep(0.05)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert killed is not None
    assert equal(content(folder), local)


@pytest.mark.slow
def test_a_killed_driver_goes_on(local, tmp_path):
    folder = tmp_path / "audit"
    process = start(folder, "--on", "ray", "--workers", "1")
    while not list((folder / "work").glob("batch-*.runs.arrow")) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "runs.parquet").exists()
    process = start(folder, "--on", "ray", "--workers", "2")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert equal(content(folder), local)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("cloud", "on is 'cloud', must be ray"),
        # Ray itself waits for half a minute
        pytest.param("ray://127.0.0.1:9", "no Ray cluster at ray://", marks=pytest.mark.slow),
    ],
)
def test_no_such_cluster(tmp_path, where, words):
    process = start(tmp_path / "audit", "--on", where)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert words in err
    assert "Traceback" not in err
