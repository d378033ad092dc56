"""One run of an unchanged app: its ServerApp's `main` on our grid, then every member's evaluation.

The final model and the strategy are learned from `Strategy.start`, which all strategies of Flower's
Message API inherit; it is wrapped while a run lasts. Rewards are the ClientApp's own evaluation of
the final model, asked of every member once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from verax.apps.cache import ReplyCache
from verax.apps.clients import Clients
from verax.apps.grid import (
    AS_REPORTED,
    AuditGrid,
    DivergedError,
    EnoughError,
    FirstExchange,
    MeasuredRound,
    metrics_of,
)
from verax.flower.randomness import seeded
from verax.flower.unpaid import unpaid
from verax.flower.weighing import innermost, reply_weights
from verax.learning import Behaviour


class ServerSide(Protocol):
    """An app as far as a server runs it."""

    @property
    def server(self) -> ServerApp:
        """Its ServerApp."""
        ...

    @property
    def run_config(self) -> dict[str, Any]:
        """Its configuration."""
        ...


@dataclass(frozen=True, eq=False)
class AppRun:
    """What a run left behind.

    Attributes:
        rounds: the statistics of every round that was completed.
        metrics: every member's own evaluation of the final model; empty if the run diverged.
        diverged: whether numbers stopped being finite.
        strategy: the strategy that the app started.
        calls: how often the ClientApp was called; replies from the cache are not counted.
        parameters: how many numbers the model has.
    """

    rounds: list[MeasuredRound]
    metrics: list[dict[str, float]]
    diverged: bool
    strategy: Strategy
    calls: int
    parameters: int


def run_app(
    app: ServerSide,
    clients: Clients,
    replica: int,
    cache: ReplyCache,
    behaviour: Behaviour | None = None,
    rounds: int = 0,
) -> AppRun:
    """Run an app once.

    Args:
        app: the app's ServerApp and configuration.
        clients: who answers.
        replica: seeds everything that is random.
        cache: of honest replies; an honest run fills it.
        behaviour: who deviates, and how; default: nobody.
        rounds: T, needed where somebody deviates.
    """
    grid = AuditGrid(clients, replica, rounds, behaviour or Behaviour(), cache)
    context = Context(1, 1, {}, RecordDict(), dict(app.run_config))
    metrics: list[dict[str, float]] = []
    diverged = False
    with unpaid(), _watched(grid) as started:
        try:
            with seeded(replica):
                app.server(grid, context)
            metrics = started.evaluated(grid)
        except DivergedError:
            diverged = True
    assert started.strategy is not None
    return AppRun(grid.rounds, metrics, diverged, started.strategy, grid.calls, grid.parameters)


def first_exchange(app: ServerSide, clients: Clients, replica: int) -> FirstExchange:
    """The first training messages and their replies."""
    grid = FirstExchange(clients, replica)
    context = Context(1, 1, {}, RecordDict(), dict(app.run_config))
    with unpaid(), _watched(grid), seeded(replica), suppress(EnoughError):
        app.server(grid, context)
    return grid


class _Started:
    """What `Strategy.start` was given and returned."""

    def __init__(self) -> None:
        self.strategy: Strategy | None = None
        self.arrays = ArrayRecord()
        self.evaluate_config = ConfigRecord()

    def evaluated(self, grid: AuditGrid) -> list[dict[str, float]]:
        """Every member's evaluation of the final model, in the form of the strategy's messages."""
        if self.strategy is None:
            raise ValueError(
                "the ServerApp's main never called `Strategy.start`; an audit learns the final "
                "model from it"
            )
        inner = innermost(self.strategy)
        config = ConfigRecord({**self.evaluate_config, "server-round": len(grid.rounds)})
        content = {
            getattr(inner, "arrayrecord_key", "arrays"): self.arrays,
            getattr(inner, "configrecord_key", "config"): config,
        }
        messages = [
            Message(RecordDict(dict(content)), dst_node_id=node, message_type="evaluate")
            for node in grid.get_node_ids()
        ]
        return [metrics_of(reply) for reply in grid.send_and_receive(messages)]


@contextmanager
def _watched(audited: AuditGrid) -> Generator[_Started]:
    """Learn what the app starts, and with what it ends."""
    started, original = _Started(), Strategy.start

    def start(
        self: Strategy,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        started.strategy, started.arrays = self, initial_arrays
        started.evaluate_config = evaluate_config or ConfigRecord()
        audited.weights = reply_weights(self, AS_REPORTED)
        rest = (num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        result = original(self, grid, initial_arrays, *rest)
        started.arrays = result.arrays or initial_arrays
        return result

    Strategy.start = start
    try:
        yield started
    finally:
        Strategy.start = original


def chosen_metric(asked: str, metrics: list[dict[str, float]]) -> tuple[str, bool]:
    """The metric that is the reward, and whether more of it is better.

    Args:
        asked: NAME or NAME:up as the user gave it; empty: the one whose name contains "loss".
        metrics: of every member.
    """
    common = [name for name in metrics[0] if all(name in one for one in metrics)]
    known = ", ".join(common) or "none"
    name, _, direction = asked.partition(":")
    if direction not in ("", "up", "down"):
        raise ValueError(f"metric is {asked!r}, must be NAME, NAME:up or NAME:down")
    if name:
        if name not in common:
            raise ValueError(f"metric {name!r} is not evaluated by every member; known: {known}")
        return name, direction == "up"
    losses = [name for name in common if "loss" in name.lower()]
    if len(losses) != 1:
        raise ValueError(
            f"{len(losses)} metrics of the evaluation have “loss” in their name; choose one by "
            f"--metric NAME, or --metric NAME:up where more is better; known: {known}"
        )
    return losses[0], False


def losses_of(run: AppRun, metric: str, clients: int) -> NDArray[np.float64]:
    """What each member wants to be small, (N,): the metric, or its negative where more is better.

    NaN where a run diverged.
    """
    name, _, direction = metric.partition(":")
    if run.diverged:
        return np.full(clients, np.nan)
    sign = -1.0 if direction == "up" else 1.0
    return sign * np.array([one.get(name, np.nan) for one in run.metrics])


def padded(rounds: list[MeasuredRound], wanted: int, clients: int) -> list[MeasuredRound]:
    """Exactly T rounds: an app that stops early has rounds in which nobody took part."""
    if len(rounds) > wanted:
        raise ValueError(
            f"a run has {len(rounds)} rounds, the honest one that was looked at {wanted}; the app "
            "must not train longer because of what members send"
        )
    missing = wanted - len(rounds)
    return rounds + list(itertools.repeat(MeasuredRound(clients), missing))
