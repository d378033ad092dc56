"""The model after each booked round, so that a run goes on where the book ends.

The book is what commits a round: the model after round t is written *before* round t is posted, and
counts only once round t is in the book. Killed before the post, the round is run again and charged
once; killed after it, the model is there and the round is not run again.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import BadZipFile

import numpy as np
from flwr.app import Array, ArrayRecord

from verax.files import write_with

__all__ = ["Checkpoints"]

_KEPT = 2  # the round that is being booked, and the one before it


class Checkpoints:
    """Models of one run in a folder.

    Args:
        folder: where they are kept.
        run: whose they are.
    """

    def __init__(self, folder: str | Path, run: str) -> None:
        self._folder = Path(folder) / quote(run, safe=" ")

    def save(self, round_: int, arrays: ArrayRecord) -> None:
        """Keep the model after a round, wholly or not at all; older ones go."""
        names = np.frombuffer(json.dumps(list(arrays)).encode(), np.uint8)
        parts: dict[str, Any] = {
            f"array{i}": array.numpy() for i, array in enumerate(arrays.values())
        }
        write_with(self._path(round_), lambda file: np.savez(file, names=names, **parts))
        for path in sorted(self._folder.glob("round-*.npz"))[:-_KEPT]:
            path.unlink(missing_ok=True)

    def load(self, round_: int) -> ArrayRecord | None:
        """The model after a round, or None if it was not kept."""
        path = self._path(round_)
        if not path.exists():
            return None
        try:
            with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as stored:
                names = json.loads(stored["names"].tobytes())
                return ArrayRecord(
                    {name: Array(stored[f"array{i}"]) for i, name in enumerate(names)}
                )
        except (ValueError, KeyError, BadZipFile) as error:
            raise ValueError(f"{path} cannot be read ({error}); take it from a backup") from None

    def _path(self, round_: int) -> Path:
        return self._folder / f"round-{round_:09d}.npz"
