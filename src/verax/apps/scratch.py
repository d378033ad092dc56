"""Apps write files and print: both go to a scratch folder, not among the user's files."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

#: Flower sends no usage statistics, and looks for no newer version, because of an audit.
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


@contextmanager
def in_scratch(log: Path) -> Generator[None]:
    """Work in an empty folder that is removed afterwards; what is printed goes to a log file."""
    os.environ.update(_QUIET)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    log.parent.mkdir(parents=True, exist_ok=True)
    before, outputs = Path.cwd(), [os.dup(1), os.dup(2)]
    with tempfile.TemporaryDirectory(prefix="verax-app-") as folder, log.open("ab") as file:
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
