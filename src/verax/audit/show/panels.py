"""A panel of the paper, drawn on the data at hand, and the valley that the paper does not have.

Left: utility of the misreporting client over that of honesty, U_A(a) − U_A(1), with the 95 %
interval of the paired differences (every misreport is run with the seeds of its honest twin).
Right: what the best misreport gains over the price, for constant misreports, for everything tried,
and under the price profile. All numbers come from the summary of the audit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from verax.audit.judge.windows import interval, valley
from verax.audit.show.figures import plain, save
from verax.audit.show.findings import gain_by_seed, prices_to_draw

_COLOURS = ("#c8102e", "#e08a1e", "#0b6e99", "#5b8c2a", "#7a4fa3")


def draw_panels(
    summary: dict[str, Any],
    title: str,
    similarity: list[list[str]],
    folder: Path,
    scales: tuple[float, ...],
) -> list[Path]:
    """One panel over a; or, where `scales` are given, one over b for each of them."""
    files: list[Path] = []
    for a in scales or (None,):
        figure = Figure(figsize=(9.2, 4.1), layout="constrained")
        left, right = figure.subplots(1, 2)
        _utility(left, summary, a)
        _valley(right, summary)
        figure.suptitle(title if a is None else f"{title}, a = {a:g}", fontsize=10)
        words = "; ".join(f"{name}: {value}" for name, value in similarity)
        figure.supxlabel(words, fontsize=6.5, color="0.35", wrap=True)
        name = "panel" if a is None else f"panel-a{a:g}"
        files += save(figure, folder / name)
    return files


def _utility(axes: Axes, summary: dict[str, Any], a: float | None) -> None:
    """Utility over a at b = 0, or over b at a given a."""
    constant = [d for d in summary["clients"][0]["deviations"] if d["constant"]]
    points: list[tuple[float, dict[str, Any] | None]] = []
    for deviation in constant:
        if a is None and deviation["b"] == 0:
            points.append((deviation["a_late"], deviation))
        if a is not None and deviation["a_late"] == a:
            points.append((deviation["b"], deviation))
    if a is None or a == 1:
        points.append((1.0 if a is None else 0.0, None))  # honesty
    points.sort(key=lambda point: point[0])
    x = [at for at, _ in points]
    for price, colour in zip(prices_to_draw(summary), _COLOURS, strict=True):
        rows = [
            interval([0.0] if d is None else gain_by_seed(d, "constant", price)) for _, d in points
        ]
        half = [row.high - row.mean for row in rows]
        axes.errorbar(
            x, [row.mean for row in rows], half, color=colour, marker=".", capsize=2, lw=1.2
        )
        axes.plot([], [], color=colour, label=f"C = {price:.2g}")
    axes.axhline(0.0, color="0.6", lw=0.8)
    # A price that is far too high would hide all else.
    size = 3 * max(abs(d["reward_gain"]["mean"]) for d in summary["clients"][0]["deviations"])
    low, high = axes.get_ylim()
    if size > 0:
        axes.set_ylim(max(low, -size), min(high, size))
    label = "scale a of the misreport" if a is None else f"noise b at a = {a:g}"
    axes.set(
        xlabel=label,
        ylabel=f"utility over that of honesty, {summary['currency']} (bars: 95 % interval)",
    )
    plain(axes)
    axes.legend(frameon=False, fontsize=7)


def _valley(axes: Axes, summary: dict[str, Any]) -> None:
    client = summary["clients"][0]
    base = prices_to_draw(summary)[2]
    factors = np.geomspace(0.05, 20, 200)

    def line(
        deviations: list[dict[str, Any]], schedule: str, unit: float, words: str, *style: str
    ) -> None:
        gains = np.array([d["reward_gain"]["mean"] for d in deviations])
        rises = np.array([d["payment_rise"][schedule] for d in deviations])
        best = valley(gains, rises, factors * unit)
        axes.plot(factors, 100 * best / client["reward_size"], *style, label=words)

    everything = client["deviations"]
    constant = [d for d in everything if d["constant"]]
    line(constant, "constant", base, "constant misreports", "C0--")
    line(everything, "constant", base, "with timing", "C3-")
    if "profile" in summary["schedules"]:
        line(everything, "profile", 1.0, "with timing, price profile", "C2-")
    axes.axhline(100 * summary["tolerance_share"], color="0.6", lw=0.8, ls=":")
    axes.set(
        xscale="log",
        xlabel=f"price, in units of C = {base:.2g} (profile: of itself)",
        ylabel="gain of the best misreport, % of loss",
        ylim=(0, None),
    )
    plain(axes)
    axes.legend(frameon=False, fontsize=7)
