"""The memory of an audit: how much it needs, and how what it may use is shared out.

A worker is a process with Python, JAX and compiled programs in it; beside these it holds a batch of
runs. The command itself is one more process.
"""

from __future__ import annotations

from verax.learning.round import GRAM_LIMIT
from verax.learning.streaming import MemoryLimits

_PROCESS = 600 * 2**20  # measured: 0.4 to 0.7 GB, most of it for compiling
_NUMBER = 4  # bytes


def run_bytes(clients: int, parameters: int) -> int:
    """What one run needs at most while a round is computed: model, updates, messages, scratch."""
    updates = min(clients * parameters, max(GRAM_LIMIT * parameters, MemoryLimits().chunk))
    return _NUMBER * (5 * updates + 6 * parameters)


def needed(clients: int, parameters: int, workers: int, width: int = 1) -> int:
    """Bytes of an audit whose workers compute so many runs in a batch."""
    return (workers + 1) * _PROCESS + workers * width * run_bytes(clients, parameters)


def memory_for_runs(memory: int, workers: int) -> int:
    """What is left of a memory for the runs of each worker."""
    return max(0, memory - (workers + 1) * _PROCESS) // workers


def check_memory(memory: int, clients: int, parameters: int, workers: int) -> None:
    """Refuse a memory in which the audit cannot be done."""
    wanted = needed(clients, parameters, workers)
    if memory < wanted:
        tenths = -(-wanted * 10 // 2**30)
        raise ValueError(
            f"memory is {memory / 2**30:.3g}G, but {workers} workers need about "
            f"{wanted / 2**30:.3g}G for this task; give at least {tenths / 10}G, or fewer workers"
        )
