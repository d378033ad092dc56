"""An alarm when a member's update leaves the band of its own and the others' history.

Norms fall as training proceeds and differ between members. Each round is split into a level that
all share and each member's place, log n_{i,t} = level_t + x_{i,t}: level_t is the median over
members of log n_{j,t} less the member's usual place, the median of its last W values of x. What is
looked at is e = x_{i,t} − usual place of i, against the band

    |e| ≤ k · 1.4826 · max(MAD of its own x, median over the others of the MAD of theirs),

and at least log `factor`, so that neither a steady difference, nor a trend, nor a noise that all
share raises it. It sees sudden changes. A member that misreports from the first round on, or
changes slowly, stays inside; of two members it cannot tell which one moved; and an alarm is a
question to the member, not a proof: new data make a norm jump too.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

__all__ = ["Alarm", "norms_of"]


class Alarm:
    """Bands of the norms of one run.

    Args:
        window: W, how many rounds of history count.
        fewest: how many rounds a member needs before it can raise an alarm.
        k: half of the band's width in robust standard deviations.
        factor: a change of n by less than this never raises an alarm.

    Example:
        >>> alarm = Alarm(fewest=3)
        >>> for _ in range(3):
        ...     _ = alarm.take({"a": 1.0, "b": 1.1, "c": 0.9})
        >>> list(alarm.take({"a": 9.0, "b": 1.1, "c": 0.9}))
        ['a']
    """

    def __init__(
        self, window: int = 50, fewest: int = 5, k: float = 6.0, factor: float = 2.0
    ) -> None:
        self._window, self._fewest, self._k, self._floor = window, fewest, k, math.log(factor)
        self._places: dict[str, deque[float]] = {}

    def take(self, norms: Mapping[str, float]) -> dict[str, str]:
        """The norms of a round, by member; a sentence for each that leaves its band."""
        logs = {name: math.log(value) for name, value in norms.items() if 0 < value < math.inf}
        if len(logs) < 2:
            return {}
        usual = {name: median(past) for name, past in self._places.items()}
        known = [value - usual[name] for name, value in logs.items() if name in usual]
        level = median(known or logs.values())
        spreads = {name: self._spread(past) for name, past in self._places.items()}
        found: dict[str, str] = {}
        for name, value in logs.items():
            past = self._places.setdefault(name, deque(maxlen=self._window))
            if len(past) >= self._fewest:
                others = [spread for other, spread in spreads.items() if other != name]
                spread = max(spreads[name], median(others) if others else 0.0)
                width = max(self._k * 1.4826 * spread, self._floor)
                moved = value - level - usual[name]
                if abs(moved) > width:
                    found[name] = (
                        f"{math.exp(moved):.3g} times its usual squared norm among the others "
                        f"(band {math.exp(-width):.2g} … {math.exp(width):.2g})"
                    )
            past.append(value - level)
        return found

    @staticmethod
    def _spread(past: deque[float]) -> float:
        middle = median(past)
        return median(abs(value - middle) for value in past)


def norms_of(content: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, float]:
    """The effective squared norms of a round in a book, by the names of the account numbers."""
    ok = [number for number in content["accounts"] if str(number) not in content["statuses"]]
    if content["gram"] is not None:
        values = [row[i] for i, row in enumerate(content["gram"])]
    else:
        values = [value for value in content["statistics"] if value is not None]
    return {names[number]: float(value) for number, value in zip(ok, values, strict=True)}
