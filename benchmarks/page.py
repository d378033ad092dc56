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


def write_section(name: str, text: str) -> None:
    """Put the text between `<!-- name -->` and `<!-- end of name -->`."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{PAGE.name} has no {begin} … {end}")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    PAGE.write_text(f"{before}{begin}\n\nMachine: {machine}.\n\n{text}\n\n{end}{after}", "utf-8")
