"""Training in a federation, compiled: aggregators, protocols, the round and the simulator."""

from verax.learning.aggregators import (
    AGGREGATORS,
    Aggregator,
    Clipped,
    CoordinateWise,
    GeometricMedian,
    GramWeighted,
    Krum,
    Mean,
    Median,
    MultiKrum,
    NormWeighted,
    TrimmedMean,
    WeightedMean,
    aggregator_of,
)
from verax.learning.inputs import Behaviour, JointBehaviour, Seeds
from verax.learning.outcome import Evaluation, Outcome, TrainingState
from verax.learning.protocol import Protocol
from verax.learning.similarity import Similarity, label_distances, measure_similarity
from verax.learning.simulator import Simulator
from verax.learning.streaming import MemoryLimits
from verax.learning.task import Batch, Task

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "Batch",
    "Behaviour",
    "Clipped",
    "CoordinateWise",
    "Evaluation",
    "GeometricMedian",
    "GramWeighted",
    "JointBehaviour",
    "Krum",
    "Mean",
    "Median",
    "MemoryLimits",
    "MultiKrum",
    "NormWeighted",
    "Outcome",
    "Protocol",
    "Seeds",
    "Similarity",
    "Simulator",
    "Task",
    "TrainingState",
    "TrimmedMean",
    "WeightedMean",
    "aggregator_of",
    "label_distances",
    "measure_similarity",
]
