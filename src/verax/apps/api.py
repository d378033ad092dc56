"""`verax audit --app`: look at the app, plan, run, judge, write the report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verax.apps.app import app_digest, nodes_of, read_project
from verax.apps.budget import fitted, predicted_seconds, time_words
from verax.apps.cache import DEFAULT_LIMIT
from verax.apps.engine import AppSubject
from verax.apps.look import AppFacts, look_at
from verax.audit.api import Audit, audit_subject
from verax.audit.plan import Plan
from verax.audit.run.execute import total_rounds
from verax.audit.search import search_rounds
from verax.documents import options
from verax.files import write_text

#: Sections of a plan that an app decides itself.
_DECIDED_BY_THE_APP = ("protocol", "record")

#: An app takes longer than a simulation, so that less is tried unless more is asked for.
_LESS = {
    "setting_seeds": 3,
    "choosing_seeds": 1,
    "judging_seeds": 4,
    "block_scales": (-3.0,),
    "absences": ((0.0, 0.5), (0.5, 1.0)),
    "quiet_scales": (1.0, 1.5),
    "search": "off",
}


def app_plan(
    folder: str | Path, clients: int | None = None, start: Plan | None = None, **chosen: Any
) -> Plan:
    """The plan of an app's audit as far as it is known before the app was looked at.

    Args:
        folder: of the app.
        clients: how many nodes there are; default: what the app's own federation says.
        start: a plan to start from.
        chosen: other options of a plan.
    """
    root = Path(folder).resolve()
    read_project(root)
    nodes = clients or (start.task.clients if start else nodes_of(root))
    if nodes is None:
        raise ValueError("an app does not say how many nodes there are; give --clients N")
    for one in options(Plan):
        own = one.path[0] in _DECIDED_BY_THE_APP or (
            one.path[0] == "task" and one.name != "clients"
        )
        if one.name in chosen and (own or one.name == "robust"):
            raise ValueError(
                f"--{one.name.replace('_', '-')} is for simulated tasks: the app decides that; "
                "change its own configuration by --run-config"
            )
    plan = start or Plan.of(**_LESS)
    plan = plan.changed(**{**chosen, "app": str(root), "clients": nodes, "rounds": 1_000})
    return on_messages(plan)


def on_messages(plan: Plan) -> Plan:
    """The plan without larger batches; other reportings that need the data are refused."""
    plan = plan.changed(batches=())
    for reporting in plan.tried:
        if reporting.changes_batch:
            raise ValueError(
                f"{reporting.describe(plan.rounds)} changes a member's data, which only its app "
                "has; for an app, reportings on messages can be tried"
            )
    return plan


def audit_app(
    folder: str | Path,
    clients: int | None = None,
    *,
    start: Plan | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    on: str = "",
    cache: int = DEFAULT_LIMIT,
    budget: float | None = None,
    announce: Callable[[str], None] | None = None,
    progress: Callable[[int], None] | None = None,
    total: Callable[[int], None] | None = None,
    **chosen: Any,
) -> Audit:
    """Audit a Flower app as it is.

    Args:
        folder: of the app.
        clients: how many nodes there are.
        start: a plan to start from.
        out: folder for record, report, figures and terms.
        workers: processes (default: one per core).
        on: "ray", or "ray://host:port"; the app's folder must be at the same place there.
        cache: bytes of honest replies that may be kept on disk while the audit runs.
        budget: seconds; fewer seeds and misreports are tried so that the audit fits.
        announce: called with sentences before the work begins.
        progress: called with the number of run-rounds just done.
        total: called with the number of all run-rounds, before the first.
        chosen: other options of a plan, such as `metric="accuracy:up"`.
    """
    say = announce or (lambda words: None)
    asked = app_plan(folder, clients, start, **chosen)
    facts = _known_facts(asked, out) or look_at(asked)
    say(
        f"{facts.name}: {facts.strategy}, {facts.rounds} rounds, reward {facts.metric}, "
        f"{facts.calls} client calls in {facts.run_seconds:.3g} s a run."
    )
    if not facts.reproducible:
        say(
            "The app is not reproducible: the same call gave different updates, so that runs are "
            "not paired. The verdict says how many seeds that takes."
        )
    elif not facts.replicas_differ:
        say(
            "All replicas are the same: the app seeds itself. Intervals then say nothing; name its "
            "own seed by --seed-key, or leave the seeding to the audit."
        )
    plan = asked.changed(rounds=facts.rounds, metric=facts.metric)
    count = workers or os.cpu_count() or 1
    if budget is not None:
        plan, words = fitted(plan, facts, count, budget)
        for sentence in words:
            say(sentence)
    seconds = predicted_seconds(plan, facts, count)
    say(f"About {time_words(seconds)} on {count} processes.")
    if total is not None:
        total(total_rounds(plan, plan.rounds) + search_rounds(plan))
    audit = audit_subject(
        AppSubject(plan, facts, cache),
        plan,
        out=out,
        workers=workers,
        processes=True,
        on=on,
        progress=progress,
    )
    if out is not None:
        known = {"asked": asked.to_toml(), "app": app_digest(Path(asked.app.folder))}
        write_text(Path(out) / "app.json", json.dumps({**known, "facts": asdict(facts)}, indent=1))
    return audit


def _known_facts(asked: Plan, out: str | Path | None) -> AppFacts | None:
    """What an audit of the same app in the same folder has found out."""
    path = None if out is None else Path(out) / "app.json"
    if path is None or not path.exists():
        return None
    known = json.loads(path.read_text(encoding="utf-8"))
    same = known["asked"] == asked.to_toml() and known["app"] == app_digest(Path(asked.app.folder))
    return AppFacts(**known["facts"]) if same else None
