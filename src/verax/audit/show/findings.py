"""What a figure of the paper says on the data at hand, from the summary of its audit.

Everything is about one misreporting client A against honest others, as in the paper: what its best
constant scale gains without payments and which part of that is steering; what under-reporting gains
at a price far too high; between which prices neither pays; and what timing makes of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.audit.judge.windows import interval


def prices_to_draw(summary: dict[str, Any]) -> list[float]:
    """C = 0, and around the price at which the best constant misreport gains least."""
    client = summary["clients"][0]
    base = _window(client["windows_constant_misreports"], "constant")["best_price"]
    if not base > 0:
        gains = [d["reward_gain"]["mean"] for d in client["deviations"]]
        rises = [d["payment_rise"]["constant"] for d in client["deviations"]]
        base = float(np.max(np.abs(gains)) / max(float(np.max(np.abs(rises))), 1e-300))
    return [0.0, base / 3, base, 3 * base, 10 * base]


def findings(summary: dict[str, Any], split: str) -> dict[str, Any]:
    """The numbers of one figure, as plain JSON values."""
    client, settings = summary["clients"][0], dict(summary["settings"])
    high = prices_to_draw(summary)[-1]
    scales = [d for d in client["deviations"] if d["constant"] and d["b"] == 0]
    over = [d for d in scales if d["a_late"] > 1]
    under = [d for d in scales if d["a_late"] < 1]
    constant = _window(client["windows"], "constant")
    return {
        "task": summary["task"],
        "clients": len(summary["members"]),
        "split": split,
        "protocol": settings["protocol"],
        "rounds": int(settings["rounds"]),
        "seeds": len(client["deviations"][0]["reward_gain_by_seed"]),
        "honest_loss": client["honest_loss"],
        "honest_accuracy": client["honest_accuracy"],
        "tolerance": client["tolerance"],
        "over": [_scale(d) for d in over],
        "under": [_scale(d) for d in under],
        "best_over": _best(over, 0.0),
        "best_under_at_high_price": {"price": high, **(_best(under, high) or {})},
        "window_constant_misreports": _ends(client["windows_constant_misreports"], "constant"),
        "window_all": _ends(client["windows"], "constant"),
        "window_profile": _ends(client["windows"], "profile"),
        "best_at_profile": _response(client, "profile", 1.0),
        "best_at_constant": _response(client, "constant", constant["best_price"]),
        "similarity": summary["settings"][-len(summary["similarity"]["points"]) - 1 :],
    }


def gain_by_seed(deviation: dict[str, Any], schedule: str, price: float) -> np.ndarray[Any, Any]:
    """The gain of a deviation at a price, one number per seed."""
    rises = np.array(deviation["payment_rise_by_seed"][schedule])
    return np.array(deviation["reward_gain_by_seed"]) - price * rises


def _scale(deviation: dict[str, Any]) -> dict[str, Any]:
    """One scale: gain without payment, its part that is steering, and faster learning."""
    return {
        "a": deviation["a_late"],
        "gain": deviation["reward_gain"],
        "steering": deviation["steering"],
        "faster_learning": deviation["faster_learning"],
    }


def _best(among: list[dict[str, Any]], price: float) -> dict[str, Any] | None:
    """The scale that gains most at a price, and its gain."""
    if not among:
        return None
    best = max(among, key=lambda d: float(gain_by_seed(d, "constant", price).mean()))
    gain = interval(gain_by_seed(best, "constant", price))
    return {**_scale(best), "gain_at_price": gain._asdict()}


def _response(client: dict[str, Any], schedule: str, price: float) -> dict[str, Any] | None:
    """The client's best choice at a price, and what it gains over honesty."""
    if schedule not in client["deviations"][0]["payment_rise"]:
        return None
    gains = [
        d["reward_gain"]["mean"] - price * d["payment_rise"][schedule] for d in client["deviations"]
    ]
    k = int(np.argmax(gains))
    label, gain = ("honest", 0.0) if gains[k] <= 0 else (client["deviations"][k]["label"], gains[k])
    return {"price": price, "label": label, "gain": gain, "share": gain / client["reward_size"]}


def _window(windows: list[dict[str, Any]], schedule: str) -> dict[str, Any]:
    return next((w for w in windows if w["schedule"] == schedule), {})


def _ends(windows: list[dict[str, Any]], schedule: str) -> dict[str, Any]:
    window = _window(windows, schedule)
    return {name: window.get(name) for name in ("low", "high", "reason")}
