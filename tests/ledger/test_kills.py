"""Writers killed at every boundary: the book opens, verifies, and keeps what was acknowledged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("kill_driver.py")
BOUNDARIES = {
    "before INSERT", "after INSERT", "before UPDATE", "after UPDATE", "before SELECT",
    "before COMMIT", "after COMMIT", "after receipt", "at any moment",
}  # fmt: skip


def kill(url, kills, seed, capsys, name):
    done = subprocess.run(
        [sys.executable, DRIVER, url, str(kills), str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n[{name}: {result['kills']} kills {result['where']}]", end="")
    assert result["wrong"] == []
    assert result["kills"] >= kills
    assert set(result["where"]) >= BOUNDARIES
    return result


@pytest.mark.parametrize("seed", [1, 2])
def test_sqlite(path, capsys, seed):
    result = kill(path, 260, seed, capsys, "SQLite")
    assert result["where"]["before BEGIN"] > 0
    assert result["whole_but_untold"] > 0  # killed after the commit, before the receipt


def test_postgres(new_postgres, capsys):
    kill(new_postgres(), 110, 3, capsys, "PostgreSQL")
