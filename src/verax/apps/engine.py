"""An app as the subject of an audit: every run is one run of the app."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.apps.app import FlowerApp, app_digest, load_app
from verax.apps.cache import DEFAULT_LIMIT, ReplyCache
from verax.apps.look import AppFacts
from verax.apps.run import AppRun, losses_of, padded, run_app
from verax.apps.scratch import in_scratch
from verax.audit.plan import Plan
from verax.audit.run.runs import Run, RunBatch, all_runs
from verax.audit.run.subject import REPLIES, Description, Progress, StoppedError
from verax.learning import Behaviour, Evaluation
from verax.mechanism import Statistics

Array = NDArray[np.float64]


class AppSubject:
    """A Flower app that was looked at.

    Args:
        plan: names the app.
        facts: what the look told.
        cache: bytes of replies that may be kept on disk.
    """

    worker_module = "verax.apps.process"

    def __init__(self, plan: Plan, facts: AppFacts, cache: int) -> None:
        self._plan, self.facts, self._cache = plan, facts, cache

    @property
    def name(self) -> str:
        """The app's name."""
        return self.facts.name

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names."""
        plan = self._plan
        return plan.app.names or tuple(f"client {i}" for i in range(plan.task.clients))

    def fingerprint(self) -> str:
        """A digest of the app's files."""
        return app_digest(Path(self._plan.app.folder))

    def describe(self, plan: Plan) -> Description:
        """Strategy, weights and metric."""
        facts = self.facts
        name, _, direction = facts.metric.partition(":")
        details = [
            ("model", f"{facts.parameters:,} numbers"),
            ("reward", f"{name}, {'more' if direction == 'up' else 'less'} is better"),
            (
                "weights",
                "what clients report" if facts.weights == "reported" else "equal",
            ),
        ]
        return Description(
            message="model difference",
            protocol=f"Flower app {facts.name}, {facts.strategy}, flwr {facts.flower}",
            local_work="the app's own training",
            weights=facts.weights,
            details=tuple(details),
            lower_step="lower the app's learning rate",
            error=facts.relative_error,
        )

    def settings(self, memory: int | None, workers: int) -> dict[str, Any]:
        """How many bytes of replies each worker may keep."""
        if memory is not None:
            raise ValueError(
                f"memory is {memory / 2**30:.3g}G, but an app's processes use what the app needs; "
                "give fewer --workers instead"
            )
        return {"cache": self._cache // workers}

    def engine(self, plan: Plan, folder: Path) -> AppEngine:
        """An engine that loads the app when it computes its first run."""
        return AppEngine(plan, folder)

    def runner(self, plan: Plan) -> AppRunner:
        """The app, run in this process."""
        return AppRunner(plan)


@dataclass(frozen=True, eq=False)
class AppResults:
    """One run as the record takes it."""

    first: int
    statistics: Statistics[Array]
    loss: Array
    present: NDArray[np.bool_]
    evaluations: list[Evaluation]
    diverged: NDArray[np.intp]


class AppRunner:
    """Runs an app in this process, with fresh clients for each run.

    Args:
        plan: which app.
        cache: of honest replies; default: one that ends with this object.
        log: what the app prints; default: it is lost.
    """

    work = 0.0  # only the app knows
    width = 1

    def __init__(
        self, plan: Plan, cache: ReplyCache | None = None, log: Path = Path(os.devnull)
    ) -> None:
        self._plan, self._log, self._lock = plan, log, threading.Lock()
        self._scratch = Path(tempfile.mkdtemp(prefix="verax-app-"))
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        if cache is None:
            cache = ReplyCache(self._scratch / REPLIES, DEFAULT_LIMIT)
        self._cache = cache

    def run(self, seed: int, behaviours: Sequence[Behaviour]) -> AppResults:
        """One run."""
        (behaviour,) = behaviours
        return _results(self.run_once(seed, behaviour), self._plan)

    def run_once(self, seed: int, behaviour: Behaviour) -> AppRun:
        """One run at a time: an app may use global state, such as the current folder."""
        plan = self._plan
        app = self._app.of_replica(seed, plan.app.seed_key)
        # One folder serves all runs of this process: an app may keep there what it downloads.
        with self._lock, in_scratch(self._scratch, self._log):
            clients = app.clients(plan.task.clients, seed)
            return run_app(app, clients, seed, self._cache, behaviour, plan.rounds)

    @cached_property
    def _app(self) -> FlowerApp:
        return load_app(self._plan.app.folder, self._plan.app.run_config)


class AppEngine:
    """Computes runs of an app, one after the other.

    Args:
        plan: what to try.
        folder: of the record; replies of honest runs are kept in its working folder.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        settings = json.loads((folder / "work" / "settings.json").read_text())
        self._cache = ReplyCache(folder / "work" / REPLIES, settings["cache"])
        log = folder / "work" / f"app-{os.getpid()}.log"
        self._runner = AppRunner(plan, self._cache, log)
        runs = all_runs(plan, plan.rounds)  # no run branches off: honest prefixes are cached
        self.batches = [RunBatch(run.number, (run,), 1) for run in runs]

    def needs(self, batch: RunBatch) -> list[Path]:
        """Nothing: what is not in the cache is computed."""
        return []

    def compute(self, batch: RunBatch, progress: Progress, stop: threading.Event) -> AppResults:
        """Run the app once; a run that is stopped begins again, with its honest rounds cached."""
        (run,) = batch.runs
        done = self.run_once(run, run.behaviour(self._plan.task.clients))
        progress(self._plan.rounds)
        if stop.is_set():
            raise StoppedError
        return _results(done, self._plan)

    def run_once(self, run: Run, behaviour: Behaviour) -> AppRun:
        """One run, with fresh clients in this process."""
        return self._runner.run_once(run.seed, behaviour)


def _results(run: AppRun, plan: Plan) -> AppResults:
    rounds = padded(run.rounds, plan.rounds, plan.task.clients)
    statistics: dict[str, Array] = {}
    for name in ("norms", "gram", "misreport"):
        values = [getattr(one.statistics, name) for one in rounds]
        if values[0] is not None:
            statistics[name] = np.stack(values)[None]
    loss = losses_of(run, plan.app.metric, plan.task.clients)
    unknown = np.full_like(loss, np.nan)[None]
    finite = bool(np.all(np.isfinite(loss)))
    ended = 0 if finite else min(len(run.rounds) + run.diverged, plan.rounds)
    present = np.stack([one.present for one in rounds])
    return AppResults(
        0,
        Statistics(**statistics),
        np.full((1, *present.shape), np.nan),
        present[None],
        [Evaluation(plan.rounds, loss[None], unknown)],
        np.array([ended]),
    )
