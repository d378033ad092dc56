"""`verax audit`: the main job."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from verax.cli.bars import progress_bar

__all__ = ["audit"]


def _numbers(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} must be numbers separated by commas, such as 0,0.5,1,2"
        ) from None


def audit(
    plan: Annotated[
        Path | None, typer.Option(help="A plan.toml to start from; options below change it.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="digits, femnist, shakespeare or sent140 (default: digits).")
    ] = None,
    data: Annotated[str | None, typer.Option(help="LEAF's folder with train/ and test/.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="A text encoder's folder, for sent140.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="N, the number of clients (default: 3).")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="mlp or softmax; cnn or cnn-grey; … (default: mlp).")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="dirichlet, iid, by-size, by-label; of LEAF's users: shuffled, by-order, "
            "by-similarity, users (default: dirichlet; shuffled)."
        ),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Of the Dirichlet split (default: 1).")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="fedsgd or fedavg (default: fedsgd).")
    ] = None,
    step: Annotated[
        float | None, typer.Option(help="γ, the learning rate (default: 0.06).")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Samples per gradient (default: 32).")] = None,
    local_steps: Annotated[int | None, typer.Option(help="L of FedAvg (default: 1).")] = None,
    aggregator: Annotated[
        str | None, typer.Option(help="mean, median, krum:1, trimmed-mean:0.2, … (default: mean).")
    ] = None,
    participation: Annotated[
        float | None, typer.Option(help="Share of clients in a round (default: 1).")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="T (default: 1000).")] = None,
    deviating: Annotated[
        str | None, typer.Option(help="Which clients deviate, as in 0,2 (default: each in turn).")
    ] = None,
    scales: Annotated[
        str | None, typer.Option(help="Constant scales a to try, with 1 (default: 0, …, 5).")
    ] = None,
    noises: Annotated[
        str | None, typer.Option(help="Noise sizes b to try (default: 0.5,2).")
    ] = None,
    robust: Annotated[
        str | None,
        typer.Option(help="Aggregators to compare, as in median,krum:1 (default: none)."),
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help="own, logistic, rivalry (default: own).")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="ε as a share of the honest loss (default: 0.01).")
    ] = None,
    setting_seeds: Annotated[
        int | None, typer.Option(help="Replicas that set the price (default: 6).")
    ] = None,
    judging_seeds: Annotated[
        int | None, typer.Option(help="Replicas that judge (default: 6).")
    ] = None,
    first_seed: Annotated[
        int | None, typer.Option(help="Number of the first one (default: 0).")
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
) -> None:
    """Does anybody gain by misreporting, and which price stops it?

    Simulates honest training and many misreports of each client, finds the prices at which none
    gains, and writes a report to open. Stopped or killed, the same command goes on where it was.

    For example:

        verax audit
        verax audit --clients 5 --split by-label --rounds 300 --out five
        verax audit --aggregator median --scales 0,0.5,1,2,5 --json
        verax audit --from-ledger book.db --matching verax-audit
    """
    if from_ledger is not None:
        _judge_book(from_ledger, federation, run, matching, as_json)
        return
    options = {
        "task": task,
        "data": data,
        "encoder": encoder,
        "clients": clients,
        "model": model,
        "split": split,
        "alpha": alpha,
        "protocol": protocol,
        "step": step,
        "batch": batch,
        "local_steps": local_steps,
        "aggregator": aggregator,
        "participation": participation,
        "rounds": rounds,
        "deviating": None if deviating is None else tuple(map(int, _numbers(deviating) or ())),
        "scales": _numbers(scales),
        "noises": _numbers(noises),
        "robust": None if robust is None else tuple(robust.split(",")),
        "reward": reward,
        "tolerance": tolerance,
        "setting_seeds": setting_seeds,
        "judging_seeds": judging_seeds,
        "first_seed": first_seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    _run(plan, given, out, memory, workers, on, again, as_json, fail_if_gain)


def _run(
    path: Path | None,
    given: dict[str, Any],
    out: Path,
    memory: str | None,
    workers: int | None,
    on: str,
    again: bool,
    as_json: bool,
    fail_if_gain: bool,
) -> None:
    # Imported here: JAX takes a second to load, and `verax --help` should not wait for it.
    from verax.audit.api import audit as run_audit
    from verax.audit.plan import Plan
    from verax.audit.run import task_of, total_rounds
    from verax.memory import memory_of

    start = Plan() if path is None else _load(path)
    plan = replace(start, **given)
    with progress_bar("reading", "texts encoded") as bar:
        data = task_of(plan, bar.advance)
    if again and (out / "plan.toml").exists():
        shutil.rmtree(out)
    allowed = None if memory is None else memory_of(memory)
    with progress_bar("auditing", "rounds", total_rounds(plan)) as bar:
        result = run_audit(
            data,
            plan,
            out=out,
            memory=allowed,
            workers=workers,
            processes=True,
            on=on,
            progress=bar.advance,
        )
    if as_json:
        typer.echo(json.dumps(result.summary, ensure_ascii=False))
    else:
        show = Console()
        for sentence in result.summary["verdict"]:
            show.print(f"• {sentence}", highlight=False, markup=False)
        show.print(f"Report: {out / 'report.html'}   Terms: {out / 'terms.toml'}", soft_wrap=True)
    if fail_if_gain and result.window is None:
        raise typer.Exit(3)


def _judge_book(
    book: str, federation: str | None, run: str | None, matching: Path | None, as_json: bool
) -> None:
    from verax.audit.live import CANNOT_TELL, judge_live
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


def _load(path: Path) -> Any:
    from verax.audit.plan import Plan

    try:
        return Plan.from_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
