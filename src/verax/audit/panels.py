"""A panel of the paper, drawn on the data at hand, and the valley that the paper does not have.

Left: utility of the misreporting client over that of honesty, U_A(a) − U_A(1), with the standard
error of the runs' differences (every misreport is run with the seeds of its honest twin). Right:
what the best misreport gains over the price, for constant misreports, for everything tried, and
under the price profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from verax.audit.figures import save
from verax.audit.findings import prices_to_draw
from verax.audit.judge import Judgement
from verax.audit.windows import valley
from verax.game import ScaleAndNoise

__all__ = ["draw_panels"]

_COLOURS = ("#c8102e", "#e08a1e", "#0b6e99", "#5b8c2a", "#7a4fa3")

Array = NDArray[np.float64]


def draw_panels(
    judgement: Judgement,
    title: str,
    alike: list[list[str]],
    folder: Path,
    scales: tuple[float, ...],
) -> list[Path]:
    """One panel over a; or, where `scales` are given, one over b for each of them."""
    files: list[Path] = []
    for a in scales or (None,):
        figure = Figure(figsize=(9.2, 4.1), layout="constrained")
        left, right = figure.subplots(1, 2)
        _utility(left, judgement, a)
        _valley(right, judgement)
        figure.suptitle(title if a is None else f"{title}, a = {a:g}", fontsize=10)
        words = "; ".join(f"{name}: {value}" for name, value in alike)
        figure.supxlabel(words, fontsize=6.5, color="0.35", wrap=True)
        name = "panel" if a is None else f"panel-a{a:g}"
        files += save(figure, folder / name)
    return files


def _utility(axes: Axes, judgement: Judgement, a: float | None) -> None:
    evidence, constant = judgement.evidence, judgement.schedules["constant"]
    points: list[tuple[float, int | None]] = []
    for d, deviation in enumerate(evidence.deviations):
        if isinstance(deviation, ScaleAndNoise):
            if a is None and deviation.b == 0:
                points.append((deviation.a, d))
            if a is not None and deviation.a == a:
                points.append((deviation.b, d))
    if a is None or a == 1:
        points.append((1.0 if a is None else 0.0, None))
    points.sort()
    x = [at for at, _ in points]
    for price, colour in zip(prices_to_draw(judgement), _COLOURS, strict=True):
        rows = np.stack(
            [
                np.zeros(evidence.gains.shape[2])
                if d is None
                else evidence.gains[0, d] - price * constant.rises[0, d]
                for _, d in points
            ]
        )
        error = rows.std(axis=1, ddof=1) / np.sqrt(rows.shape[1])
        axes.errorbar(x, rows.mean(axis=1), error, color=colour, marker=".", capsize=2, lw=1.2)
        axes.plot([], [], color=colour, label=f"C = {price:.2g}")
    axes.axhline(0.0, color="0.6", lw=0.8)
    # Far too high a price would hide all else.
    _limit(axes, evidence.gains[0].mean(axis=1))
    label = "scale a of the misreport" if a is None else f"noise b at a = {a:g}"
    axes.set(xlabel=label, ylabel="utility over that of honesty")
    _plain(axes)
    axes.legend(frameon=False, fontsize=7)


def _limit(axes: Axes, gains: Array) -> None:
    size = 3 * float(np.max(np.abs(gains)))
    low, high = axes.get_ylim()
    if size > 0:
        axes.set_ylim(max(low, -size), min(high, size))


def _valley(axes: Axes, judgement: Judgement) -> None:
    evidence = judgement.evidence
    gains = evidence.gains[0].mean(axis=1)
    size = abs(float(evidence.honest_rewards[:, judgement.plan.deviators[0]].mean()))
    constant, profile = judgement.schedules["constant"], judgement.schedules["profile"]
    base = prices_to_draw(judgement)[2]
    factors = np.geomspace(0.05, 20, 200)

    def line(rises: Any, which: Any, unit: float, words: str, colour: str, style: str) -> None:
        best = valley(gains[which], rises[0].mean(axis=1)[which], factors * unit)
        axes.plot(factors, 100 * best / size, color=colour, ls=style, label=words)

    line(constant.rises, evidence.constant, base, "constant misreports", _COLOURS[2], "--")
    line(constant.rises, slice(None), base, "with timing", _COLOURS[0], "-")
    line(profile.rises, slice(None), 1.0, "with timing, price profile", _COLOURS[3], "-")
    axes.axhline(100 * judgement.plan.tolerance, color="0.6", lw=0.8, ls=":")
    axes.set(
        xscale="log",
        xlabel=f"price, in units of C = {base:.2g} (profile: of itself)",
        ylabel="gain of the best misreport, % of loss",
        ylim=(0, None),
    )
    _plain(axes)
    axes.legend(frameon=False, fontsize=7)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
