"""Every Python example in the README and the docs runs, and prints what the text says it does."""

import contextlib
import io
import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.command import verax
from verax.mechanism import Terms

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
THREATS = ROOT / "docs/theory/threats.md"

# Whole audits in worker processes; test_resume runs one in every suite.
LONG = [("console", "README.md-1"), ("console", "docs/how-to/audit.md-0")]


def blocks(language):
    return list(_blocks(language))


def _blocks(language):
    for page in PAGES:
        for k, match in enumerate(
            re.finditer(rf"```{language}\n(.*?)```(.*?)(?=```|\Z)", page.read_text(), re.S)
        ):
            name = f"{page.relative_to(ROOT)}-{k}"
            marks = [pytest.mark.slow] if (language, name) in LONG else []
            yield pytest.param(match[1], match[2], id=name, marks=marks)


@pytest.mark.parametrize(("code", "after"), blocks("python"))
def test_python_examples(code, after, tmp_path, monkeypatch):
    """As a script of its own, but in this process, which has loaded the libraries already."""
    monkeypatch.chdir(tmp_path)
    script, out = tmp_path / "example.py", io.StringIO()
    script.write_text(code)
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(script), run_name="__main__")
    if said := re.match(r"\s*prints `([^`]+)`", after):
        assert said[1] in out.getvalue()


@pytest.mark.parametrize(
    "code", [block.values[0] for block in blocks("toml") if "how-to/terms.md" in block.id]
)
def test_terms_of_the_documents_are_terms(code):
    Terms.from_toml(code)


@pytest.mark.parametrize(("code", "after"), blocks("console"))
def test_console_examples(code, after, tmp_path):
    commands = code.replace("\\\n", " ").splitlines()
    for command in (line for line in commands if line.startswith("verax ")):
        done = verax(shlex.split(command, comments=True)[1:], tmp_path)
        assert done.returncode == 0, done.stderr


def test_make_targets_of_the_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        assert set(re.findall(r"^make ([a-z-]+)", page.read_text(), re.M)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page):
    """Files and pictures exist; `make docs` checks the anchors within pages."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), target


def test_every_row_of_the_threats_names_tests_that_exist():
    rows = [line for line in THREATS.read_text().splitlines() if line.startswith("|")]
    named = 0
    for row in rows:
        file = None
        for path, test in re.findall(r"`([\w/]*(?:\.py)?)(?:::(\w+))?`", row.split("|")[-2]):
            file = ROOT / "tests" / path if path else file
            assert file.is_file(), row
            if test:
                assert f"def {test}(" in file.read_text(), test
            named += 1
    assert named > 30
