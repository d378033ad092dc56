"""`verax reproduce`: the paper's figures on the user's own copy of the data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from verax.cli.audit import run_plan
from verax.cli.bars import progress_bar

if TYPE_CHECKING:
    from verax.audit.plan import Plan
    from verax.learning import Task


def reproduce(
    figure: Annotated[
        str, typer.Argument(help="A figure's name, or all; without one they are listed.")
    ] = "",
    preset: Annotated[str, typer.Option(help="smoke, laptop or paper.")] = "smoke",
    data: Annotated[
        Path | None,
        typer.Option(help="A folder with LEAF's folders femnist, shakespeare and sent140."),
    ] = None,
    encoder: Annotated[
        Path | None, typer.Option(help="A text encoder's folder, for sent140.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="How users become clients: shuffled, by-order, by-similarity.")
    ] = "shuffled",
    rounds: Annotated[int | None, typer.Option(help="T, instead of the preset's.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs that judge, likewise.")] = None,
    out: Annotated[Path, typer.Option(help="A folder for each figure goes here.")] = Path(
        "verax-paper"
    ),
    memory: Annotated[
        str | None, typer.Option(help="What all processes may use together, as in 8G.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes (default: one per core).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Run and draw the paper's figures; each is an audit with its record and report.

    `adversary` needs no data: on five embedded federations it tries and searches for the misreports
    that gain most, and writes the tables and the figure of docs/theory/adversary.md.

    Before it starts it measures a few rounds and says how long all will take. Stopped or killed,
    the same command goes on where it was.

    For example:

        verax reproduce
        verax reproduce adversary --out verax-adversary
        verax reproduce fedsgd-femnist --preset laptop --data leaf/data
        verax reproduce all --preset smoke --data leaf/data --encoder bert-base-uncased
    """
    # Imported here: JAX takes a second to load, and `verax --help` should not wait for it.
    from verax.audit.plan.paper import FIGURES, PRESETS, plan_of
    from verax.audit.run.compiled import remember_compiled
    from verax.files import write_text
    from verax.memory import free_memory, memory_of

    if not figure:
        _list()
        return
    if figure == "adversary":
        _adversary(out, memory, workers, as_json)
        return
    if figure != "all" and figure not in FIGURES:
        raise ValueError(f"{figure!r} is no figure; `verax reproduce` lists them")
    if preset not in PRESETS:
        raise ValueError(f"preset is {preset!r}, must be one of {', '.join(PRESETS)}")
    if data is None:
        raise ValueError("the paper's tasks are read from LEAF's files; say where with --data")
    names = list(FIGURES) if figure == "all" else [figure]
    remember_compiled()
    changes = {"rounds": rounds, "judging_seeds": seeds}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    plans = {
        name: plan_of(FIGURES[name], PRESETS[preset], data, encoder or "", split).changed(**given)
        for name in names
    }
    allowed = None if memory is None else memory_of(memory)
    count = workers or os.cpu_count() or 1
    console = Console(stderr=True)
    tasks = _tasks(plans)
    _estimate(plans, tasks, count, allowed or free_memory() // 2, console)
    done: dict[str, Any] = {}
    results = out / "results.json"  # of all figures that were run into this folder
    known = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    for name, plan in plans.items():
        done[name] = _figure(name, plan, tasks[plan.task.name], out / name, allowed, count)
        write_text(results, json.dumps(known | done, indent=1, ensure_ascii=False))
        if not as_json:
            Console().print(_sentence(name, done[name]), highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(done, ensure_ascii=False))


def _list() -> None:
    from verax.audit.plan.paper import FIGURES

    table = Table(box=None)
    for column in ("figure", "panels", "what it shows"):
        table.add_column(column)
    for one in FIGURES.values():
        table.add_row(one.name, str(one.panels), one.words)
    Console().print(table)


def _adversary(out: Path, memory: str | None, workers: int | None, as_json: bool) -> None:
    """Audit the embedded federations; write their tables and a figure."""
    from verax.audit.plan.adversary import SETTINGS
    from verax.audit.run.compiled import remember_compiled
    from verax.audit.show.adversary import draw, page
    from verax.files import write_text

    remember_compiled()
    audited: list[tuple[str, dict[str, Any]]] = []
    for setting in SETTINGS:
        found = run_plan(setting.plan(), out / setting.name, memory, workers)
        audited.append((setting.words, found.summary))
    write_text(out / "adversary.md", page(audited))
    draw(audited, out / "adversary.svg")
    if as_json:
        typer.echo(json.dumps({words: one["tried"] for words, one in audited}, ensure_ascii=False))
    else:
        typer.echo(f"Tables: {out / 'adversary.md'}   Figure: {out / 'adversary.svg'}")


def _tasks(plans: dict[str, Plan]) -> dict[str, Task]:
    """Every task once: figures share data, grouping and model."""
    from verax.audit.plan.task import task_of

    tasks: dict[str, Task] = {}
    for plan in plans.values():
        name = plan.task.name
        if name not in tasks:
            with progress_bar(f"reading {name}", "texts encoded") as bar:
                tasks[name] = task_of(plan, bar.advance)
    return tasks


def _estimate(
    plans: dict[str, Plan], tasks: dict[str, Task], workers: int, memory: int, console: Console
) -> None:
    from verax.audit.run.estimate import estimate, rounds_per_second

    seconds, most = 0.0, 0
    paces: dict[str, float] = {}
    with progress_bar("measuring", "tasks", len(tasks)) as bar:
        for plan in plans.values():
            name, task = plan.task.name, tasks[plan.task.name]
            if name not in paces:
                paces[name] = rounds_per_second(plan, task)
                bar.advance(1)
            one = estimate(plan, task, workers, memory, paces[name])
            seconds, most = seconds + one.seconds, max(most, one.memory)
    console.print(
        f"{len(plans)} figure(s): about {max(seconds / 60, 0.1):.1f} min and "
        f"{most / 2**30:.1f} GB on this machine, compiling aside"
    )


def _figure(
    name: str, plan: Plan, task: Task, folder: Path, memory: int | None, workers: int
) -> dict[str, Any]:
    from verax.audit.api import audit
    from verax.audit.plan.paper import FIGURES, NOISE_SCALES
    from verax.audit.run.execute import total_rounds
    from verax.audit.show.findings import findings
    from verax.audit.show.panels import draw_panels

    with progress_bar(name, "rounds", total_rounds(plan)) as bar:
        result = audit(
            task,
            plan,
            out=folder,
            memory=memory,
            workers=workers,
            processes=True,
            progress=bar.advance,
        )
    facts = findings(result.summary, plan.task.split or "shuffled")
    scales = NOISE_SCALES if FIGURES[name].protocol == "noise" else ()
    title = f"{name}: {plan.rounds} rounds, {plan.seeds.judge} runs, users {facts['split']}"
    drawn = draw_panels(result.summary, title, facts["similarity"], folder, scales)
    return {**facts, "panels": [str(path) for path in drawn]}


def _sentence(name: str, facts: dict[str, Any]) -> str:
    best = facts["best_over"]
    gain = best["gain"]
    words = f"{name}: at C = 0 scale {best['a']:g} gains {_range(gain)}"
    if best["steering"]:
        words += f", steering {_range(best['steering'])}"
    window = facts["window_constant_misreports"]
    low, high = window["low"], window["high"]
    held = "none" if low is None else f"{low:.2g} … {'∞' if high is None else f'{high:.2g}'}"
    profile = facts["best_at_profile"]
    words += f"; window against constant misreports: {held}"
    if profile is not None:
        words += f"; at the price profile the best misreport gains {profile['share']:.2%}"
    return words


def _range(interval: dict[str, float]) -> str:
    return f"{interval['mean']:.3g} [{interval['low']:.3g}, {interval['high']:.3g}]"
