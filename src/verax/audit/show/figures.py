"""The figures of an audit, as PNG and SVG, drawn from its JSON object."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from verax.audit.judge.windows import valley
from verax.files import write_bytes

_COLOURS = ("#0b6e99", "#5b8c2a", "#b5651d", "#7a4fa3", "#2a9d8f", "#8a8a00")
_LOUD = "#c8102e"
_MOST_CLIENTS = 6


def draw(audit: dict[str, Any], folder: Path) -> list[Path]:
    """Utility over a, the valley, honest payments, harm, temptation, and everybody strategic."""
    figures = {
        "utility": _utility(audit),
        "valley": _valley(audit),
        "payments": _payments(audit),
        "harm": _harm(audit),
        "temptation": _temptation(audit),
    }
    if audit["everybody"]:
        figures["everybody"] = _everybody(audit)
    return [path for name, figure in figures.items() for path in save(figure, folder / name)]


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG; the same audit gives the same bytes."""
    figure.set_dpi(130)
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)  # once for both formats
    figure.set_layout_engine("none")
    # The canvases themselves: `savefig` draws everything once more, only to lay it out.
    png, svg = BytesIO(), BytesIO()
    FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})
    with rc_context({"svg.hashsalt": "verax"}):
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path, drawn in zip(files, (png, svg), strict=True):
        write_bytes(path, drawn.getvalue())
    return files


def _utility(audit: dict[str, Any]) -> Figure:
    """U over a for several C, as in the paper: one panel per client."""
    clients = audit["clients"][:_MOST_CLIENTS]
    figure, panels = _panels(len(clients))
    for axes, client in zip(panels, clients, strict=True):
        rows = [d for d in client["deviations"] if d["constant"] and not d["b"]]
        rows = sorted(rows, key=lambda d: d["a_late"])
        a = np.array([d["a_late"] for d in rows])
        gain = np.array([d["reward_gain"]["mean"] for d in rows])
        error = np.array([d["reward_gain"]["high"] for d in rows]) - gain
        rise = np.array([d["payment_rise"]["constant"] for d in rows])
        window = client["windows_constant_misreports"][0]
        middle = window["best_price"]
        for price, colour in zip((0.0, middle / 2, middle, 2 * middle), _COLOURS, strict=False):
            x, y = np.append(a, 1.0), np.append(gain - price * rise, 0.0)
            order = np.argsort(x)
            axes.errorbar(
                x[order],
                y[order],
                np.append(error, 0.0)[order],
                color=colour,
                marker=".",
                lw=1.2,
                capsize=2,
                label=f"C = {price:.2g}",
            )
        axes.axvline(1.0, color="0.6", lw=0.8)
        axes.axhline(0.0, color="0.6", lw=0.8)
        axes.set(title=client["name"], xlabel="scale a of its messages")
        axes.legend(frameon=False, fontsize=7)
    panels[0].set_ylabel(f"utility over honesty, {audit['currency']}")
    return figure


def _valley(audit: dict[str, Any]) -> Figure:
    """The gain of the best misreport over C, one panel per schedule, windows shaded."""
    figure, panels = _panels(len(audit["schedules"]))
    for axes, schedule in zip(panels, audit["schedules"], strict=True):
        for client, colour in zip(audit["clients"], _COLOURS, strict=False):
            gain = np.array([d["reward_gain"]["mean"] for d in client["deviations"]])
            rise = np.array([d["payment_rise"][schedule] for d in client["deviations"]])
            window = next(w for w in client["windows"] if w["schedule"] == schedule)
            middle = window["best_price"] or 1.0
            prices = np.geomspace(middle / 8, middle * 8, 200)
            best = valley(gain, rise, prices)
            axes.plot(
                prices, 100 * best / client["reward_size"], color=colour, label=client["name"]
            )
            if window["low"] is not None:
                axes.axvspan(window["low"], window["high"] or prices[-1], color=colour, alpha=0.08)
        axes.set(
            xscale="log",
            title=schedule,
            xlabel="multiple of the profile" if schedule.endswith("profile") else "price C",
            ylim=(0, None),
        )
        axes.set_ylim(0, min(axes.get_ylim()[1], 40))
    panels[0].set_ylabel("gain of the best misreport, % of reward")
    panels[0].legend(frameon=False, fontsize=7)
    return figure


