"""Peers in processes of their own: one core, one thread, nothing sent, a line of JSON back.

Thread pools are sized when a library is loaded, so the sizes are in the environment before the
script starts. XLA makes a thread per core that it sees, hence also the affinity.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import Any

from environments import NotAvailable

_POOLS = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def line_of(command: list[str], *, one_core: bool = True) -> Any:
    """The JSON that the command prints last, or `NotAvailable` with the reason."""
    # Ray may still be closing its files when the folder goes.
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as home:
        threads = {f"{pool}_NUM_THREADS": "1" for pool in _POOLS}
        homes = {"FLWR_HOME": home, "RAY_TMPDIR": home}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | threads | _QUIET | homes,
            preexec_fn=_stay_on_one_core if one_core else None,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise NotAvailable((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(lines[-1])


def _stay_on_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
