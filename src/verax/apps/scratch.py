"""Apps write files and print: both go to a scratch folder, not among the user's files."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from verax.quiet import NO_TELEMETRY


@contextmanager
def in_scratch(folder: Path, log: Path) -> Generator[None]:
    """Work in another folder; what is printed, also by libraries, goes to a log file."""
    os.environ.update(NO_TELEMETRY)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    log.parent.mkdir(parents=True, exist_ok=True)
    before, outputs = Path.cwd(), [os.dup(1), os.dup(2)]
    with log.open("ab") as file:
        os.chdir(folder)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.chdir(before)
            for number, saved in enumerate(outputs, start=1):
                os.dup2(saved, number)
                os.close(saved)
