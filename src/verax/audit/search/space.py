"""Policies as points: what the search moves.

A point holds, in this order: the scale of each block of rounds, less one; the memory of the moving
average; how far the message is replaced by that average, in each third of the run; how much of the
last aggregate is added, in each third; and the logarithm of the factor of each part of the model.
The origin is honesty.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verax.game import Policy, Reporting
from verax.game.policy import PARTS
from verax.mechanism import Blocks

Array = NDArray[np.float64]

_THIRDS = 3

#: The memory at the origin, and how far from it the ends of its range lie.
_MEMORY, _MEMORY_RANGE = 0.5, 0.45


class PolicySpace:
    """Policies for a run whose prices are set over blocks of rounds."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.dimension = len(blocks) + 1 + 2 * _THIRDS + PARTS

    def policy(self, point: Array) -> Policy:
        """The policy at a point."""
        K = len(self._blocks)
        scale, rest = point[:K], point[K:]
        memory, own, aggregate, layers = np.split(rest, [1, 1 + _THIRDS, 1 + 2 * _THIRDS])
        return Policy(
            scale=tuple((1 + scale).tolist()),
            starts=self._blocks.starts,
            memory=float(_MEMORY + _MEMORY_RANGE * np.tanh(memory[0])),
            own=tuple(own.tolist()),
            aggregate=tuple(aggregate.tolist()),
            layers=tuple(np.exp(np.clip(layers, -5, 5)).tolist()),
        )

    def point(self, reporting: Reporting) -> Array | None:
        """The point nearest to a reporting; None if no policy comes close to it."""
        found = np.zeros(self.dimension)
        K = len(self._blocks)
        if isinstance(reporting, Policy):
            parameters = reporting.parameters(self._blocks.rounds, np.random.default_rng(0))
            scales = parameters["scale"]
            memory = (reporting.memory - _MEMORY) / _MEMORY_RANGE
            found[K] = np.arctanh(np.clip(memory, -0.99, 0.99))
            found[K + 1 : K + 1 + _THIRDS] = _thirds(parameters["own"])
            found[K + 1 + _THIRDS : -PARTS] = _thirds(parameters["aggregate"])
            found[-PARTS:] = np.log(np.maximum(parameters["layers"][0], 1e-2))
        elif reporting.program is None:
            scales = reporting.scales(self._blocks.rounds)
        else:
            return None
        found[:K] = self._blocks.sums(scales) / self._blocks.lengths - 1
        return found


def _thirds(values: Array) -> list[float]:
    return [float(part.mean()) for part in np.array_split(values, _THIRDS)]
