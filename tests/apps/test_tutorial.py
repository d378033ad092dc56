"""The commands of the tutorial, in their order, as a reader would type them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verax.ledger import Book

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    page = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.S)
    lines = [line for line in "".join(blocks).splitlines() if not line.startswith("pip ")]
    script = "\n".join(["set -e", *lines])
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    folder = tmp_path / "examples" / "flower-hospitals"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "nothing wrong found" in done.stdout
    with Book.open(folder / "federation" / "book.db", read_only=True) as book:
        honest, tripled = (book.balances(name)["client 0"] for name in ("honest", "tripled"))
    assert tripled - honest == pytest.approx(0.0541e6, rel=0.1)
