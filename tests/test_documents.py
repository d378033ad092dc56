"""Every Python example in the README and the docs runs, and prints what the text says it does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verax.mechanism import Terms

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENV = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

# The same audit as README's, with options.
LONG = ("console", "docs/how-to/audit.md-0")


def blocks(language):
    return list(_blocks(language))


def _blocks(language):
    for page in PAGES:
        for k, match in enumerate(
            re.finditer(rf"```{language}\n(.*?)```(.*?)(?=```|\Z)", page.read_text(), re.S)
        ):
            name = f"{page.relative_to(ROOT)}-{k}"
            marks = [pytest.mark.slow] if (language, name) == LONG else []
            yield pytest.param(match[1], match[2], id=name, marks=marks)


@pytest.mark.parametrize(("code", "after"), blocks("python"))
def test_python_examples(code, after, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    if said := re.match(r"\s*prints `([^`]+)`", after):
        assert said[1] in done.stdout


@pytest.mark.parametrize(
    "code", [block.values[0] for block in blocks("toml") if "how-to/terms.md" in block.id]
)
def test_terms_of_the_documents_are_terms(code):
    Terms.from_toml(code)


@pytest.mark.parametrize(("code", "after"), blocks("console"))
def test_console_examples(code, after, tmp_path):
    commands = code.replace("\\\n", " ").splitlines()
    for command in (line for line in commands if line.startswith("verax ")):
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, cwd=tmp_path, env=ENV, check=False
        )
        assert done.returncode == 0, done.stderr


def test_make_targets_of_the_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        assert set(re.findall(r"^make ([a-z-]+)", page.read_text(), re.M)) <= targets
