"""`verax bounds`: what the theorems say for given constants, printed and corrected side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from verax.mechanism import Problem, Schedule, constant_steps
from verax.mechanism import guarantees as theorem
from verax.mechanism import schedule as schedules


def bounds(
    clients: Annotated[int, typer.Option(help="N, the number of clients.")],
    rounds: Annotated[int, typer.Option(help="T, the number of rounds.")],
    step: Annotated[float, typer.Option(help="γ, the constant learning rate.")],
    strong_convexity: Annotated[float, typer.Option(help="m of every client's loss.")],
    smoothness: Annotated[float, typer.Option(help="H of every client's loss.")],
    lipschitz: Annotated[float, typer.Option(help="L of the rewards.")],
    epsilon: Annotated[float, typer.Option(help="ε, the misreport that is tolerated.")],
    noise: Annotated[float, typer.Option(help="σ, E‖gradient noise‖² ≤ σ².")] = 0.0,
    zeta: Annotated[float, typer.Option(help="ζ, heterogeneity of gradients.")] = 0.0,
    rho: Annotated[float, typer.Option(help="ρ, heterogeneity of noise.")] = 0.0,
    payment_lipschitz: Annotated[
        float | None,
        typer.Option(help="L_q of E‖g_i‖² − mean E‖g_j‖²; the valid guarantees need it."),
    ] = None,
    gradient_bound: Annotated[
        float | None, typer.Option(help="Bound of E‖∇F_i(θ_t)‖ on the run; payments need it.")
    ] = None,
    initial_gap: Annotated[
        float | None, typer.Option(help="F(θ₁) − F*; convergence needs it.")
    ] = None,
    reward_range: Annotated[
        float, typer.Option(help="What a model can be worth at most; bounds above say nothing.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    r"""Prices and guarantees of Theorems 1 to 3, as printed and as they hold.

    For example:

        verax bounds --clients 3 --rounds 100 --step 0.06 --strong-convexity 0.1 \
            --smoothness 1 --lipschitz 1 --epsilon 0.1 --payment-lipschitz 0.01
    """
    problem = Problem(
        clients=clients,
        steps=constant_steps(step, rounds),
        strong_convexity=strong_convexity,
        smoothness=smoothness,
        lipschitz=lipschitz,
        epsilon=epsilon,
        noise=noise,
        zeta=zeta,
        rho=rho,
        payment_lipschitz=payment_lipschitz,
    )
    result = {
        "schedules": {
            build.__name__: _or_reason(build, problem, _schedule)
            for build in (schedules.paper, schedules.sharp, schedules.repaired)
        },
        "guarantees": _guarantees(problem, gradient_bound, initial_gap, reward_range),
        "stable_epsilon": (
            None if payment_lipschitz is None else _number(schedules.stable_epsilon(problem))
        ),
    }
    if as_json:
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _show(problem, result)


def _guarantees(
    problem: Problem, gradient_bound: float | None, initial_gap: float | None, ceiling: float
) -> dict[str, Any]:
    def show(bound: theorem.Guarantee) -> dict[str, Any]:
        limit = ceiling if initial_gap is None or "convergence" not in bound.name else initial_gap
        return {
            "available": True,
            "value": _number(bound.value),
            "log10": _number(bound.log10),
            "overflow": bound.overflow,
            "vacuous": bound.vacuous(limit),
            "valid": bound.valid,
            "statement": bound.statement,
            "assumes": list(bound.assumes),
        }

    result = {
        "truthfulness_printed": show(theorem.truthfulness_printed(problem)),
        "truthfulness_repaired": _or_reason(theorem.truthfulness_repaired, problem, show),
    }
    for build in (
        theorem.payments_printed,
        theorem.payments_corrected,
        theorem.payments_repaired,
    ):

        def of(p: Problem, build: Any = build) -> theorem.Guarantee:
            if gradient_bound is None:
                raise ValueError("needs --gradient-bound, a bound of E‖∇F_i(θ_t)‖ along the run")
            return build(p, gradient_bound)

        result[build.__name__] = _or_reason(of, problem, show)
    for form in ("printed", "corrected"):

        def converge(p: Problem, form: Any = form) -> theorem.Guarantee:
            if initial_gap is None:
                raise ValueError("needs --initial-gap, F(θ₁) − F*")
            return theorem.convergence(p, initial_gap, p.noise**2, form=form)

        result[f"convergence_{form}"] = _or_reason(converge, problem, show)
    return result


def _or_reason(
    build: Callable[[Problem], Any], problem: Problem, show: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    try:
        return show(build(problem))
    except ValueError as error:
        return {"available": False, "reason": str(error)}


def _schedule(schedule: Schedule) -> dict[str, Any]:
    return {
        "available": True,
        "log10_first": float(schedule.log10[0]),
        "log10_last": float(schedule.log10[-1]),
        "first": _number(schedule.prices[0]),
        "last": _number(schedule.prices[-1]),
        "overflow": schedule.overflow,
        "statement": schedule.statement,
        "assumes": list(schedule.assumes),
    }


def _number(value: float) -> float | None:
    """JSON has no infinity: null, beside a log10 that is finite."""
    return float(value) if math.isfinite(value) else None


def _show(problem: Problem, result: dict[str, Any]) -> None:
    console = Console()
    table = Table("schedule", "C₁", "C_T", "what it is", title="Prices")
    for name, row in result["schedules"].items():
        if row["available"]:
            first, last = _power(row, "first"), _power(row, "last")
            table.add_row(name, first, last, row["statement"])
        else:
            table.add_row(name, "–", "–", f"not offered: {row['reason']}")
    console.print(table)
    table = Table("guarantee", "bound", "what it is", title="Guarantees")
    for name, row in result["guarantees"].items():
        label = name.replace("_", " ")
        if not row["available"]:
            table.add_row(label, "–", f"not given: {row['reason']}")
            continue
        words = row["statement"]
        if row["vacuous"]:
            words += "; vacuous: it allows more than could be gained or lost anyway"
        bound = f"10^{row['log10']:.2f}" if row["overflow"] else f"{row['value']:.4g}"
        table.add_row(label, bound, words)
    console.print(table)
    if any(row.get("overflow") for row in result["schedules"].values()):
        console.print("Prices past 10^308 do not fit a float64: nobody could charge them.")
    threshold = result["stable_epsilon"]
    if threshold is not None:
        side = "above" if problem.epsilon > threshold else "NOT above"
        console.print(
            f"ε = {problem.epsilon:g} is {side} {threshold:.4g}, from where on the repaired prices "
            "stay bounded for every horizon."
        )


def _power(row: dict[str, Any], end: str) -> str:
    value = row[end]
    return f"10^{row[f'log10_{end}']:.2f}" if value is None else f"{value:.4g}"