def _payments(audit: dict[str, Any]) -> Figure:
    """What honest clients pay over the rounds at the proposed price."""
    figure, (axes,) = _panels(1)
    proposed = audit["proposed"]
    paid = np.array(audit["payments"]["schedules"][proposed["schedule"]]) * proposed["price"]
    for client, own, colour in zip(audit["clients"], paid.T, _COLOURS, strict=False):
        axes.plot(audit["payments"]["rounds"], own, color=colour, label=client["name"])
    axes.axhline(0.0, color="0.6", lw=0.8)
    axes.set(
        title=f"honest payments, {proposed['schedule']} × {proposed['price']:.3g}, no allowances",
        xlabel="round",
        ylabel=f"paid so far, {audit['currency']}",
    )
    axes.legend(frameon=False, fontsize=7)
    return figure


def _harm(audit: dict[str, Any]) -> Figure:
    """What each client's most tempting misreport does to the others, without payments."""
    clients = audit["clients"][:_MOST_CLIENTS]
    figure, panels = _panels(len(clients))
    for axes, client in zip(panels, clients, strict=True):
        worst = max(client["deviations"], key=lambda d: d["reward_gain"]["mean"])
        others = list(worst["harm"])
        mean = np.array([worst["harm"][other]["mean"] for other in others])
        error = np.array([worst["harm"][other]["high"] for other in others]) - mean
        names = [audit["members"][int(other)][0] for other in others]
        axes.barh(names, mean, xerr=error, color=_COLOURS[0], capsize=2)
        axes.axvline(0.0, color="0.6", lw=0.8)
        axes.set(title=f"{client['name']}:\n{worst['label']}", xlabel="rise of the others' loss")
        axes.title.set_fontsize(8)
    return figure


def _temptation(audit: dict[str, Any]) -> Figure:
    """∂R/∂a per round of each block, and the price profile."""
    figure, (left, right) = _panels(2)
    profile = audit["profile"]
    starts = np.array(profile["starts"])
    lengths = np.diff(np.append(starts, profile["rounds"] + 1))
    remaining = profile["rounds"] - starts + 1
    for i, (client, colour) in enumerate(zip(audit["clients"], _COLOURS, strict=False)):
        rows = [block[i] for block in profile["temptation"]]
        mean = np.array([row["mean"] for row in rows]) / lengths
        half = (np.array([row["high"] for row in rows]) / lengths) - mean
        left.errorbar(remaining, mean, half, color=colour, marker=".", capsize=2, lw=1)
        prices = np.array([row[i] for row in profile["prices"]])
        right.step(remaining, np.where(prices > 0, prices, np.nan), where="post", color=colour)
        left.plot([], [], color=colour, label=client["name"])
    for axes in (left, right):
        axes.set(xscale="log", xlabel="rounds still to come")
        axes.invert_xaxis()
    left.axhline(0.0, color="0.6", lw=0.8)
    left.set(title="where the temptation sits", ylabel=f"∂R/∂a per round, {audit['currency']}")
    left.legend(frameon=False, fontsize=7)
    right.set(title="the price profile", ylabel="price C", yscale="log")
    return figure


def _everybody(audit: dict[str, Any]) -> Figure:
    """What repeated best responses of all members cost each of them, by price and start."""
    plays = audit["everybody"]
    figure, (axes,) = _panels(1)
    width = 0.8 / len(audit["clients"])
    for i, (client, colour) in enumerate(zip(audit["clients"], _COLOURS, strict=False)):
        rises = [play["rise_by_member"][i] for play in plays]
        mean = 100 * np.array([rise["mean"] for rise in rises])
        half = 100 * np.array([rise["high"] for rise in rises]) - mean
        places = np.arange(len(plays)) + (i + 0.5) * width - 0.4
        axes.bar(places, mean, width, yerr=half, color=colour, capsize=2, label=client["name"])
    words = [f"{play['price']},\nfrom {play['start']:g}" for play in plays]
    axes.set_xticks(range(len(plays)), words, fontsize=7)
    axes.axhline(0.0, color="0.6", lw=0.8)
    axes.set(
        title="everybody strategic, by price and first scale",
        ylabel="change of the reward, % of the honest one",
    )
    axes.legend(frameon=False, fontsize=7)
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(max(3.4 * count, 5.2), 3.4), layout="constrained")
    panels = list(figure.subplots(1, count, squeeze=False)[0])
    for axes in panels:
        plain(axes)
    return figure, panels


def plain(axes: Axes) -> None:
    """Take away what does not carry information."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
