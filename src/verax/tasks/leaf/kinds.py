"""LEAF's three data sets: how the samples of a user become rows of numbers.

A sample that LEAF itself is known to produce and that cannot be used is skipped and counted;
anything else that does not fit is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: LEAF's alphabet of Shakespeare, in its order: a character's id is its place.
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"

_ID = {character: k for k, character in enumerate(CHARACTERS)}
_PIXELS = 28 * 28
_WINDOW = 80


@dataclass(frozen=True)
class Rows:
    """A user's usable samples: an Arrow array of x, labels, and what was skipped, by reason."""

    x: Any
    y: NDArray[np.uint8]
    skipped: dict[str, int]


@dataclass(frozen=True)
class Kind:
    """One data set.

    Attributes:
        name: of the data set.
        classes: how many labels there are.
        type: Arrow's type of a sample.
        shape: of a sample as an array of uint8; empty where it is text.
        encode: (x, y) of one user as JSON gives them → rows; ValueError says what does not fit.
    """

    name: str
    classes: int
    type: Any
    shape: tuple[int, ...]
    encode: Callable[[list[Any], list[Any]], Rows]


def _femnist(x: list[Any], y: list[Any]) -> Rows:
    wrong = next((k for k, image in enumerate(x) if len(image) != _PIXELS), None)
    if wrong is not None:
        raise ValueError(f"image {wrong} has {len(x[wrong])} pixels, must have {_PIXELS}")
    pixels = np.asarray(x, dtype=np.float64)
    if not (np.all(pixels >= 0) and np.all(pixels <= 1)):
        strange = pixels[~((pixels >= 0) & (pixels <= 1))][0]
        raise ValueError(f"a pixel is {strange:g}, must be in [0, 1]")
    return Rows(_binary(np.rint(pixels * 255).astype(np.uint8)), _labels(y, 62), {})


def _shakespeare(x: list[Any], y: list[Any]) -> Rows:
    rows, labels, unknown = bytearray(), bytearray(), 0
    for k, (window, following) in enumerate(zip(x, y, strict=True)):
        if not (isinstance(window, str) and isinstance(following, str)):
            raise ValueError(f"sample {k} is not text followed by a character")
        if len(window) != _WINDOW or len(following) != 1:
            raise ValueError(
                f"sample {k} has {len(window)} characters and {len(following)} to follow, must "
                f"have {_WINDOW} and 1"
            )
        ids = [_ID.get(character) for character in window + following]
        if None in ids:
            unknown += 1
            continue
        whole = bytes(ids)  # pyright: ignore[reportArgumentType]
        rows += whole[:_WINDOW]
        labels.append(whole[_WINDOW])
    encoded = np.frombuffer(bytes(rows), dtype=np.uint8).reshape(-1, _WINDOW)
    skipped = {"a character outside LEAF's 80": unknown} if unknown else {}
    return Rows(_binary(encoded), np.frombuffer(bytes(labels), dtype=np.uint8), skipped)


def _sent140(x: list[Any], y: list[Any]) -> Rows:
    texts: list[str] = []
    for k, row in enumerate(x):
        if not (isinstance(row, list) and len(row) == 5 and isinstance(row[4], str)):
            raise ValueError(f"sample {k} is not [id, date, query, user, text]")
        texts.append(row[4])
    return Rows(pa.array(texts, pa.string()), _labels([int(label) for label in y], 2), {})


def _labels(y: list[Any], classes: int) -> NDArray[np.uint8]:
    for k, label in enumerate(y):
        if not (isinstance(label, int) and 0 <= label < classes):
            raise ValueError(f"label {k} is {label!r}, must be 0 … {classes - 1}")
    return np.asarray(y, dtype=np.uint8)


def _binary(rows: NDArray[np.uint8]) -> Any:
    width = rows.shape[1]
    buffer = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(width), len(rows), [None, buffer])


KINDS = {
    kind.name: kind
    for kind in (
        Kind("femnist", 62, pa.binary(_PIXELS), (28, 28), _femnist),
        Kind("shakespeare", 80, pa.binary(_WINDOW), (_WINDOW,), _shakespeare),
        Kind("sent140", 2, pa.string(), (), _sent140),
    )
}
