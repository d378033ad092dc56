"""What a figure of the paper says on the data at hand: its numbers, with intervals.

Everything is about one misreporting client A against honest others, as in the paper: what its best
constant scale gains without payments and which part of that is steering; what under-reporting gains
at a price far too high; between which prices neither pays; and what timing makes of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from verax.audit.judge import Judgement, Priced
from verax.audit.summary import alike
from verax.audit.windows import Window, interval
from verax.game import ScaleAndNoise

__all__ = ["findings", "prices_to_draw"]


def prices_to_draw(judgement: Judgement) -> list[float]:
    """C = 0, and around the price at which the best constant misreport gains least."""
    constant = judgement.schedules["constant"]
    base = constant.windows_constant[0].best_price
    if not base > 0:
        gains, rises = judgement.evidence.gains[0].mean(axis=1), constant.rises[0].mean(axis=1)
        base = float(np.max(np.abs(gains)) / max(float(np.max(np.abs(rises))), 1e-300))
    return [0.0, base / 3, base, 3 * base, 10 * base]


def findings(judgement: Judgement, folder: Path) -> dict[str, Any]:
    """The numbers of one figure, as plain JSON values."""
    evidence, plan = judgement.evidence, judgement.plan
    client = plan.deviators[0]
    constant, profile = judgement.schedules["constant"], judgement.schedules["profile"]
    high = prices_to_draw(judgement)[-1]
    scales = [
        d
        for d, deviation in enumerate(evidence.deviations)
        if isinstance(deviation, ScaleAndNoise) and deviation.b == 0
    ]
    over = [d for d in scales if evidence.deviations[d].a > 1]  # pyright: ignore
    under = [d for d in scales if evidence.deviations[d].a < 1]  # pyright: ignore
    honest = evidence.honest_losses[:, client]
    return {
        "task": judgement.task.name,
        "clients": judgement.task.clients,
        "split": plan.split or "shuffled",
        "protocol": str(plan.make_protocol()),
        "rounds": plan.rounds,
        "seeds": plan.judging_seeds,
        "honest_loss": _interval(honest),
        "honest_accuracy": float(evidence.honest_accuracy[:, client].mean()),
        "tolerance": float(evidence.tolerances[client]),
        "over": [_scale(judgement, d) for d in over],
        "under": [_scale(judgement, d) for d in under],
        "best_over": _best(judgement, over, 0.0),
        "best_under_at_high_price": {"price": high, **(_best(judgement, under, high) or {})},
        "window_constant_misreports": _window(constant.windows_constant[0]),
        "window_all": _window(constant.windows[0]),
        "window_profile": _window(profile.windows[0]),
        "best_at_profile": _response(judgement, profile, 1.0),
        "best_at_constant": _response(judgement, constant, constant.windows[0].best_price),
        "alike": alike(judgement, folder),
    }


def _scale(judgement: Judgement, d: int) -> dict[str, Any]:
    """One scale: gain without payment, and its part that is steering."""
    evidence = judgement.evidence
    steering = evidence.steering(0, d)
    return {
        "a": getattr(evidence.deviations[d], "a", None),
        "gain": _interval(evidence.gains[0, d]),
        "steering": None if steering is None else _interval(steering),
        "faster": None if steering is None else _interval(evidence.gains[0, d] - steering),
    }


def _best(judgement: Judgement, among: list[int], price: float) -> dict[str, Any] | None:
    """The scale that gains most at a price, and its gain."""
    if not among:
        return None
    rises = judgement.schedules["constant"].rises[0]
    gains = judgement.evidence.gains[0] - price * rises
    d = max(among, key=lambda k: float(gains[k].mean()))
    return {**_scale(judgement, d), "gain_at_price": _interval(gains[d])}


def _response(judgement: Judgement, schedule: Priced, price: float) -> dict[str, Any]:
    label, gain = judgement.best_response(schedule, price, 0)
    size = abs(float(judgement.evidence.honest_rewards[:, judgement.plan.deviators[0]].mean()))
    return {"price": price, "label": label, "gain": gain, "share": gain / size}


def _window(window: Window) -> dict[str, Any]:
    if window.empty:
        return {"low": None, "high": None, "reason": window.reason}
    high = None if np.isinf(window.high) else window.high
    return {"low": window.low, "high": high, "reason": ""}


def _interval(values: Any) -> dict[str, float]:
    mean, low, high = interval(values)
    return {"mean": mean, "low": low, "high": high}
