"""The training runs of an audit, and the batches in which they are computed.

Runs of one seed that are honest at first branch off the honest run: they begin from its state at a
*branch* round, with the same numbers as if they had been run from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from verax.audit.plan import Plan
from verax.audit.run.budget import run_bytes
from verax.game import Honest, Reporting, Scale, Stretch
from verax.learning import Behaviour

Role = Literal["honest", "deviation", "control", "probe"]

# A batch computes on as many numbers (parameters × clients × runs) at once as a core's cache holds.
# Larger batches gain nothing on a CPU, smaller ones pay for starting each operation. A few runs of
# a larger model still gain, because what depends on the samples alone is computed once for all.
CACHE_NUMBERS = 150_000
_WIDEST = 16
_FEW_NUMBERS = 1_500_000
_FEW_RUNS = 4

#: After which shares of the rounds the honest state is kept for runs that branch off there.
_KEPT_SHARES = tuple(1 - 0.5**k for k in range(1, 8))


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        number: its place in the tables.
        seed: its replica.
        role: honest; a deviation of one client; a probe, which sets the prices; or the control of
            a deviation, in which all clients' updates are enlarged so that the server's step is as
            large as under the deviation.
        client: who deviates, or −1.
        reporting: what it sends.
        branch: after how many rounds it branches off the honest run of its seed.
        aggregator: "" for the audited one, else the name of one to compare.
    """

    number: int
    seed: int
    role: Role
    client: int
    reporting: Reporting
    branch: int
    aggregator: str = ""

    def behaviour(self, clients: int) -> Behaviour:
        """What every client does in this run."""
        if self.role == "honest":
            return Behaviour()
        if self.role == "control":
            a, _ = self.reporting.constant or (1.0, 0.0)
            return Behaviour(Scale((clients - 1 + a) / clients), tuple(range(clients)))
        return Behaviour(self.reporting, (self.client,))


@dataclass(frozen=True)
class RunBatch:
    """Runs that are computed together: one seed, one branch, one aggregator, one program."""

    number: int
    runs: tuple[Run, ...]
    width: int

    @property
    def padded(self) -> tuple[Run, ...]:
        """The runs, the last one repeated until the batch has the width that was compiled."""
        return self.runs + self.runs[-1:] * (self.width - len(self.runs))

    @property
    def first(self) -> Run:
        """The honest run if there is one; seed, branch and aggregator are the same for all."""
        return self.runs[0]

    @property
    def name(self) -> str:
        """The beginning of the names of its files."""
        return f"batch-{self.number:05d}"


def branch_rounds(plan: Plan, segment: int) -> list[int]:
    """The rounds at which the state of honest runs is kept: ends of segments, closer at the end."""
    rounds, every = plan.rounds, plan.record.evaluate_every
    ends = [0]  # segments also end where the model is evaluated
    while ends[-1] < rounds:
        length = min(segment, every - ends[-1] % every) if every else segment
        ends.append(ends[-1] + length)
    kept = {max(end for end in ends if end <= share * rounds) for share in _KEPT_SHARES}
    return sorted({0} | {round_ for round_ in kept if round_ < rounds})


def all_runs(plan: Plan, segment: int) -> list[Run]:
    """Every run of the plan, in the order of their numbers."""
    runs: list[Run] = []
    cuts = branch_rounds(plan, segment)

    def add(seed: int, role: Role, client: int, reporting: Reporting, aggregator: str = "") -> None:
        honest = 0 if role in ("honest", "control") else reporting.honest_rounds(plan.rounds)
        branch = max(cut for cut in cuts if cut <= honest)
        runs.append(Run(len(runs), seed, role, client, reporting, branch, aggregator))

    for seed in plan.seeds.setting:
        add(seed, "honest", -1, Honest())
        for probe in probes(plan):
            for client in plan.deviators:
                add(seed, "probe", client, probe)
    for aggregator in ("", *plan.prices.robust):
        for seed in plan.seeds.judging if aggregator else plan.seeds.trying:
            add(seed, "honest", -1, Honest(), aggregator)
            for reporting in plan.tried:
                if not aggregator and reporting.constant and reporting.program is None:
                    add(seed, "control", -1, reporting)
                for client in plan.deviators:
                    add(seed, "deviation", client, reporting, aggregator)
    return runs


def probes(plan: Plan) -> list[Stretch]:
    """For each block of rounds, scales 1 + h and 1 − h in it, honest before and after."""
    h = plan.prices.probe
    return [
        Stretch(1 + sign * h, first, last) for first, last in plan.blocks.ranges for sign in (1, -1)
    ]


def batches_of(
    runs: list[Run], rounds: int, clients: int, parameters: int, memory: int
) -> list[RunBatch]:
    """Runs of T rounds in batches that fit the cache and the memory (bytes)."""
    groups: dict[tuple[str, Any, int, int], list[Run]] = {}
    for run in runs:
        program = (run.aggregator, run.behaviour(clients).program)
        groups.setdefault((*program, run.branch, run.seed), []).append(run)
    # Groups that differ in branch and seed alone share a compiled program, and so a width.
    by_program: dict[Any, list[tuple[int, int]]] = {}
    for key, group in groups.items():
        by_program.setdefault(key[:2], []).append((len(group), rounds - key[2]))
    widest = batch_width(clients, parameters, memory)
    widths = {program: _least_padded(sizes, widest) for program, sizes in by_program.items()}
    batches: list[RunBatch] = []
    for key, group in sorted(groups.items(), key=lambda item: item[1][0].branch):
        width = widths[key[:2]]
        for k in range(0, len(group), width):
            batches.append(RunBatch(len(batches), tuple(group[k : k + width]), width))
    return batches


def _least_padded(groups: list[tuple[int, int]], widest: int) -> int:
    """The batch width that wastes the fewest padded runs, for groups of (runs, rounds).

    Narrow batches are slower, so only widths from half of the widest on are considered.
    """
    widest = min(widest, max(count for count, _ in groups))

    def computed(width: int) -> int:
        return sum(-(-count // width) * width * rounds for count, rounds in groups)

    return min(range(widest, widest // 2, -1), key=computed)


def batch_width(clients: int, parameters: int, memory: int) -> int:
    """How many runs a batch may hold: as the cache likes it, and no more than the memory allows."""
    numbers = clients * parameters
    wanted = max(CACHE_NUMBERS // numbers, min(_FEW_RUNS, _FEW_NUMBERS // numbers))
    allowed = memory // run_bytes(clients, parameters)
    return max(1, min(wanted, allowed, _WIDEST))
