"""Measured tables on the page of speed, each between marks of its own, with the machine's words."""

from __future__ import annotations

import os
import platform
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def read_section(name: str) -> str:
    """What stands between `<!-- name -->` and `<!-- end of name -->`."""
    return _parts(name)[1]


def write_section(name: str, text: str) -> None:
    """Put the text, and what machine this is, between the marks."""
    before, _, after = _parts(name)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    PAGE.write_text(f"{before}\n\nMachine: {machine}.\n\n{text}\n\n{after}", "utf-8")


def _parts(name: str) -> tuple[str, str, str]:
    """The page up to the first mark, between the two, and from the second on."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    between, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{PAGE.name} has no {begin} … {end}")
    return before + found, between, closed + after
