"""Writers killed at every boundary: the book opens, verifies, and keeps what was acknowledged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("kill_driver.py")
BOUNDARIES = {
    "before INSERT", "after INSERT", "before UPDATE", "after UPDATE", "before SELECT",
    "after SELECT",
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


@pytest.mark.parametrize("kills", [80, pytest.param(520, marks=pytest.mark.slow)])
def test_sqlite(path, capsys, kills):
    result = kill(path, kills, 1, capsys, "SQLite")
    assert result["where"]["before BEGIN"] > 0
    assert result["complete_but_unreported"] > 0  # killed after the commit, before the report


@pytest.mark.parametrize("kills", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_postgres(new_postgres, capsys, kills):
    kill(new_postgres(), kills, 3, capsys, "PostgreSQL")
