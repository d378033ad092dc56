"""The rehearsal: an audit of a live federation, where the data are.

One line in `server_app.py` turns an app into its own rehearsal:

    app = rehearsal(app, Plan.of(clients=3), out="rehearsal")

`flwr run` then runs the audit on the SuperNodes that are connected: many training runs, one after
the other, in which the server changes one member's replies as that member could have done itself.
Nothing but the app's own messages travels. A run that is interrupted is continued by the same
command.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from verax.apps.api import on_messages
from verax.apps.cache import DEFAULT_LIMIT, ReplyCache
from verax.apps.clients import LiveClients
from verax.apps.engine import AppEngine, AppSubject
from verax.apps.look import AppFacts, facts_from
from verax.apps.run import AppRun, first_exchange, run_app
from verax.audit.api import audit_subject
from verax.audit.plan import Plan
from verax.audit.run.execute import total_rounds
from verax.audit.run.runs import Run
from verax.files import write_text
from verax.learning import Behaviour

_log = logging.getLogger("flwr.verax")


def rehearsal(
    app: ServerApp,
    plan: Plan,
    *,
    out: str | Path = "rehearsal",
    name: str = "rehearsal",
    cache: int = DEFAULT_LIMIT,
) -> ServerApp:
    """A ServerApp that audits another one on the federation on which it is started.

    Args:
        app: the ServerApp as it is.
        plan: what to try, with the number of nodes as `clients`.
        out: a folder on the server for record, report, figures and terms; what an earlier start
            has done there is not done again.
        name: of the app in the report.
        cache: bytes of honest replies that may be kept on disk.
    """
    plan = on_messages(plan).changed(search="off")  # each policy would be a run of all members
    rehearsed = ServerApp()

    @rehearsed.main()
    def main(grid: Grid, context: Context) -> None:
        side = _Side(app, dict(context.run_config))
        _rehearse(side, plan, Path(out).resolve(), name, cache, grid)

    return rehearsed


@dataclass(frozen=True)
class _Side:
    server: ServerApp
    run_config: dict[str, Any]


class _LiveSubject(AppSubject):
    """A federation whose members answer through Flower's grid."""

    def __init__(
        self, plan: Plan, facts: AppFacts, cache: int, side: _Side, clients: LiveClients
    ) -> None:
        super().__init__(plan, facts, cache)
        self._side, self._clients = side, clients

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes, or those of the plan."""
        nodes = tuple(node.name for node in self._clients.nodes)
        return nodes if all(nodes) and len(set(nodes)) == len(nodes) else super().names

    def fingerprint(self) -> str:
        """What the look at the app found, because the server does not have the data."""
        facts = self.facts
        return f"{facts.name}, {facts.strategy}, {facts.rounds} rounds, {facts.parameters} numbers"

    def engine(self, plan: Plan, folder: Path) -> _LiveEngine:
        """An engine that asks the live federation."""
        return _LiveEngine(plan, folder, self._side, self._clients)


class _LiveEngine(AppEngine):
    def __init__(self, plan: Plan, folder: Path, side: _Side, clients: LiveClients) -> None:
        super().__init__(plan, folder)
        self._side, self._clients = side, clients

    def run_once(self, run: Run, behaviour: Behaviour) -> AppRun:
        """One run on the federation."""
        plan, cache = self._plan, self._cache
        done = run_app(self._side, self._clients, run.seed, cache, behaviour, plan.rounds)
        _log.info("Verax: run %d, %d client calls", run.number, done.calls)
        return done


def _rehearse(side: _Side, plan: Plan, folder: Path, name: str, cache: int, grid: Grid) -> None:
    clients = LiveClients(grid, plan.task.clients)
    beside = folder.with_name(f"{folder.name}.app.json")  # the folder itself belongs to the audit
    if beside.exists():
        facts = AppFacts(**json.loads(beside.read_text(encoding="utf-8")))
    else:
        facts = _look(side, plan, name, clients)
        write_text(beside, json.dumps(asdict(facts), indent=1))
    if not facts.reproducible:
        _log.warning(
            "Verax: the same call gave different updates, so that runs are not paired; add the mod "
            "verax.flower.paired to the ClientApp, or use more seeds"
        )
    chosen = plan.changed(rounds=facts.rounds, metric=facts.metric)
    total, done = total_rounds(chosen, chosen.rounds), 0

    def progress(rounds: int) -> None:
        nonlocal done
        done += rounds
        _log.info("Verax: %d of %d rounds of the rehearsal", done, total)

    subject = _LiveSubject(chosen, facts, cache, side, clients)
    audit = audit_subject(subject, chosen, out=folder, workers=1, progress=progress)
    beside.unlink()
    for sentence in audit.summary["verdict"]:
        _log.info("Verax: %s", sentence)
    _log.info("Verax: report and terms are in %s", folder)


def _look(side: _Side, plan: Plan, name: str, clients: LiveClients) -> AppFacts:
    nothing, replica = ReplyCache(Path(), 0), plan.seeds.first
    clock = time.monotonic()
    run = run_app(side, clients, replica, nothing)
    seconds = time.monotonic() - clock
    first, again = (first_exchange(side, clients, replica) for _ in range(2))
    return facts_from(name, plan.app.metric, run, seconds, first, again, differ=True)
