"""Rules of the form `module:name` for the verifier, which itself imports nothing of Verax."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from verax.ledger.round import booked_statistic
from verax.mechanism import Statistics, rule_named, spread
from verax.mechanism.rule import measure
from verax.verifier import Measure


def measures_of(names: Iterable[str]) -> dict[str, Measure]:
    """What `verax.verifier.verify` takes as `rules`: a measure for each name."""
    return {name: _measure_of(name) for name in names}


def _measure_of(name: str) -> Measure:
    rule, booked = rule_named(name), booked_statistic(name)

    def measures(
        statistics: list[float | None] | None, gram: list[list[float]] | None, ok: list[bool]
    ) -> tuple[Sequence[float], int]:
        present = np.array(ok, dtype=np.bool_)
        if booked == "gram":
            if gram is None:
                raise ValueError(f"rule {rule.name} reads a Gram matrix, the book holds none")
            square = np.reshape(gram, (sum(ok), sum(ok)))  # also where there is no row
            dense, _ = spread(square, np.flatnonzero(present), len(ok))
            known = Statistics.of_gram(dense)
        else:
            if statistics is None:
                raise ValueError(f"rule {rule.name} reads {booked}, the book holds none")
            known = Statistics(**{booked: np.array(statistics, dtype=np.float64)})
        return measure(rule, known, present)[0].tolist(), rule.fewest

    return measures
