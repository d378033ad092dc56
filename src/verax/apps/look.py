"""A first look at an app, before its audit: rounds, metric, weights, reproducibility, time.

It runs in a process of its own (`python -m verax.apps.look PLAN RESULT LOG`), because the app is
free to write files, to print, and to change its process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from verax.apps.app import load_app
from verax.apps.cache import ReplyCache
from verax.apps.grid import AS_REPORTED, FirstExchange
from verax.apps.run import AppRun, chosen_metric, first_exchange, run_app
from verax.apps.scratch import in_scratch
from verax.audit.plan import Plan
from verax.flower.weighing import innermost, reply_weights
from verax.mechanism.weights import WeightKind
from verax.quiet import NO_TELEMETRY


@dataclass(frozen=True)
class AppFacts:
    """What one honest run of an app tells.

    Attributes:
        name: of the app.
        strategy: the name of its strategy.
        weights: equal, or reported where clients' own numbers are the weights.
        rounds: T.
        metric: the reward, NAME or NAME:up.
        parameters: how many numbers the model has.
        calls: client calls of one run.
        run_seconds: how long one run takes.
        reproducible: whether the same first round gave the same replies twice.
        replicas_differ: whether the first round of another replica was another one.
        flower: the version of Flower.
        relative_error: the largest of a member's first update when it is computed again; None if
            nothing says it.
    """

    name: str
    strategy: str
    weights: WeightKind
    rounds: int
    metric: str
    parameters: int
    calls: int
    run_seconds: float
    reproducible: bool
    replicas_differ: bool
    flower: str
    relative_error: float | None = None


def look_at(plan: Plan) -> AppFacts:
    """Look at a plan's app in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="verax-look-") as folder:
        given, result, log = (Path(folder) / name for name in ("plan.toml", "facts.json", "log"))
        given.write_text(plan.to_toml(), encoding="utf-8")
        command = [sys.executable, "-m", "verax.apps.look", str(given), str(result), str(log)]
        environment = os.environ | NO_TELEMETRY
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if not result.exists():
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise ValueError(f"the app ended its process with {done.returncode}: {lines[-1]}")
        found = json.loads(result.read_text(encoding="utf-8"))
    if "error" in found:
        raise ValueError(f"the app cannot be audited: {found['error']}")
    return AppFacts(**found)


def facts_of(plan: Plan) -> AppFacts:
    """Run the app honestly once, and its first round twice more, once as another replica."""
    key, clients, replica = plan.app.seed_key, plan.task.clients, plan.seeds.first
    app = load_app(plan.app.folder, plan.app.run_config)
    own, other = app.of_replica(replica, key), app.of_replica(replica + 1, key)
    clock = time.perf_counter()
    run = run_app(own, own.clients(clients, replica), replica, ReplyCache(Path(), 0))
    seconds = time.perf_counter() - clock
    first = first_exchange(own, own.clients(clients, replica), replica)
    again = first_exchange(own, own.clients(clients, replica), replica)
    differ = first_exchange(other, other.clients(clients, replica + 1), replica + 1)
    differs = first.digest != differ.digest
    return facts_from(app.name, plan.app.metric, run, seconds, first, again, differ=differs)


def facts_from(
    name: str,
    metric: str,
    run: AppRun,
    seconds: float,
    first: FirstExchange,
    again: FirstExchange,
    *,
    differ: bool,
) -> AppFacts:
    """What an honest run tells, and what was found by comparing first rounds."""
    if run.diverged or not run.rounds:
        raise ValueError("honest training diverged; lower the app's learning rate")
    chosen, up = chosen_metric(metric, run.metrics)
    weights = reply_weights(run.strategy, AS_REPORTED)
    return AppFacts(
        name=name,
        strategy=type(innermost(run.strategy)).__name__,
        weights="reported" if weights.by_count or weights.loss_key else "equal",
        rounds=len(run.rounds),
        metric=f"{chosen}:up" if up else chosen,
        parameters=run.parameters,
        calls=run.calls,
        run_seconds=seconds,
        reproducible=first.digest == again.digest,
        replicas_differ=differ,
        flower=version("flwr"),
        relative_error=first.error_of(again),
    )


def main(given: Path, result: Path, log: Path) -> None:
    """Write the facts of a plan's app, or what went wrong, as JSON."""
    plan = Plan.from_toml(given.read_text(encoding="utf-8"))
    try:
        with (
            tempfile.TemporaryDirectory(prefix="verax-app-") as folder,
            in_scratch(Path(folder), log),
        ):
            found = asdict(facts_of(plan))
    except ValueError as error:
        found = {"error": str(error)}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
