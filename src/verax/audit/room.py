"""Memory: what an audit needs, and how what it may use is shared out.

A worker is a process with Python, JAX and compiled programs in it; beside these it holds a batch of
runs or the tangents of one replica, which are as many models as there are blocks and deviating
clients. The command itself is one more process.
"""

from __future__ import annotations

from verax.audit.plan import Plan
from verax.learning.protocol import GRAM_LIMIT
from verax.learning.streaming import CHUNK_NUMBERS
from verax.mechanism import refined_blocks

__all__ = ["check_memory", "needed", "run_bytes", "share", "tangents_together"]

_PROCESS = 600 * 2**20  # measured: 0.4 to 0.7 GB, of which compiling takes the larger part
_NUMBER = 4  # bytes


def run_bytes(clients: int, parameters: int) -> int:
    """What one run needs at most while a round is computed: model, updates, messages, scratch."""
    updates = min(clients * parameters, max(GRAM_LIMIT * parameters, CHUNK_NUMBERS))  # or streamed
    return _NUMBER * (5 * updates + 6 * parameters)


def needed(plan: Plan, clients: int, parameters: int, workers: int, width: int = 1) -> int:
    """Bytes of an audit with so many runs in a batch, and one tangent at a time."""
    run = run_bytes(clients, parameters)
    each = max(width * run, 2 * run + _tangent_bytes(plan, parameters))
    return (workers + 1) * _PROCESS + workers * each


def share(memory: int, workers: int) -> int:
    """What is left of a memory for the runs of each worker."""
    return max(0, memory - (workers + 1) * _PROCESS) // workers


def tangents_together(plan: Plan, clients: int, parameters: int, share: int) -> int:
    """How many tangents a worker pushes through a round at once."""
    left = share - _tangent_bytes(plan, parameters)
    return max(1, left // run_bytes(clients, parameters) - 1)


def check_memory(memory: int, plan: Plan, clients: int, parameters: int, workers: int) -> None:
    """Refuse a memory in which the audit cannot be done."""
    wanted = needed(plan, clients, parameters, workers)
    if memory < wanted:
        tenths = -(-wanted * 10 // 2**30)
        raise ValueError(
            f"memory is {memory / 2**30:.3g}G, but {workers} workers need about "
            f"{wanted / 2**30:.3g}G for this task; give at least {tenths / 10}G, or fewer workers"
        )


def _tangent_bytes(plan: Plan, parameters: int) -> int:
    """All tangents, as they were, as they become, and on their way."""
    blocks = len(refined_blocks(plan.rounds, plan.per_halving))
    return 3 * _NUMBER * parameters * blocks * len(plan.deviators)
