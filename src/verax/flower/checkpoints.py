"""The model after each booked round, so that a run resumes where the book ends.

Posting commits a round. The model after round t is written *before* round t is posted, in a file of
this process's own beside what is posted, and gets its final name *after* the post. Of two servers
with one run, only the one whose round is in the book gets there. A run that is killed before the
post repeats the round and charges it once. A run that is killed between the post and the renaming
finds the file when it resumes: it is the right one if posting its reports again changes nothing.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import BadZipFile

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from verax.files import rename, sync_folder, write_with
from verax.flower.log import log
from verax.ledger import Report
from verax.ledger.forms import SignedStatement
from verax.ledger.round import Models
from verax.text import shown

Gram = NDArray[np.float64] | None

_KEPT = 2  # the models after the last round and after the one before
_LONGEST_NAME = 200  # file systems allow 255 bytes


def check_run_name(run: str) -> str:
    """Refuse a name that would lead out of the folder of the checkpoints, or deceive a reader."""
    if not run or run != run.strip() or run.startswith(".") or not run.isprintable():
        raise ValueError(
            f"run is {shown(run)}, must be visible text that does not begin with a dot or a space"
        )
    if "/" in run or "\\" in run:
        raise ValueError(f"run is {shown(run)}, must not contain / or \\: it names a folder")
    if len(quote(run, safe=" ")) > _LONGEST_NAME:
        raise ValueError(
            f"run has {len(quote(run, safe=' '))} bytes as the name of a folder, must have at most "
            f"{_LONGEST_NAME}"
        )
    return run


class Checkpoints:
    """The models of one run, in a folder.

    Args:
        folder: where models are stored.
        run: the run's name.
    """

    def __init__(self, folder: str | Path, run: str) -> None:
        self._folder = Path(folder) / quote(check_run_name(run), safe=" ")
        self._own = f"{os.getpid()}-{secrets.token_hex(4)}"

    def stage(
        self,
        round_: int,
        arrays: ArrayRecord,
        reports: Sequence[Report],
        gram: Gram,
        models: Models,
    ) -> None:
        """Store the model after a round that is about to be posted."""
        new = not self._folder.exists()
        parts: dict[str, Any] = {
            f"array{i}": array.numpy() for i, array in enumerate(arrays.values())
        }
        parts["names"] = _json_array(list(arrays))
        parts["reports"] = _json_array([asdict(report) for report in reports])
        parts["models"] = _json_array(models)
        if gram is not None:
            parts["gram"] = gram
        write_with(self._staged(round_), lambda file: np.savez(file, **parts))
        if new:
            sync_folder(self._folder.parent)

    def promote(self, round_: int) -> None:
        """Give the model of a round that is in the book its name; older ones are removed."""
        try:
            self._promote(self._staged(round_), round_)
        except FileNotFoundError:
            log.warning(
                "Verax: the model after round %d was removed by another server of this run, which "
                "is ahead; end one of the two",
                round_,
            )

    def discard(self, round_: int) -> None:
        """Remove the model of a round that could not be posted."""
        self._staged(round_).unlink(missing_ok=True)

    def recover(self, round_: int, is_booked: Callable[[list[Report], Gram, Models], bool]) -> None:
        """Find the model of a booked round that was not renamed any more.

        Args:
            round_: the last round in the book.
            is_booked: whether the book has the round with these reports.
        """
        if self._path(round_).exists():
            return
        for path in sorted(self._folder.glob(f"{self._path(round_).stem}.*.staged.npz")):
            try:
                with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as stored:
                    reports = [_report(one) for one in json.loads(stored["reports"].tobytes())]
                    models = Models(*json.loads(stored["models"].tobytes()))
                    gram = stored.get("gram")
            except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile):
                continue  # it was not written to its end, or belongs to nobody
            if is_booked(reports, gram, models):
                self._promote(path, round_)
                return

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
        except (ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(f"{path} cannot be read ({error}); restore it from a backup") from None

    def _promote(self, staged: Path, round_: int) -> None:
        rename(staged, self._path(round_))
        for path in sorted(self._folder.glob("round-?????????.npz"))[:-_KEPT]:
            path.unlink(missing_ok=True)
        for path in self._folder.glob("round-*.staged.npz"):
            if path.name < self._path(round_ - 1).name:  # of earlier rounds, which are booked
                path.unlink(missing_ok=True)

    def _path(self, round_: int) -> Path:
        return self._folder / f"round-{round_:09d}.npz"

    def _staged(self, round_: int) -> Path:
        return self._folder / f"round-{round_:09d}.{self._own}.staged.npz"


def _report(table: dict[str, Any]) -> Report:
    statement = table.pop("statement")
    return Report(**table, statement=None if statement is None else SignedStatement(*statement))


def _json_array(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def resumed_model(
    checkpoints: Checkpoints | None, run: str, last: int, initial: ArrayRecord
) -> ArrayRecord | None:
    """The model with which a run goes on after its last round in the book, or None.

    Args:
        checkpoints: of the run, if there are any.
        run: the run's name.
        last: its last round in the book.
        initial: the model with which the run began.
    """
    stored = None if checkpoints is None else checkpoints.load(last)
    if stored is None:
        log.warning(
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
    log.info("Verax: run %r resumes after round %d, the last in the book", run, last)
    return stored
