"""Trackers: the outcome of every booked round in MLflow, TensorBoard or Weights & Biases.

A tracker is any object with the method `log`. It is called after a round is in the book, and cannot
change it. The three adapters here import their library when they are made, so that none of them is
needed otherwise.

The names that are logged, with a member's label (or its id, if it has no label) in place of MEMBER:

| name | meaning |
|---|---|
| `verax/MEMBER/squared_norm` | ‖reply − sent‖², if the reply counts |
| `verax/MEMBER/payment` | what the member pays for the round; negative if it receives |
| `verax/MEMBER/balance` | what it owes after the round |
| `verax/ok`, `verax/missing`, `verax/rejected`, `verax/error` | the number of members by status |
| `verax/alarms` | the number of members whose norm changed suddenly |

Amounts are in the currency of the terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from verax.flower.log import log


class Tracker(Protocol):
    """Whatever keeps numbers by round; a class needs no more than this method to be one."""

    def log(self, round_: int, values: Mapping[str, float], /) -> None:
        """Keep the values of a round."""
        ...


class MLflowTracker:
    """Logs to MLflow, with the round as the step.

    Characters that MLflow refuses in the name of a metric become underscores.

    Args:
        run_id: an MLflow run; by default the active one, and MLflow begins one if there is none.
    """

    def __init__(self, run_id: str | None = None) -> None:
        self._mlflow = _library("mlflow", "MLflowTracker")
        self._run_id = run_id

    def log(self, round_: int, values: Mapping[str, float], /) -> None:
        """Log the values of a round."""
        accepted = {re.sub(r"[^\w./ -]", "_", name): value for name, value in values.items()}
        self._mlflow.log_metrics(accepted, step=round_, run_id=self._run_id)


class TensorBoardTracker:
    """Writes event files for TensorBoard, with the round as the step.

    TensorBoard keeps scalars in float32.

    Args:
        folder: of the event files, as in `tensorboard --logdir FOLDER`.
    """

    def __init__(self, folder: str | Path) -> None:
        summary = _library("tensorboard.summary", "TensorBoardTracker")
        self._writer = summary.Writer(str(folder))

    def log(self, round_: int, values: Mapping[str, float], /) -> None:
        """Write the values of a round to the file at once."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, round_)
        self._writer.flush()


class WandbTracker:
    """Logs to a run of Weights & Biases, with `verax/round` as the x-axis of its charts.

    The run's own step is left alone, so that an app can log to the same run.

    Args:
        run: what `wandb.init` returned; by default a run is begun here, as the environment says
            (`WANDB_PROJECT`, `WANDB_MODE`, …).
    """

    def __init__(self, run: Any = None) -> None:
        wandb = _library("wandb", "WandbTracker")
        self._run = wandb.init() if run is None else run
        self._run.define_metric("verax/*", step_metric="verax/round")

    def log(self, round_: int, values: Mapping[str, float], /) -> None:
        """Log the values of a round."""
        self._run.log({"verax/round": round_, **values})


class Trackers:
    """The trackers of a run. None of them can end it: one that fails is named in one warning."""

    def __init__(self, trackers: Iterable[Tracker] = ()) -> None:
        self._trackers = tuple(trackers)
        self._failed: set[int] = set()

    def log(self, round_: int, values: Mapping[str, float]) -> None:
        """Give the values of a round to all trackers, also to those that failed before."""
        for place, tracker in enumerate(self._trackers):
            try:
                tracker.log(round_, dict(values))
            except Exception as error:  # the round is booked: a chart must not end the training
                if place not in self._failed:
                    self._failed.add(place)
                    log.warning(
                        "Verax: %s could not log round %d: %s: %s. The run goes on, and further "
                        "errors of this tracker are not shown",
                        type(tracker).__name__,
                        round_,
                        type(error).__name__,
                        error,
                    )


def _library(module: str, tracker: str) -> Any:
    """A library that is imported only now; an ImportError says how to install it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ImportError(
            f"{tracker} needs {package}, which is not installed: pip install {package}",
            name=package,
        ) from None
