"""Checks of replies: whether a reply is a valid update of the model that was sent.

A reply counts if it has exactly one array record with the names, shapes and types of the model that
was sent, and exactly one metric record whose example count is a finite number > 0. Whether all
entries are finite follows later from the norm, without another pass over the arrays. Arrays in
another order are put into the order of the model, because several of Flower's strategies go by
position.

One difference of types is valid: integers in place of floating point, and the reverse. Flower
averages integers to float64, and frameworks restore the type of their model. Arrays that are not
charged are replaced by those that were sent, so that they cannot change the model.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from verax.mechanism import Arrays, Status

_log = logging.getLogger("flwr.verax")

_INTEGERS = "iub"  # NumPy's kinds of integers and of true or false

#: The largest example count; float64 holds whole numbers exactly up to here.
_MAX_EXAMPLES = 2.0**53


@dataclass(frozen=True, eq=False)
class SentModel:
    """The arrays of a model as they were sent, by name; views of Flower's bytes, not copies."""

    arrays: Mapping[str, NDArray[Any]]
    uncharged: Mapping[str, Array]

    @classmethod
    def of(cls, record: ArrayRecord, charged: Arrays) -> SentModel:
        """Decode a record; refuses arrays that do not hold real numbers."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in record.items():
            arrays[name] = decoded = decode(array)
            if decoded.dtype.kind not in _INTEGERS + "f":
                raise ValueError(
                    f"the model's array {name!r} holds {decoded.dtype}, must be real numbers of a "
                    "NumPy type such as float32"
                )
        uncharged = {name: record[name] for name in arrays if not charged.is_charged(name)}
        if len(uncharged) == len(arrays):
            raise ValueError(
                f"arrays.uncharged is {list(charged.uncharged)}, which leaves none of the model's "
                f"{len(arrays)} arrays to be charged; write narrower patterns"
            )
        return cls(arrays, uncharged)

    @property
    def charged(self) -> list[NDArray[Any]]:
        """The arrays that are measured."""
        return [array for name, array in self.arrays.items() if name not in self.uncharged]


@dataclass(frozen=True, eq=False)
class Reply:
    """The result of checking one reply.

    Attributes:
        status: ok, missing, rejected or error.
        reason: why the status is not ok; the same text for the same cause.
        arrays: those that are charged, in the order of the model that was sent, if ok.
        examples: the example count that the client reports, if ok and needed.
    """

    status: Status
    reason: str = ""
    arrays: tuple[NDArray[Any], ...] = ()
    examples: float = 1.0


def check_reply(message: Message, sent: SentModel, count_key: str | None) -> Reply:
    """Compare a reply with the model that was sent, and make its array record fit that model.

    Args:
        message: the reply.
        sent: the model that was sent.
        count_key: the metric that must be a valid example count, or None.
    """
    if message.has_error():
        return Reply("error", f"error {message.error.code}")
    if not message.has_content():
        return Reply("rejected", "no content")
    try:
        arrays = _arrays(message.content, sent)
        examples = check_metrics(message.content, count_key)
    except ValueError as error:
        return Reply("rejected", str(error))
    return Reply("ok", arrays=arrays, examples=examples)


def check_metrics(content: RecordDict, count_key: str | None) -> float:
    """The example count of the only metric record; a ValueError says what is wrong."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise ValueError(f"{len(records)} metric records, must be 1")
    if count_key is None:
        return 1.0
    count = records[0].get(count_key)
    if not isinstance(count, int | float):
        raise ValueError(f"metric {count_key!r} is {_kind(count)}, must be a number")
    if not 0 < count <= _MAX_EXAMPLES:
        raise ValueError(f"metric {count_key!r} is {count:g}, must be > 0 and ≤ 2^53")
    return float(count)


def differing_metrics(contents: Sequence[RecordDict], ignored: str | None = None) -> list[str]:
    """A reason for each reply whose metrics differ from those of the majority, "" for the others.

    Strategies average metrics key by key and stop the whole run if keys differ. So the layout
    (record name, keys, list lengths) of the majority is required; in a tie, the layout with fewer
    keys, then the first in alphabetical order.
    """
    layouts = [_layout(content, ignored) for content in contents]
    if not layouts:
        return []
    counts = Counter(layouts)
    majority = min(counts, key=lambda layout: (-counts[layout], len(layout), layout))
    return ["" if layout == majority else _difference(layout, majority) for layout in layouts]


