"""Training in a federation, compiled: aggregators, protocols, the simulator and its derivative."""

from verax.learning.aggregators import (
    Aggregator,
    Clipped,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
    WeightedMean,
)
from verax.learning.protocol import Protocol
from verax.learning.sensitivity import Differentiator
from verax.learning.simulator import Outcome, Seeds, Simulator, State, honest
from verax.learning.task import Task

__all__ = [
    "Aggregator",
    "Clipped",
    "Differentiator",
    "GeometricMedian",
    "Krum",
    "Mean",
    "Median",
    "MultiKrum",
    "Outcome",
    "Protocol",
    "Seeds",
    "Simulator",
    "State",
    "Task",
    "TrimmedMean",
    "WeightedMean",
    "honest",
]
