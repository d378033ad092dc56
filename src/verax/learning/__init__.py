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
from verax.learning.likeness import Likeness, label_distances, measure_likeness
from verax.learning.protocol import Protocol
from verax.learning.sensitivity import Differentiator, tangent_rounds
from verax.learning.simulator import Outcome, Seeds, Simulator, State, honest
from verax.learning.task import Batch, Task

__all__ = [
    "Aggregator",
    "Batch",
    "Clipped",
    "Differentiator",
    "GeometricMedian",
    "Krum",
    "Likeness",
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
    "label_distances",
    "measure_likeness",
    "tangent_rounds",
]