def averageable(replies: Iterable[Message], count_key: str | None) -> list[Message]:
    """The evaluations whose metrics a strategy can average, and the errors, which it counts."""
    valid: list[Message] = []
    errors: list[Message] = []
    for message in sorted(replies, key=lambda m: m.metadata.src_node_id):
        if message.has_error():
            errors.append(message)
            continue
        try:
            check_metrics(message.content, count_key)
            valid.append(message)
        except ValueError as error:
            _log_ignored(message, str(error))
    averaged: list[Message] = []
    reasons = differing_metrics([message.content for message in valid])
    for message, reason in zip(valid, reasons, strict=True):
        if reason:
            _log_ignored(message, reason)
        else:
            averaged.append(message)
    return [*averaged, *errors]


def _log_ignored(message: Message, reason: str) -> None:
    node = message.metadata.src_node_id
    _log.warning("Verax: evaluation by node %d is ignored: %s", node, reason)


def decode(array: Array) -> NDArray[Any]:
    """The array as a view of its bytes; a ValueError if the bytes are malformed."""
    file = BytesIO(array.data)
    try:
        if array.stype != "numpy.ndarray":
            raise ValueError(f"serialised as {array.stype!r}, must be numpy.ndarray")
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, fortran, dtype = readers[version](file)
        if dtype.hasobject:
            raise ValueError("holds Python objects")
        size = math.prod(shape)
        if len(array.data) - file.tell() != size * dtype.itemsize:
            raise ValueError("has the wrong number of bytes")
        flat = np.frombuffer(array.data, dtype, count=size, offset=file.tell())
    except (KeyError, TypeError, EOFError, OverflowError) as error:
        raise ValueError(f"cannot be read ({type(error).__name__})") from None
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _arrays(content: RecordDict, sent: SentModel) -> tuple[NDArray[Any], ...]:
    records = content.array_records
    if len(records) != 1:
        raise ValueError(f"{len(records)} array records, must be 1")
    name, record = next(iter(records.items()))
    expected = sent.arrays
    if missing := sorted(expected.keys() - record.keys()):
        raise ValueError(f"array {missing[0]!r} is missing")
    if extra := sorted(record.keys() - expected.keys()):
        raise ValueError(f"array {extra[0]!r:.80} was not asked for")
    arrays: list[NDArray[Any]] = []
    fitting: dict[str, Array] = {}
    for key, model in expected.items():
        try:
            array = decode(record[key])
        except ValueError as error:
            raise ValueError(f"array {key!r}: {error}") from None
        if array.shape != model.shape or tuple(record[key].shape) != model.shape:
            raise ValueError(f"array {key!r} has shape {array.shape}, must be {model.shape}")
        if key in sent.uncharged:
            fitting[key] = sent.uncharged[key]
            continue
        if str(record[key].dtype) != str(array.dtype) or not _fits(array.dtype, model.dtype):
            raise ValueError(f"array {key!r} holds {array.dtype}, must be {model.dtype}")
        fitting[key] = record[key]
        if array.dtype != model.dtype and model.dtype.kind == "f":
            # One member's reply must not change the type of everybody's next model.
            with np.errstate(over="ignore"):
                array = array.astype(model.dtype)
            fitting[key] = Array(array)
        arrays.append(array)
    content[name] = ArrayRecord(fitting)
    return tuple(arrays)


def _fits(dtype: np.dtype[Any], model: np.dtype[Any]) -> bool:
    """Whether an array holds real numbers in this machine's byte order, or the model's own type.

    Types change in ordinary training: FedAdam makes a float32 model float64, and an app returns
    float32 again.
    """
    return dtype == model or (dtype.kind in _INTEGERS + "f" and dtype.isnative)


_Layout = tuple[tuple[str, int], ...]


def _layout(content: RecordDict, ignored: str | None) -> _Layout:
    name, record = next(iter(content.metric_records.items()), ("", MetricRecord()))
    keys = [
        (key, len(value) if isinstance(value, list) else -1)
        for key, value in record.items()
        if key != ignored
    ]
    return ((name, -2), *sorted(keys))


def _difference(layout: _Layout, majority: _Layout) -> str:
    other = sorted(set(layout) ^ set(majority))
    return f"metrics differ from the others' at {other[0][0]!r:.80}"


def _kind(value: Any) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
