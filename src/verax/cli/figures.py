"""The figures of `verax example`, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from verax.game import OneRound, Quadratics

_COLOURS = ("#0b6e99", "#5b8c2a", "#b5651d", "#7a4fa3")
_LOUD = "#c8102e"


def four_clients(game: Quadratics, scale: float, folder: Path) -> list[Path]:
    """The clients' losses, the loss that client 1 reports, and the optimum that moves."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    x = np.linspace(-0.5, 2.5, 300)
    losses = game.losses(x[:, None])
    for i, colour in zip(range(game.clients), _COLOURS, strict=True):
        axes.plot(x, losses[:, i], color=colour, label=f"client {i + 1}")
    axes.plot(
        x, scale * losses[:, 0], color=_COLOURS[0], ls="--", label=f"client 1 reports {scale:g}×"
    )
    scales = np.array([scale, 1.0, 1.0, 1.0])
    for theta, style, name in (
        (float(game.optimum()[0]), ":", "optimum, all honest"),
        (float(game.optimum(scales)[0]), "-", "optimum, client 1 scales"),
    ):
        axes.axvline(theta, color=_LOUD, ls=style, lw=1.2, label=f"{name}: {theta:.4g}")
    axes.set(xlabel="model θ", ylabel="loss", ylim=(0, 10), xlim=(x[0], x[-1]))
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    axes.spines[["top", "right"]].set_visible(False)
    return _save(figure, folder, "four-clients")


def mean_estimation(game: OneRound, folder: Path) -> list[Path]:
    """Client 1's error over the scale c, with the range that helps it."""
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = figure.subplots()
    low, high = game.helpful_scales
    c = np.linspace(min(0.0, low), 1.3 * high, 300)
    axes.plot(c, game.mse(c), color=_COLOURS[0])
    axes.axvspan(low, high, color=_COLOURS[0], alpha=0.1, label="scales that help client 1")
    axes.axhline(game.truthful_mse, color="0.5", lw=0.8, ls="--", label="truthful")
    label = f"best, c* = {game.best_scale:.3f}"
    axes.plot(game.best_scale, game.best_mse, "o", color=_LOUD, label=label)
    axes.set(
        xlabel="scale c of client 1's message", ylabel="client 1's squared error", ylim=(0, None)
    )
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return _save(figure, folder, "mean-estimation")


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files
