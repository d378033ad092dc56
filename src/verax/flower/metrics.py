"""Metrics are the members' own words: they inform, and decide about nobody's update.

Strategies average metrics key by key, and stop the whole run if replies have different keys. Nobody
knows which keys are right, and a vote could be won by an attacker. So each metric is averaged over
the members that report it: numbers that are not finite are left out, and where a member lacks a
metric, the weighted mean of the others' stands in, which leaves the average as it is. Only the
example count, and q-FedAvg's loss, have to be there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from flwr.app import MetricRecord, RecordDict

from verax.flower.log import log
from verax.mechanism import Weights
from verax.text import printable, shown

_Value = int | float | list[int] | list[float]

_MAX_KEYS = 1000  # of one reply
_MAX_LENGTH = 200  # of a key
#: Metrics of this layer itself.
_RESERVED = "verax."


def the_metrics(content: RecordDict) -> MetricRecord:
    """The only metric record of a reply; a ValueError if there are others."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise ValueError(f"{len(records)} metric records, must be 1")
    return records[0]


def example_count(content: RecordDict, key: str | None, limits: Weights) -> int:
    """The example count of a reply; a ValueError says what is wrong with it.

    Args:
        content: of the reply.
        key: of the metric; None if no count is needed.
        limits: the smallest and the largest count that the terms allow.
    """
    metrics = the_metrics(content)
    if key is None:
        return 1
    count = metrics.get(key)
    if count is None or isinstance(count, bool | list):
        kind = "missing" if count is None else f"a {type(count).__name__}"
        raise ValueError(f"metric {key!r} is {kind}, must be a number")
    if not limits.fewest <= count <= limits.most or count != int(count):
        raise ValueError(
            f"metric {key!r} is {shown(count)}, must be a whole number ≥ {limits.fewest} and "
            f"≤ {limits.most}, the limits of the terms"
        )
    return int(count)


def stated_examples(content: RecordDict, key: str | None) -> int:
    """The example count that a member signs with its reply: 0 if the reply has no valid one."""
    count = the_metrics(content).get(key or "")
    if isinstance(count, int | float) and 0 <= count <= 2**53 and count == int(count):
        return int(count)
    return 0


def averageable(
    contents: Sequence[RecordDict],
    names: Sequence[str],
    weights: Sequence[float],
    required: Collection[str],
) -> list[RecordDict]:
    """The replies with metrics that a strategy can average: the same names, all of them finite.

    Args:
        contents: of the replies, each with one metric record; they are not changed.
        names: who sent them, for the log.
        weights: of the replies in an average.
        required: metrics that were checked before and stay as they are.
    """
    known = [
        _finite(the_metrics(content), name, required)
        for content, name in zip(contents, names, strict=True)
    ]
    filled: list[dict[str, _Value]] = [{} for _ in known]
    for key in sorted({key for metrics in known for key in metrics}):
        holders = [i for i, metrics in enumerate(known) if key in metrics]
        lengths = {_length(known[i][key]) for i in holders}
        if len(lengths) > 1:
            log.warning(
                "Verax: metric %s is left out, because members report it in different forms", key
            )
            continue
        mean = None
        for i, metrics in enumerate(filled):
            if key not in known[i] and mean is None:
                mean = _mean([known[j][key] for j in holders], [weights[j] for j in holders])
            metrics[key] = known[i].get(key, mean)  # pyright: ignore[reportArgumentType]
    record_name = next((next(iter(c.metric_records)) for c in contents), "")
    return [
        _with_metrics(content, record_name, MetricRecord(metrics))
        for content, metrics in zip(contents, filled, strict=True)
    ]


def only(content: RecordDict, keys: Collection[str]) -> RecordDict:
    """A reply with no other metrics than these."""
    (name,) = content.metric_records
    metrics = {key: value for key, value in the_metrics(content).items() if key in keys}
    return _with_metrics(content, name, MetricRecord(metrics))


def _with_metrics(content: RecordDict, name: str, metrics: MetricRecord) -> RecordDict:
    others = {key: record for key, record in content.items() if key not in content.metric_records}
    return RecordDict({**others, name: metrics})


def _finite(metrics: MetricRecord, name: str, required: Collection[str]) -> dict[str, _Value]:
    """The metrics that can be averaged; the log says which cannot."""
    result: dict[str, _Value] = {}
    for key, value in metrics.items():
        if key in required:
            result[key] = value
            continue
        if len(result) >= _MAX_KEYS:
            log.warning("Verax: of %s's %d metrics only some are used", name, len(metrics))
            break
        if key.startswith(_RESERVED) or not key.isprintable() or len(key) > _MAX_LENGTH:
            log.warning("Verax: metric %s of %s has a bad name, and is left out", shown(key), name)
        elif not _is_finite(value):
            log.warning(
                "Verax: metric %s of %s is %s, not a finite number, and is left out",
                printable(key, 80),
                name,
                shown(value, 40),
            )
        else:
            result[key] = value
    return result


def _is_finite(value: _Value) -> bool:
    try:
        return all(map(math.isfinite, value if isinstance(value, list) else [value]))
    except (OverflowError, TypeError):  # a whole number beyond float64, or no number at all
        return False


def _length(value: _Value) -> int:
    return len(value) if isinstance(value, list) else -1


def _mean(values: Sequence[_Value], weights: Sequence[float]) -> _Value:
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    if isinstance(values[0], list):
        columns: list[tuple[float, ...]] = list(zip(*values, strict=True))  # pyright: ignore[reportArgumentType]
        return [_dot(column, shares) for column in columns]
    return _dot(values, shares)  # pyright: ignore[reportArgumentType]


def _dot(values: Sequence[float], shares: Sequence[float]) -> float:
    return math.fsum(value * share for value, share in zip(values, shares, strict=True))
