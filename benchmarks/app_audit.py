"""What an audit of a Flower app costs beside the app itself.

    python benchmarks/app_audit.py [--app FOLDER] [--clients N] [--rounds T]

Prints, from one process: the share of CPU time that is spent in the engine, outside of the app's
ClientApp and strategy; and how many client calls the whole audit makes, as a share of what it would
make without the cache of honest replies. The default app is the PyTorch one of the tests.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from verax.apps.api import app_plan
from verax.apps.app import FlowerApp, load_app
from verax.apps.cache import ReplyCache
from verax.apps.grid import AuditGrid
from verax.apps.look import facts_of
from verax.apps.run import run_app
from verax.apps.scratch import in_scratch
from verax.audit.run.runs import all_runs

APP = Path(__file__).parents[1] / "tests" / "apps" / "torch_clinics"


class Clock:
    """CPU seconds inside the grid, and inside the ClientApp."""

    def __init__(self) -> None:
        self.grid = self.client = 0.0

    def timed(self, app: ClientApp) -> ClientApp:
        """A mod's view of an app: every call is timed."""

        def call(message: Message, context: Context) -> Message:
            begin = time.process_time()
            try:
                return app(message, context)
            finally:
                self.client += time.process_time() - begin

        return call  # pyright: ignore[reportReturnType]


def main() -> None:
    """Measure one app."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--app", type=Path, default=APP)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    config = f"num-server-rounds={given.rounds}"
    plan = app_plan(
        given.app,
        given.clients,
        run_config=config,
        setting_seeds=1,
        choosing_seeds=1,
        judging_seeds=2,
    )
    clock, original = Clock(), AuditGrid.send_and_receive

    def send_and_receive(
        self: AuditGrid, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        begin = time.process_time()
        try:
            return original(self, messages, timeout=timeout)
        finally:
            clock.grid += time.process_time() - begin

    AuditGrid.send_and_receive = send_and_receive
    with TemporaryDirectory() as folder, in_scratch(Path(folder), Path(folder) / "log"):
        facts = facts_of(plan)
        plan = plan.changed(rounds=facts.rounds, metric=facts.metric)
        app = load_app(plan.app.folder, config)
        app = FlowerApp(app.folder, app.name, app.server, clock.timed(app.client), app.run_config)
        cache = ReplyCache(Path(folder) / "replies", 4 * 2**30)
        clock.grid = clock.client = 0.0
        runs = sorted(all_runs(plan, plan.rounds), key=lambda run: run.role != "honest")
        calls, begin = 0, time.process_time()
        for run in runs:
            clients = app.clients(given.clients, run.seed)
            behaviour = run.behaviour(given.clients)
            calls += run_app(app, clients, run.seed, cache, behaviour, plan.rounds).calls
        total = time.process_time() - begin
    outside = (clock.grid - clock.client) / total
    print(f"{facts.name}: {len(runs)} runs, {calls:,} client calls, {total:.1f} CPU-s")
    print(f"outside of the app: {outside:.1%} of the CPU time")
    print(f"client calls: {calls / (len(runs) * facts.calls):.2f} of those without the cache")


if __name__ == "__main__":
    main()
