"""A worker of an app's audit as a process of its own: `python -m verax.apps.process FOLDER K`.

It ends after the run that it is computing when it is told to stop.
"""

from __future__ import annotations

import sys
from pathlib import Path

from verax.apps.engine import AppEngine
from verax.audit.run.process import work

if __name__ == "__main__":
    work(Path(sys.argv[1]).resolve(), int(sys.argv[2]), AppEngine)
