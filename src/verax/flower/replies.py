"""Checks of replies: whether a reply is a valid update of the model that was sent.

A reply counts if it has exactly one array record, with the name, array names, shapes and types of
the model that the server sent, and exactly one metric record with an example count within the
limits of the terms. What the others sent plays no part. Whether all entries are finite follows
later from the norm, without another pass over the arrays. Arrays in another order are put into the
order of the model, because several of Flower's strategies go by position.

One difference of types is valid: integers in place of floating point, and the reverse. Flower
averages integers to float64, and frameworks restore the type of their model. Arrays that are not
charged are replaced by those that were sent, so that they cannot change the model.

A reply is bytes from somebody else: whatever goes wrong while it is read, it alone is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

from verax.flower.decoding import INTEGERS, decode
from verax.flower.metrics import example_count
from verax.mechanism import Arrays, Status, Weights
from verax.text import printable, shown

_MAX_REASON = 300


@dataclass(frozen=True, eq=False)
class SentModel:
    """The arrays of a model as they were sent, by name; views of Flower's bytes, not copies."""

    record_name: str
    arrays: Mapping[str, NDArray[Any]]
    uncharged: Mapping[str, Array]

    @classmethod
    def of(cls, record_name: str, record: ArrayRecord, charged: Arrays) -> SentModel:
        """Decode a record; refuses arrays that do not hold real numbers."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in record.items():
            arrays[name] = decoded = decode(array)
            if decoded.dtype.kind not in INTEGERS + "f":
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
        return cls(record_name, arrays, uncharged)

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
        content: the reply as the strategy may see it, if ok.
        arrays: those that are charged, in the order of the model that was sent, if ok.
        examples: the example count that the client reports, if ok and needed.
    """

    status: Status
    reason: str = ""
    content: RecordDict | None = None
    arrays: tuple[NDArray[Any], ...] = ()
    examples: int = 1


def rejected(reason: str | Exception) -> Reply:
    """A reply that does not count, with a reason that can be shown."""
    if isinstance(reason, ValueError):
        reason = str(reason)
    elif isinstance(reason, Exception):
        reason = f"cannot be read ({type(reason).__name__})"
    return Reply("rejected", printable(reason, _MAX_REASON))


def check_reply(
    message: Message, sent: SentModel, count_key: str | None, limits: Weights | None = None
) -> Reply:
    """Compare a reply with the model that was sent.

    Args:
        message: the reply; it is not changed.
        sent: the model that was sent.
        count_key: the metric that must be a valid example count, or None.
        limits: of that count; by default those of default terms.
    """
    try:
        if message.has_error():
            return Reply("error", f"error {message.error.code}")
        if not message.has_content():
            return Reply("rejected", "no content")
        arrays, record = model_arrays(message.content, sent)
        examples = example_count(message.content, count_key, limits or Weights())
        others = {
            name: other
            for name, other in message.content.items()
            if not isinstance(other, ArrayRecord)
        }
        content = RecordDict({sent.record_name: record, **others})
    except Exception as error:  # of whatever kind: RecursionError and MemoryError were seen
        return rejected(error)
    return Reply("ok", content=content, arrays=arrays, examples=examples)


def model_arrays(
    content: RecordDict, sent: SentModel
) -> tuple[tuple[NDArray[Any], ...], ArrayRecord]:
    """The charged arrays, and the array record as the strategy may see it."""
    records = content.array_records
    if len(records) != 1:
        raise ValueError(f"{len(records)} array records, must be 1")
    name, record = next(iter(records.items()))
    if name != sent.record_name:
        raise ValueError(
            f"the array record is called {shown(name)}, must be {sent.record_name!r} as it was sent"
        )
    expected = sent.arrays
    if missing := sorted(expected.keys() - record.keys()):
        raise ValueError(f"array {missing[0]!r} is missing")
    if extra := sorted(record.keys() - expected.keys()):
        raise ValueError(f"array {shown(extra[0])} was not asked for")
    arrays: list[NDArray[Any]] = []
    fitting: dict[str, Array] = {}
    for key, model in expected.items():
        try:
            array = decode(record[key])
        except ValueError as error:
            raise ValueError(f"array {key!r} {error}") from None
        if array.shape != model.shape or tuple(record[key].shape) != model.shape:
            raise ValueError(f"array {key!r} has shape {shown(array.shape)}, must be {model.shape}")
        if key in sent.uncharged:
            fitting[key] = sent.uncharged[key]
            continue
        if str(record[key].dtype) != str(array.dtype) or not _fits(array.dtype, model.dtype):
            raise ValueError(f"array {key!r} holds {array.dtype}, must be {model.dtype}")
        fitting[key] = record[key]
        if array.dtype != model.dtype:
            # One member's reply must not change the type of everybody's next model.
            kind = model.dtype if model.dtype.kind == "f" else np.dtype(np.float64)
            with np.errstate(over="ignore"):
                array = array.astype(kind)
            fitting[key] = Array(array)
        arrays.append(array)
    return tuple(arrays), ArrayRecord(fitting)


def _fits(dtype: np.dtype[Any], model: np.dtype[Any]) -> bool:
    """Whether an array holds real numbers in this machine's byte order, or the model's own type.

    Types change in ordinary training: FedAdam makes a float32 model float64, and an app returns
    float32 again.
    """
    return dtype == model or (dtype.kind in INTEGERS + "f" and dtype.isnative)
