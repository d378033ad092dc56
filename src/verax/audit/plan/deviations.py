"""The misreports that an audit tries, each by one client alone, against honest others.

Constant scales (as in the paper), two phases (under-report or sabotage early, over-report late),
scales in the last rounds down to the very last, other and reversed scales in each block, noise,
less noise (momentum of own updates, larger batches), pushed and tilted updates, absence, and any
other reporting that is listed.
"""

from __future__ import annotations

from dataclasses import dataclass

from verax.documents import option
from verax.game import (
    Absent,
    Honest,
    LargerBatch,
    Policy,
    Reporting,
    ScaleAndNoise,
    Stretch,
    Timed,
    reporting_of,
)
from verax.mechanism import Blocks

Row = tuple[float, ...]


@dataclass(frozen=True)
class DeviationPlan:
    """What is tried, by each deviating client alone, against honest others."""

    clients: tuple[int, ...] = option((), "Who deviates, as in 0,2; empty: each.", "deviating")
    scales: tuple[float, ...] = option(
        (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0, 5.0), "Constant scales a, with 1."
    )
    phases: tuple[Row, ...] = option(
        (
            (0.0, 1.0, 0.5),
            (0.5, 1.0, 0.5),
            (0.5, 2.0, 0.5),
            (0.5, 5.0, 0.5),
            (0.0, 5.0, 0.9),
            (0.5, 5.0, 0.9),
            (-1.0, 1.0, 0.1),
            (-3.0, 1.0, 0.1),
            (-10.0, 1.0, 0.1),
        ),
        "Two phases each: a early, a late, the share of rounds after which it switches; "
        "as in 0,1,0.5;0.5,5,0.9.",
    )
    surges: tuple[float, ...] = option((0.0, 2.0, 5.0, 10.0), "Scales a in the last rounds alone.")
    surge_rounds: tuple[int, ...] = option(
        (1, 2, 5, 10, 20, 50, 200, 500), "How many last rounds a surge takes."
    )
    block_scales: tuple[float, ...] = option(
        (0.0, 2.0, -1.0, -3.0, -10.0), "Scales a in one block of rounds alone, tried in each block."
    )
    noises: tuple[float, ...] = option((0.5, 2.0), "Noise sizes b at a = 1.")
    momenta: tuple[float, ...] = option(
        (0.8, 0.9), "Memory β of a member that sends a moving average of its own updates."
    )
    batches: tuple[int, ...] = option(
        (4, 0),
        "How many batches a member uses at once, 0 for all its samples; not for apps.",
    )
    quiet_scales: tuple[float, ...] = option(
        (1.0, 1.5, 2.0), "Scales at which momenta and larger batches are tried."
    )
    pushes: tuple[float, ...] = option(
        (-0.5,), "Part of the last aggregate that is added; below 0 it is pushed away from."
    )
    tilts: tuple[float, ...] = option(
        (0.5, 2.0), "Scales of the first or the second half of the model's arrays alone."
    )
    absences: tuple[Row, ...] = option(
        ((0.0, 0.5), (0.5, 1.0), (0.0, 0.9)),
        "When a member is absent: the shares of rounds after which it leaves and comes back, "
        "as in 0,0.5;0.5,1.",
    )
    search: str = option(
        "quick", "How long to search for each member's best policy: quick, thorough or off."
    )
    coalitions: int = option(
        2,
        "2: also search for the best joint policy of every pair, and for where everybody's best "
        "responses lead, with up to 5 members; 1: do not.",
    )
    reportings: tuple[str, ...] = option(
        (), "Another reporting: its JSON form or module:name; may be repeated."
    )

    def __post_init__(self) -> None:
        if not self.scales:
            raise ValueError("the grid of scales is empty; give at least 1 and one other scale")
        if 1.0 not in self.scales:
            raise ValueError(f"the grid of scales {self.scales} lacks 1, which is honesty")
        if self.search not in ("quick", "thorough", "off"):
            raise ValueError(f"search is {self.search!r}, must be quick, thorough or off")
        if self.coalitions not in (1, 2):
            raise ValueError(f"coalitions is {self.coalitions}, must be 1 (none) or 2 (pairs)")
        for absence in self.absences:
            if len(absence) != 2 or not 0 <= absence[0] < absence[1] <= 1:
                raise ValueError(
                    f"an absence is [from, to], two increasing shares of the rounds, got "
                    f"{list(absence)}"
                )
        for phase in self.phases:
            if len(phase) != 3:
                raise ValueError(f"a phase is [a_early, a_late, switch], got {list(phase)}")

    def reportings_tried(self, blocks: Blocks) -> list[Reporting]:
        """Everything that is tried, honesty aside, each once; blocks are those of the prices."""
        rounds = blocks.rounds
        tried: list[Reporting] = [ScaleAndNoise(a, 0.0) for a in self.scales]
        tried += [Timed(*phase) for phase in self.phases]
        tried += [
            Stretch(a, rounds - last + 1, rounds)
            for a in self.surges
            for last in sorted(set(self.surge_rounds), reverse=True)
            if 0 < last < rounds
        ]
        tried += [
            Stretch(a, first, last) for a in self.block_scales for first, last in blocks.ranges
        ]
        tried += [ScaleAndNoise(1.0, b) for b in self.noises]
        tried += [
            Policy((a,), memory=beta, own=(1.0,))
            for beta in self.momenta
            for a in self.quiet_scales
        ]
        tried += [LargerBatch(count, a) for count in self.batches for a in self.quiet_scales]
        tried += [Policy(aggregate=(push,)) for push in self.pushes]
        tried += [Policy(layers=half) for a in self.tilts for half in ((a, 1.0), (1.0, a))]
        tried += [absent for share in self.absences if (absent := _absent(rounds, *share))]
        tried += [reporting_of(text) for text in self.reportings]
        return [reporting for reporting in dict.fromkeys(tried) if reporting != Honest()]


def _absent(rounds: int, leaves: float, returns: float) -> Reporting | None:
    """Absence between two shares of the rounds; None where it would be no round or all of them."""
    first, last = round(leaves * rounds) + 1, round(returns * rounds)
    return Absent(((first, last),)) if first <= last and last - first + 1 < rounds else None
