"""An alarm for a sudden change of a member's squared norm relative to the other members.

Norms fall as training proceeds and differ between members. So log n_{i,t} = level_t + x_{i,t} is
split into a level that all members share and the member's own offset. With u_i, the median of the
member's last W offsets, level_t is the median over members of log n_{j,t} − u_j. An alarm is raised
if the offset leaves the band

    |x_{i,t} − u_i| ≤ max(k · 1.4826 · max(MAD_i, median_{j≠i} MAD_j), log factor),

where MAD is the median absolute deviation of a member's last W offsets. Steady differences, common
trends and common noise raise no alarm. A member that misreports from the first round on, or changes
slowly, stays inside the band; with two members the alarm cannot tell which one changed. An alarm is
a question to the member, not a proof: new data also change norms.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any


class Alarm:
    """The alarm of one run.

    Args:
        window: W, the number of rounds that are remembered.
        fewest: the number of rounds of a member before it can raise an alarm.
        k: half of the band's width in robust standard deviations.
        factor: a change of n by less than this factor raises no alarm.

    Example:
        >>> alarm = Alarm(fewest=3)
        >>> for _ in range(3):
        ...     _ = alarm.update({"a": 1.0, "b": 1.1, "c": 0.9})
        >>> list(alarm.update({"a": 9.0, "b": 1.1, "c": 0.9}))
        ['a']
    """

    def __init__(
        self, window: int = 50, fewest: int = 5, k: float = 6.0, factor: float = 2.0
    ) -> None:
        self._window, self._fewest, self._k, self._floor = window, fewest, k, math.log(factor)
        self._offsets: dict[str, deque[float]] = {}

    def update(self, norms: Mapping[str, float]) -> dict[str, str]:
        """Add the squared norms of a round, by member; returns a message for each alarm."""
        logs = {name: math.log(value) for name, value in norms.items() if 0 < value < math.inf}
        if len(logs) < 2:
            return {}
        usual = {name: median(past) for name, past in self._offsets.items()}
        known = [value - usual[name] for name, value in logs.items() if name in usual]
        level = median(known or logs.values())
        deviations = {name: _deviation(past) for name, past in self._offsets.items()}
        alarms: dict[str, str] = {}
        for name, value in logs.items():
            past = self._offsets.setdefault(name, deque(maxlen=self._window))
            if len(past) >= self._fewest:
                others = [each for other, each in deviations.items() if other != name]
                deviation = max(deviations[name], median(others) if others else 0.0)
                width = max(self._k * 1.4826 * deviation, self._floor)
                change = value - level - usual[name]
                if abs(change) > width:
                    alarms[name] = (
                        f"{math.exp(change):.3g} times its usual squared norm among the others "
                        f"(band {math.exp(-width):.2g} … {math.exp(width):.2g})"
                    )
            past.append(value - level)
        return alarms


def _deviation(values: deque[float]) -> float:
    """The median absolute deviation."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


def norms_of(content: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, float]:
    """The effective squared norms of a round in a book, by the names of the account numbers.

    Empty if the round was charged by a rule that reads no norms.
    """
    ok = [number for number in content["accounts"] if str(number) not in content["statuses"]]
    if content["reads"] == "gram":
        values = [row[i] for i, row in enumerate(content["gram"])]
    elif content["reads"] == "norms":
        values = [value for value in content["statistics"] if value is not None]
    else:
        return {}
    return {names[number]: float(value) for number, value in zip(ok, values, strict=True)}
