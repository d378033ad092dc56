"""An audit's work, cut into batches of runs that can be done, saved and resumed one by one.

Runs of one seed that begin to differ from honesty only late begin there: from the honest run's
state at a *branch* round, with the same numbers as if they had been run from the start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from verax.audit.plan import Plan
from verax.audit.room import run_bytes, tangents_together
from verax.game import Levels, Reporting, ScaleAndNoise, Timed
from verax.learning import Simulator, honest
from verax.learning.outer import CACHE_NUMBERS

__all__ = ["Batch", "Run", "all_runs", "batch_width", "batches", "branches", "layout", "levels_of"]

# A batch works on as many numbers (parameters × clients × runs) at once as a core's cache holds.
# Larger batches gain nothing on a CPU, smaller ones pay for starting each operation. A few runs
# still gain when they are larger: what depends on the samples alone is computed once for all.
_WIDEST = 16
_FEW_NUMBERS = 1_500_000
_FEW = 4


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        number: its place in the tables.
        seed: its replica.
        role: honest; a deviation of one client; or the control of a deviation, in which all
            clients' updates are enlarged so that the summed step is the same.
        client: who deviates, or −1.
        reporting: what it sends.
        branch: rounds before which it equals the honest run of its seed.
        aggregator: "" for the audited one, else the name of a robust one.
    """

    number: int
    seed: int
    role: Literal["honest", "deviation", "control"]
    client: int
    reporting: Reporting
    branch: int
    aggregator: str = ""


@dataclass(frozen=True)
class Batch:
    """Runs that are computed together: one seed, one branch, one aggregator."""

    number: int
    runs: tuple[Run, ...]
    width: int

    @property
    def padded(self) -> tuple[Run, ...]:
        """The runs, the last repeated until the batch is as wide as others: compiled once."""
        return self.runs + self.runs[-1:] * (self.width - len(self.runs))

    @property
    def first(self) -> Run:
        """The honest run if there is one; seed, branch and aggregator are the same for all."""
        return self.runs[0]


def branches(plan: Plan, segment: int) -> list[int]:
    """Rounds at which runs may leave the honest one: whole segments, few of them."""
    shares = (0.0, 0.5, 0.8, 0.95)
    return sorted({int(share * plan.rounds) // segment * segment for share in shares})


def all_runs(plan: Plan, segment: int) -> list[Run]:
    """Every run of the judging seeds: honest, deviations of each deviator, controls, robust."""
    found: list[Run] = []
    cuts = branches(plan, segment)
    truth = ScaleAndNoise(1.0, 0.0)

    def add(seed: int, role: str, client: int, reporting: Reporting, aggregator: str) -> None:
        branch = max(cut for cut in cuts if cut <= _honest_until(reporting, plan.rounds))
        if role == "honest":
            branch = 0
        found.append(
            Run(len(found), seed, role, client, reporting, branch, aggregator)  # pyright: ignore
        )

    for aggregator in ("", *plan.robust):
        for seed in plan.seeds_to_judge:
            add(seed, "honest", -1, truth, aggregator)
            for reporting in plan.deviations():
                if not aggregator and isinstance(reporting, ScaleAndNoise) and reporting.b == 0:
                    add(seed, "control", -1, reporting, aggregator)
                for client in plan.deviators:
                    add(seed, "deviation", client, reporting, aggregator)
    return found


def batches(
    runs: list[Run], rounds: int, clients: int, parameters: int, memory: int
) -> list[Batch]:
    """Runs of T rounds in batches that fit the cache and the memory (bytes)."""
    groups: dict[tuple[str, bool, int, int], list[Run]] = {}
    for run in runs:
        plain = isinstance(run.reporting, ScaleAndNoise | Timed) and not getattr(
            run.reporting, "b", 0
        )
        key = (run.aggregator, not plain, run.branch, run.seed)
        groups.setdefault(key, []).append(run)
    # Groups that differ in branch and seed alone share a compiled program, so one width.
    programs: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    for key, group in groups.items():
        programs.setdefault(key[:2], []).append((len(group), rounds - key[2]))
    most = batch_width(clients, parameters, memory)
    widths = {program: _least_filled(alike, most) for program, alike in programs.items()}
    result: list[Batch] = []
    for key in sorted(groups):
        group, wide = groups[key], widths[key[:2]]
        result += [
            Batch(len(result) + k // wide, tuple(group[k : k + wide]), wide)
            for k in range(0, len(group), wide)
        ]
    return result


def _least_filled(groups: list[tuple[int, int]], most: int) -> int:
    """The width at which groups of so many runs, of so many rounds each, are filled up least.

    From half of the most on, for narrow batches are slower; the wider of two that are as good.
    """
    most = min(most, max(count for count, _ in groups))

    def computed(width: int) -> int:
        return sum(-(-count // width) * width * rounds for count, rounds in groups)

    return min(range(most, most // 2, -1), key=computed)


def layout(plan: Plan, simulator: Simulator, folder: Path) -> tuple[list[Batch], int]:
    """The batches of an audit, and how many tangents go together.

    Both are cut by the memory that was written down when it began.
    """
    memory = json.loads((folder / "work" / "settings.json").read_text())["memory"]
    clients, parameters = simulator.task.clients, simulator.parameters
    found = batches(all_runs(plan, simulator.segment), plan.rounds, clients, parameters, memory)
    return found, tangents_together(plan, clients, parameters, memory)


def batch_width(clients: int, parameters: int, memory: int) -> int:
    """How many runs a batch holds: as the cache likes it, and no more than the memory allows."""
    numbers = clients * parameters
    wanted = max(CACHE_NUMBERS // numbers, min(_FEW, _FEW_NUMBERS // numbers))
    allowed = memory // run_bytes(clients, parameters)
    return max(1, min(wanted, allowed, _WIDEST))


def levels_of(run: Run, simulator: Simulator) -> list[Levels]:
    """What every client does in a run, laid out over the rounds."""
    T, N = simulator.rounds, simulator.task.clients
    # What a reporting draws in advance depends on the seed alone, as all noise does.
    levels = run.reporting.levels(T, np.random.default_rng([run.seed, 7]))
    if run.role == "control":
        enlarged = Levels((N - 1 + levels.a) / N, levels.b)
        return [enlarged] * N
    return [levels if client == run.client else honest(T) for client in range(N)]


def _honest_until(reporting: Reporting, rounds: int) -> int:
    """How many first rounds are honest for certain."""
    if isinstance(reporting, Timed) and reporting.a_early == 1:
        return reporting.first_late(rounds)
    return 0
