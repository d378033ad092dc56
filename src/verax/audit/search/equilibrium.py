"""Everybody strategic: where repeated best responses of all members end.

Every member scales its messages by its own factor in each part of the run. All move at once: each
one by a damped Newton step on its own utility in each of its factors, found by runs with slightly
larger and smaller factors. Where nobody moves any more, no member gains by changing a factor a
little. The losses there against those of honesty are what strategic behaviour costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: How far factors are moved to see how utilities react; the share of a Newton step that is made.
_PROBE, _DAMPING = 0.2, 0.6

#: The largest step, the range of the factors, and the step at which play has ended.
_LARGEST, _RANGE, _SETTLED = 1.0, (-1.0, 10.0), 0.02


@dataclass(frozen=True, eq=False)
class Play:
    """Where repeated best responses ended.

    Attributes:
        scales: of every part of the run and member, (K, N).
        settled: whether nobody moved any more.
        steps: how often all moved.
    """

    scales: Array
    settled: bool
    steps: int


def play(
    utilities: Callable[[Array], Array],
    start: Array,
    most_steps: int = 30,
    settled: float = _SETTLED,
) -> Play:
    """Let all members improve their factors at once, again and again.

    Args:
        utilities: factors (M, K, N) → everybody's utilities, (M, N).
        start: the first factors, (K, N).
        most_steps: after which it ends.
        settled: it also ends when nobody moves a factor by more than this.
    """
    scales = np.array(start, dtype=np.float64)
    K, N = scales.shape
    probes = _PROBE * np.eye(K * N).reshape(K * N, K, N)
    for step in range(most_steps):
        here = utilities(scales[None])[0]
        found = utilities(np.concatenate([scales + probes, scales - probes]))
        own = np.tile(np.arange(N), K)  # whose factor each probe moves
        plus, minus = found[: K * N][np.arange(K * N), own], found[K * N :][np.arange(K * N), own]
        gradient = (plus - minus) / (2 * _PROBE)
        curvature = (plus - 2 * here[own] + minus) / _PROBE**2
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.where(curvature < 0, -gradient / curvature, np.sign(gradient) * np.inf)
        move = _DAMPING * np.clip(np.nan_to_num(newton), -_LARGEST, _LARGEST).reshape(K, N)
        after = np.clip(scales + move, *_RANGE)
        moved, scales = float(np.abs(after - scales).max()), after
        if moved < settled:
            return Play(scales, True, step + 1)
    return Play(scales, False, most_steps)
