"""`verax audit`: the main job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from verax.audit.plan.plan import Plan
from verax.cli.bars import progress_bar
from verax.cli.options import given_options, with_options


@with_options(Plan)
def audit(
    plan: Annotated[
        Path | None, typer.Option(help="A plan.toml to start from; other options change it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for record and report.")] = Path("verax-audit"),
    memory: Annotated[
        str | None,
        typer.Option(
            help="What all processes may use, as in 4G (default: runs use half of what is free)."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes (default: one per core).")
    ] = None,
    on: Annotated[
        str, typer.Option(help="ray, or ray://host:port: do the work on a Ray cluster.")
    ] = "",
    cache: Annotated[
        str, typer.Option(help="With --app: disk space for replies that are used again.")
    ] = "4G",
    budget: Annotated[
        str | None,
        typer.Option(help="With --app: the time it may take, as in 30m; less is then tried."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Remove an earlier audit in the folder first.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON.")] = False,
    fail_if_gain: Annotated[
        bool, typer.Option("--fail-if-gain", help="Exit 3 if no price deters all tried.")
    ] = False,
    from_ledger: Annotated[
        str | None,
        typer.Option(help="Judge what the norms in this book allow, instead of simulating."),
    ] = None,
    federation: Annotated[
        str | None, typer.Option(help="With --from-ledger: which federation of the book.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="With --from-ledger: which run (default: the last one).")
    ] = None,
    matching: Annotated[
        Path | None, typer.Option(help="With --from-ledger: an audit of a matching task.")
    ] = None,
    **options: Any,
) -> None:
    """Does anybody gain by misreporting, and which price stops it?

    Runs honest training and many misreports of each client, finds the prices at which none gains,
    and writes a report to open. Stopped or killed, the same command goes on where it was. The
    federation is a task that is simulated, or with --app a Flower app as it is.

    For example:

        verax audit
        verax audit --clients 5 --split by-label --rounds 300 --out five
        verax audit --aggregator median --scales 0,0.5,1,2,5 --json
        verax audit --app my-flower-app --clients 4 --budget 30m
        verax audit --from-ledger book.db --matching verax-audit
    """
    if from_ledger is not None:
        _judge_book(from_ledger, federation, run, matching, as_json)
        return
    start, given = None if plan is None else _load(plan), given_options(Plan, options)
    if again and (out / "plan.toml").exists():
        shutil.rmtree(out)
    if given.get("app") or (start and start.app.folder):
        result = _run_app(start, given, out, workers, on, cache, budget, as_json)
    else:
        chosen = (start or Plan()).changed(**given)
        result = run_plan(chosen, out, memory, workers, on)
    result.draw(out / "figures")
    if as_json:
        typer.echo(json.dumps(result.summary, ensure_ascii=False))
    else:
        show = Console()
        for sentence in result.summary["verdict"]:
            show.print(f"• {sentence}", highlight=False, markup=False)
        show.print(f"Report: {out / 'report.html'}   Terms: {out / 'terms.toml'}", soft_wrap=True)
    if fail_if_gain and result.window is None:
        raise typer.Exit(3)


def _run_app(
    start: Plan | None,
    given: dict[str, Any],
    out: Path,
    workers: int | None,
    on: str,
    cache: str,
    budget: str | None,
    quiet: bool,
) -> Any:
    try:
        from verax.apps.api import audit_app
    except ImportError:
        raise ValueError("--app needs pip install '.[flower]' in a clone of Verax") from None
    from verax.memory import memory_of

    folder = given.pop("app", "") or (start.app.folder if start else "")
    show = Console(stderr=True, quiet=quiet)
    with progress_bar("auditing", "rounds") as bar:
        return audit_app(
            folder,
            given.pop("clients", None),
            start=start,
            out=out,
            workers=workers,
            on=on,
            cache=memory_of(cache),
            budget=None if budget is None else seconds_of(budget),
            announce=lambda words: show.print(words, highlight=False, markup=False),
            progress=bar.advance,
            total=lambda rounds: bar.advance(0, rounds),
            **given,
        )


def seconds_of(text: str) -> float:
    """Seconds from a text such as 90s, 30m or 2h."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    digits, unit = text[:-1], text[-1:]
    try:
        seconds = float(digits) * units[unit]
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"budget is {text!r}, must be a time such as 90s, 30m or 2h")
    return seconds


def run_plan(plan: Plan, out: Path, memory: str | None, workers: int | None, on: str = "") -> Any:
    """Run an audit of a task with progress bars."""
    # Imported here: JAX takes a second to load, and `verax --help` should not wait for it.
    from verax.audit.api import audit as run_audit
    from verax.audit.plan.task import task_of
    from verax.audit.run.execute import total_rounds
    from verax.audit.run.simulated import TaskSubject
    from verax.audit.search import search_rounds
    from verax.memory import memory_of

    with progress_bar("reading", "texts encoded") as bar:
        task = task_of(plan, bar.advance)
    allowed = None if memory is None else memory_of(memory)
    rounds = total_rounds(plan) + search_rounds(plan, TaskSubject(task).work(plan))
    with progress_bar("auditing", "rounds", rounds) as bar:
        return run_audit(
            task,
            plan,
            out=out,
            memory=allowed,
            workers=workers,
            processes=True,
            on=on,
            progress=bar.advance,
        )


def _judge_book(
    book: str, federation: str | None, run: str | None, matching: Path | None, as_json: bool
) -> None:
    from verax.audit.judge.live import CANNOT_TELL, judge_live
    from verax.cli.ledger.shared import open_book

    known = None
    if matching is not None:
        known = json.loads((matching / "audit.json").read_text(encoding="utf-8"))
    with open_book(book, federation, read_only=True) as (opened, name):
        terms = opened.terms(name)
        runs = [row[0] for row in opened.rounds(name)]
        if not runs:
            raise ValueError(f"{name!r} has no rounds in {book}")
        chosen = runs[-1] if run is None else run
        contents = [
            record.content
            for record in opened.records(name)
            if record.content["kind"] == "round" and record.content["run"] == chosen
        ]
        labels = {account.number: account.label for account in opened.members(name)}
    live = judge_live(name, chosen, contents, labels, terms.currency, terms.scale, known)
    if as_json:
        typer.echo(json.dumps(live.to_json(), ensure_ascii=False))
        return
    show = Console()
    for sentence in live.sentences():
        show.print(f"• {sentence}", highlight=False, markup=False)
    show.print("Norms alone cannot tell:", highlight=False)
    for words in CANNOT_TELL:
        show.print(f"  – {words}", highlight=False, markup=False)


def _load(path: Path) -> Plan:
    try:
        return Plan.from_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
