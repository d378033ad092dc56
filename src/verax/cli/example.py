"""`verax example`: the paper's two small games, with their numbers and a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from verax.game import Bayesian, OneRound, four_clients

app = typer.Typer(no_args_is_help=True, help="The paper's small games: numbers and a figure.")

Out = Annotated[Path, typer.Option(help="Folder for the figure (PNG and SVG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("four-clients")
def four(
    scale: Annotated[float, typer.Option(help="a, by which client 1 scales its reports.")] = 3.0,
    out: Out = Path("verax-example"),
    as_json: AsJson = False,
) -> None:
    """Four quadratic losses: client 1 reports a times its own and pulls the optimum its way.

    For example:

        verax example four-clients --scale 3
    """
    if not np.isfinite(scale) or scale <= -5:
        raise ValueError(f"scale is {scale:g}, must be a finite number > -5: the run diverges")
    game = four_clients()
    scales = np.array([scale, 1.0, 1.0, 1.0])
    truth, moved = float(game.optimum()[0]), float(game.optimum(scales)[0])
    before, after = game.losses([truth]), game.losses([moved])
    paid, then_paid = game.steady_payments(), game.steady_payments(scales)
    from verax.cli import figures  # matplotlib takes long to load

    files = figures.four_clients(game, scale, out)
    if as_json:
        result: dict[str, Any] = {
            "scale": scale,
            "optimum": {"truthful": truth, "scaled": moved},
            "losses": {"truthful": before.tolist(), "scaled": after.tolist()},
            "mean_loss": {"truthful": float(before.mean()), "scaled": float(after.mean())},
            "payments_per_round": {"truthful": paid.tolist(), "scaled": then_paid.tolist()},
            "figures": [str(file) for file in files],
        }
        typer.echo(json.dumps(result, indent=2))
        return
    console = Console()
    console.print(
        f"Client 1 reports {scale:g} times its update: the common optimum moves from "
        f"{truth:.4f} to {moved:.4f}."
    )
    table = Table(
        "client", "loss, all honest", "client 1 scales", "change", "pays a round at C = 1"
    )
    for i in range(game.clients):
        change = after[i] - before[i]
        table.add_row(
            f"{i + 1}",
            f"{before[i]:.4f}",
            f"{after[i]:.4f}",
            f"{change:+.4f}",
            f"{paid[i]:+.2f} → {then_paid[i]:+.2f}",
        )
    mean = (before.mean(), after.mean())
    table.add_row("mean", f"{mean[0]:.4f}", f"{mean[1]:.4f}", f"{mean[1] - mean[0]:+.4f}", "0")
    console.print(table)
    gain = before[0] - after[0]
    hurt = int(np.argmax(after - before))
    verdict = "gains" if gain > 0 else "loses"
    console.print(
        f"Without a payment client 1 {verdict} {abs(gain):.4f} by it; client {hurt + 1} is hurt "
        f"most ({after[hurt] - before[hurt]:+.4f})."
    )
    console.print(f"Figure: {files[0]}")


@app.command("mean-estimation")
def mean_estimation(
    clients: Annotated[int, typer.Option(help="N, the number of clients.")] = 10,
    out: Out = Path("verax-example"),
    as_json: AsJson = False,
) -> None:
    """Estimating a mean together: how much to exaggerate, and what all lose when all do.

    For example:

        verax example mean-estimation --clients 20
    """
    if clients < 2:
        raise ValueError(f"clients is {clients}, must be ≥ 2")
    one = OneRound((2.0, *[1.0] * (clients - 1)), noise=1.0)
    many = Bayesian(common=1.0, between=1.0, quality=(5.0,) * clients)
    from verax.cli import figures  # as above

    files = figures.mean_estimation(one, out)
    result: dict[str, Any] = {
        "one_round": {
            "best_scale": one.best_scale,
            "truthful_mse": one.truthful_mse,
            "best_mse": one.best_mse,
            "helpful_scales": list(one.helpful_scales),
        },
        "all_scale": {
            "equilibrium_scale": float(many.equilibrium_scales[0]),
            "equilibrium_error": float(many.equilibrium_error[0]),
            "truthful_error": many.truthful_error,
            "printed_truthful_error": many.printed_truthful_error,
            "limits": {"equilibrium": many.limits[0], "truthful": many.limits[1]},
        },
        "figures": [str(file) for file in files],
    }
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    console = Console()
    low, high = one.helpful_scales
    console.print(
        f"One liar among {clients} (μ₁ = 2, the others 1, σ = 1): scaling by c* = "
        f"{one.best_scale:.4f} lowers its error from {one.truthful_mse:.4f} to {one.best_mse:.4f}; "
        f"every c in ({low:.4g}, {high:.4g}) helps it."
    )
    worse = "worse" if many.equilibrium_is_worse[0] else "better"
    console.print(
        f"All scale (τ₀ = τ = 1, τᵢ = 5): in equilibrium by {many.equilibrium_scales[0]:.4f}; the "
        f"error is {many.equilibrium_error[0]:.4f} against {many.truthful_error:.4f} when all are "
        f"truthful: {worse} for everybody (the paper prints {many.printed_truthful_error:.4f} for "
        f"the truthful error). For N → ∞: {many.limits[0]:.4f} against {many.limits[1]:.4f}."
    )
    console.print(f"Figure: {files[0]}")
