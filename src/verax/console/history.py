"""What a federation's records say over time, in columns: rounds, and each account's series.

Charts of long histories are thinned: of every bucket of points its smallest and its largest stay,
so that no extreme is lost.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from verax.ledger.records import RoundRecord

#: About how many points of a series a chart draws.
POINTS = 400


class RoundRow(NamedTuple):
    """A round in a few words.

    Attributes:
        sequence: its record.
        run: of which run.
        round: t.
        time: when it was booked (UTC).
        asked: how many members were asked.
        counted: of how many the update counted.
        outside: account numbers whose squared norm left the audited band.
        alarms: messages by account number.
    """

    sequence: int
    run: str
    round: int
    time: str
    asked: int
    counted: int
    outside: tuple[int, ...]
    alarms: dict[int, str]

    @property
    def marked(self) -> set[int]:
        """The accounts with an alarm or a norm outside the audited band."""
        return {*self.alarms, *self.outside}


@dataclass
class RunTotal:
    """What one run charged an account so far.

    Attributes:
        charged: minor units.
        promised: the allowances of its rounds, in units of the currency.
        counted: in how many rounds the account's update counted.
    """

    charged: int = 0
    promised: float = 0.0
    counted: int = 0


@dataclass
class Series:
    """Every record that concerns an account.

    Attributes:
        sequences: the records.
        amounts: minor units of each.
        balances: minor units owed after each.
        norms: squared norms; NaN for other records than rounds, and where no update counted.
        runs: what each run charged; other records do not count.
        marked: the rounds in which the account has an alarm or a norm outside the audited band.
    """

    sequences: array[int] = field(default_factory=lambda: array("q"))
    amounts: array[int] = field(default_factory=lambda: array("q"))
    balances: list[int] = field(default_factory=list[int])
    norms: array[float] = field(default_factory=lambda: array("d"))
    runs: dict[str, RunTotal] = field(default_factory=dict[str, RunTotal])
    marked: list[RoundRow] = field(default_factory=list[RoundRow])

    @property
    def charged(self) -> int:
        """What all runs charged together."""
        return sum(run.charged for run in self.runs.values())

    @property
    def promised(self) -> float:
        """The allowances of all runs together."""
        return math.fsum(run.promised for run in self.runs.values())

    def add(self, sequence: int, amount: int, norm: float) -> None:
        """Add a record."""
        self.sequences.append(sequence)
        self.amounts.append(amount)
        self.balances.append((self.balances[-1] if self.balances else 0) + amount)
        self.norms.append(norm)


def norms_of(body: RoundRecord) -> dict[int, float]:
    """The effective squared norms of a round by account; empty if its rule reads none."""
    ok = [number for number in body.accounts if number not in body.statuses]
    if body.gram is not None:
        return {number: body.gram[i][i] for i, number in enumerate(ok)}
    if body.reads != "norms" or body.statistics is None:
        return {}
    pairs = zip(body.accounts, body.statistics, strict=True)
    return {number: value for number, value in pairs if value is not None}


def thinned(values: ArrayLike, most: int = POINTS) -> list[int]:
    """The positions of about this many values that draw the same line: all extremes stay.

    Example:
        >>> thinned([0, 1, 9, 1, 0, 1, -7, 1], most=4)
        [0, 2, 6, 7]
    """
    line = np.asarray(values, dtype=np.float64)
    if len(line) <= most:
        return list(range(len(line)))
    buckets = max(most // 2 - 1, 1)
    known = ~np.isnan(line)
    lows, highs = np.where(known, line, np.inf), np.where(known, line, -np.inf)
    kept = {0, len(line) - 1}
    for k in range(buckets):
        start, end = k * len(line) // buckets, (k + 1) * len(line) // buckets
        if known[start:end].any():
            kept |= {start + int(lows[start:end].argmin()), start + int(highs[start:end].argmax())}
    return sorted(kept)
