"""The command `verax` in this process: as a shell would see it, without starting a Python."""

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import NamedTuple

from verax.cli.main import main


class Done(NamedTuple):
    """What a finished command left."""

    returncode: int
    stdout: str
    stderr: str


def verax(command, cwd=None):
    """Run `verax COMMAND`; words are split at spaces."""
    words = command.split() if isinstance(command, str) else [str(word) for word in command]
    before, folder = sys.argv, Path.cwd()
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["verax", *words]
    try:
        os.chdir(cwd or folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code
    finally:
        sys.argv = before
        os.chdir(folder)
    return Done(code or 0, out.getvalue(), err.getvalue())
