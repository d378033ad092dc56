"""A server killed at every boundary: no round is lost, repeated or charged twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BOUNDARIES = {
    "before COMMIT",
    "os.rename",
    "before fsync",
    "trained",
    "aggregated",
    "at any moment",
}


@pytest.mark.parametrize("kills", [30, pytest.param(90, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_ends_as_one_that_is_not(tmp_path, capsys, kills):
    done = subprocess.run(
        [sys.executable, "-m", "tests.flower.kill_driver", tmp_path, str(kills), "1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n[Flower: {kills} kills of {result['runs']} runs {result['where']}]", end="")
    assert result["wrong"] == []
    assert result["kills"] >= kills
    assert set(result["where"]) >= BOUNDARIES
