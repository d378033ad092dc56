"""The wheel, installed with each extra into an empty environment, gives a working command."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"test", "lint", "docs", "build"}
EXTRAS = ["", *sorted(PROJECT["optional-dependencies"].keys() - FOR_DEVELOPERS)]

pytestmark = pytest.mark.slow  # gigabytes are installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("verax_fl-*.whl")
    return built


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_wheel_works_with_each_extra(wheel, extra, tmp_path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    pip = [str(environment / "bin" / "pip"), "install", "-qq", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, wanted], check=True, cwd=tmp_path)
    try:
        command = [str(environment / "bin" / "verax"), "doctor", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        found = {one["name"]: one["version"] for one in json.loads(done.stdout)}
        assert not extra or found[f"extra {extra}"]
    finally:
        shutil.rmtree(environment)
