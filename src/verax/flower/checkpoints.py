"""The model after each booked round, so that a run resumes where the book ends.

Posting commits a round: the model after round t is written *before* round t is posted, and is used
only if round t is in the book. A run that is killed before the post repeats the round and charges
it once; a run that is killed after the post finds the model and does not repeat the round.
"""

from __future__ import annotations

import json
import logging
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import BadZipFile

import numpy as np
from flwr.app import Array, ArrayRecord

from verax.files import write_with

_log = logging.getLogger("flwr.verax")

_KEPT = 2  # the models after the round that is being booked and after the one before


class Checkpoints:
    """The models of one run, in a folder.

    Args:
        folder: where models are stored.
        run: the run's name.
    """

    def __init__(self, folder: str | Path, run: str) -> None:
        self._folder = Path(folder) / quote(run, safe=" ")

    def save(self, round_: int, arrays: ArrayRecord) -> None:
        """Store the model after a round, completely or not at all; older models are removed."""
        names = np.frombuffer(json.dumps(list(arrays)).encode(), np.uint8)
        parts: dict[str, Any] = {
            f"array{i}": array.numpy() for i, array in enumerate(arrays.values())
        }
        write_with(self._path(round_), lambda file: np.savez(file, names=names, **parts))
        for path in sorted(self._folder.glob("round-*.npz"))[:-_KEPT]:
            path.unlink(missing_ok=True)

    def load(self, round_: int) -> ArrayRecord | None:
        """The model after a round, or None if it is not stored."""
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
            raise ValueError(f"{path} cannot be read ({error}); restore it from a backup") from None

    def _path(self, round_: int) -> Path:
        return self._folder / f"round-{round_:09d}.npz"


def resumed_model(
    folder: str | Path | None, run: str, last: int, initial: ArrayRecord
) -> ArrayRecord | None:
    """The model with which a run goes on after its last round in the book, or None.

    Args:
        folder: of the checkpoints, if there is one.
        run: the run's name.
        last: its last round in the book.
        initial: the model with which the run began.
    """
    stored = None if folder is None else Checkpoints(folder, run).load(last)
    if stored is None:
        _log.warning(
            "Verax: run %r has %d rounds in the book, but no checkpoint of round %d: it begins "
            "again with round 1. Rounds that repeat exactly are not charged again; a different "
            "one is refused, and needs a `run` of its own",
            run,
            last,
            last,
        )
        return None
    if list(stored) != list(initial):
        raise ValueError(
            f"the checkpoint of run {run!r} is of another model; give the run another name"
        )
    _log.info("Verax: run %r resumes after round %d, the last in the book", run, last)
    return stored
