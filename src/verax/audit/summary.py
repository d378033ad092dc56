"""An audit as one JSON object: what `--json` prints and the report draws.

From `reward_gain` and `payment_rise` of a deviation a script computes its gain at any price C:
reward_gain.mean − C · payment_rise[schedule].
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax import __version__
from verax.audit.judge import SCHEDULES, Judgement, Priced
from verax.audit.windows import Window, interval
from verax.game import ScaleAndNoise, Timed
from verax.learning import label_distances

__all__ = ["NOT_TRIED", "alike", "summary", "verdict"]

Array = NDArray[np.float64]

#: What an audit does not try; the report says so.
NOT_TRIED = (
    "collusion: two or more members deviating together",
    "more than one identity per member",
    "deviations that react to the others' messages",
    "poisoned or invented data: messages are taken relative to what honest training would send",
    "a worth of the model that differs from the reward assumed here",
)

# Beyond so many clients a list says less than its ends and its worst cases.
_MANY = 20

_WORDS = {
    "constant": "one price C for all rounds, as in the paper",
    "discounted": "a price that rises toward the end at the rate that deters best",
    "profile": "a price per block of rounds and member, from differentiating through training",
}


def summary(judgement: Judgement, folder: Path) -> dict[str, Any]:
    """Everything, as plain JSON values."""
    plan, evidence, best = judgement.plan, judgement.evidence, judgement.best
    low, high = best.common
    known = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    blocks = judgement.profile.blocks
    return {
        "verax": __version__,
        "task": judgement.task.name,
        "title": f"{judgement.task.name}: {judgement.task.clients} clients, {plan.rounds} rounds",
        "settings": _settings(judgement) + alike(judgement, folder),
        "verdict": verdict(judgement),
        "tolerance": float(evidence.tolerances.mean()),
        "schedules": list(SCHEDULES),
        "schedule_words": _WORDS,
        "discount": judgement.discount,
        "window": (
            {"schedule": best.name, "low": low, "high": _number(high)} if best.holds else None
        ),
        "reason": None if best.holds else _reason(judgement),
        "proposed": {"schedule": best.name, "price": judgement.multiplier},
        "clients": [_client(judgement, k) for k in range(len(plan.deviators))],
        "profile": {
            "starts": list(blocks.starts),
            "rounds": blocks.rounds,
            "prices": judgement.profile.prices[:, list(plan.deviators)].tolist(),
            "common": judgement.shared.prices[:, 0].tolist(),
            "temptation": _temptation(judgement),
            "undeterred": [
                {"block": k, "reason": reason} for k, reason in judgement.profile.undeterred
            ],
        },
        "payments": _payments(judgement),
        "rules": [
            {
                "name": row.name,
                "worst_gain": row.worst_gain,
                "window": row.window,
                "honest_payment": row.honest_payment,
                "mean_loss": row.mean_loss,
            }
            for row in judgement.rules
        ],
        "members": _members(judgement),
        "members_words": _members_words(judgement),
        "likeness": _likeness(judgement, folder),
        "diverged": {str(d): r for d, r in evidence.diverged.items()},
        "not_tried": list(NOT_TRIED),
        "versions": {name: value for name, value in known.items() if name != "data"},
    }


def verdict(judgement: Judgement) -> list[str]:
    """The audit in a few sentences."""
    plan, evidence, task = judgement.plan, judgement.evidence, judgement.task
    lines: list[str] = []
    if judgement.faster is not None:
        factor, gains = judgement.faster
        share = float(np.mean(gains / np.abs(evidence.honest_rewards.mean(axis=0))))
        lines.append(
            f"The step is small for {plan.rounds} rounds: {factor:.2f} times as large it would "
            f"serve every member better by itself ({share:.0%} of the loss on average). Part of "
            f"the temptation is the protocol's own; try --step {plan.step * factor:.3g}."
        )
    free = evidence.gains.mean(axis=2)
    who, what = np.unravel_index(int(np.argmax(free)), free.shape)
    gain, a, b = interval(evidence.gains[who, what])
    if gain <= evidence.tolerances[plan.deviators[int(who)]]:
        lines.append("Without payments no member gains more than the tolerance by misreporting.")
    else:
        client = plan.deviators[int(who)]
        hurt = evidence.harm[who, what].mean(axis=0)
        hurt[client] = -np.inf
        victim = int(np.argmax(hurt))
        text = (
            f"Without payments {task.names[client]} gains {gain:.4g} [{a:.4g}, {b:.4g}] by "
            f"“{evidence.labels[int(what)]}”"
        )
        steering = evidence.steering(int(who), int(what))
        if steering is not None:
            text += f", of which {float(steering.mean()):.4g} is steering, the rest faster learning"
        if hurt[victim] > 0:
            text += f"; {task.names[victim]} is hurt most ({hurt[victim]:+.4g})"
        lines.append(text + ".")
    constant = judgement.schedules["constant"]
    paper = [w for w in constant.windows_constant if not w.empty]
    if len(paper) == len(constant.windows) and not constant.holds:
        lines.append(
            "A constant price deters each member's constant misreports, but not timing: "
            + _reason_of(judgement, constant)
        )
    best = judgement.best
    low, high = best.common
    if best.holds:
        sizes = np.abs(evidence.honest_rewards.mean(axis=0))[list(plan.deviators)]
        choices = [judgement.best_response(best, judgement.multiplier, k) for k in range(len(free))]
        k = int(np.argmax([gain / size for (_, gain), size in zip(choices, sizes, strict=True)]))
        name, worst = choices[k]
        end = "∞" if math.isinf(high) else f"{high:.3g}"
        unit = "times the profile" if best.name == "profile" else "as C"
        words = f"The {best.name} price holds from {low:.3g} to {end} {unit}; at "
        words += f"{judgement.multiplier:.3g} "
        if worst > 0:
            words += (
                f"the best misreport tried ({name}, {task.names[plan.deviators[k]]}) gains "
                f"{worst:.2g}, {worst / sizes[k]:.2%} of that member's honest reward."
            )
        else:
            words += "no misreport that was tried gains anything."
        lines.append(words)
    else:
        lines.append(f"No schedule deters everything that was tried. {_reason(judgement)}")
    return lines


def _reason(judgement: Judgement) -> str:
    return _reason_of(judgement, judgement.best)


def _reason_of(judgement: Judgement, schedule: Priced) -> str:
    for client, window in zip(judgement.plan.deviators, schedule.windows, strict=True):
        if window.empty:
            return f"for {judgement.task.names[client]}, {window.reason}."
    low, high = schedule.common
    return (
        f"the members' windows do not overlap (lower ends up to {low:.3g}, upper ends down to "
        f"{high:.3g}); each would need a price of its own."
    )


def _client(judgement: Judgement, k: int) -> dict[str, Any]:
    evidence, plan = judgement.evidence, judgement.plan
    client = plan.deviators[k]
    accuracy = evidence.honest_accuracy[:, client].mean()
    return {
        "client": client,
        "name": judgement.task.names[client],
        "tolerance": float(evidence.tolerances[client]),
        "honest_loss": _interval(evidence.honest_losses[:, client]),
        "honest_accuracy": _number(float(accuracy)),
        "honest_payment": {
            name: float(s.honest[:, client].sum()) for name, s in judgement.schedules.items()
        },
        "windows": [_window(name, s.windows[k]) for name, s in judgement.schedules.items()],
        "windows_constant_misreports": [
            _window(name, s.windows_constant[k]) for name, s in judgement.schedules.items()
        ],
        "deviations": [_deviation(judgement, k, d) for d in range(len(evidence.deviations))],
    }


def _deviation(judgement: Judgement, k: int, d: int) -> dict[str, Any]:
    evidence = judgement.evidence
    deviation = evidence.deviations[d]
    match deviation:
        case ScaleAndNoise(a, b):
            levels = {"a_early": a, "a_late": a, "switch": 0.0, "b": b}
        case Timed(early, late, switch):
            levels = {"a_early": early, "a_late": late, "switch": switch, "b": 0.0}
        case _:
            levels = {"a_early": None, "a_late": None, "switch": None, "b": None}
    steering = evidence.steering(k, d)
    client = judgement.plan.deviators[k]
    return {
        "label": evidence.labels[d],
        **levels,
        "reward_gain": _interval(evidence.gains[k, d]),
        "steering": None if steering is None else _interval(steering),
        "payment_rise": {
            name: float(s.rises[k, d].mean()) for name, s in judgement.schedules.items()
        },
        "harm": {
            str(j): _interval(evidence.harm[k, d, :, j])
            for j in _most_hurt(evidence.harm[k, d].mean(axis=0), client)
        },
    }


def _most_hurt(harm: Array, client: int) -> list[int]:
    """Everybody else; among many the hurt most."""
    others = [j for j in range(len(harm)) if j != client]
    if len(others) > _MANY:
        others = sorted(sorted(others, key=lambda j: -harm[j])[:_MANY])
    return others


def _window(name: str, window: Window) -> dict[str, Any]:
    empty = window.empty
    return {
        "schedule": name,
        "low": None if empty else window.low,
        "high": None if empty else _number(window.high),
        "unbounded": not empty and math.isinf(window.high),
        "low_interval": [_number(end) for end in window.low_interval],
        "high_interval": [_number(end) for end in window.high_interval],
        "worst_gain": window.worst_gain,
        "best_price": window.best_price,
        "reason": window.reason or None,
    }


def _members(judgement: Judgement) -> list[list[Any]]:
    """(name, honest payment at the proposed price, honest loss) of everybody."""
    paid = judgement.best.honest.sum(axis=0) * judgement.multiplier
    losses = judgement.evidence.honest_losses.mean(axis=0)
    rows = zip(judgement.task.names, paid.tolist(), losses.tolist(), strict=True)
    return [[name, float(f"{own:.6g}"), float(f"{loss:.6g}")] for name, own, loss in rows]


def _members_words(judgement: Judgement) -> str:
    """How honest payments are spread, before allowances."""
    paid = judgement.best.honest.sum(axis=0) * judgement.multiplier
    low, quarter, middle, most, high = np.quantile(paid, [0, 0.25, 0.5, 0.75, 1])
    words = f"Before allowances honest members pay {low:+.3g} to {high:+.3g} over the run"
    if len(paid) > _MANY:
        words += f", half of them {quarter:+.3g} to {most:+.3g}, in the median {middle:+.3g}"
    return words + "."


def _temptation(judgement: Judgement) -> list[list[dict[str, float]]]:
    reward = np.stack([s.reward for s in judgement.sensitivities])  # (S, C, K)
    clients, blocks = reward.shape[1:]
    return [[_interval(reward[:, i, k]) for i in range(clients)] for k in range(blocks)]


def _payments(judgement: Judgement) -> dict[str, Any]:
    """What the deviators pay while they are honest, so far, in the order of `clients`."""
    plan, T = judgement.plan, judgement.plan.rounds
    points = np.unique(np.linspace(1, T, min(T, 120)).astype(int))
    return {
        "rounds": points.tolist(),
        "schedules": {
            name: np.cumsum(s.honest, axis=0)[points - 1][:, list(plan.deviators)].tolist()
            for name, s in judgement.schedules.items()
        },
    }


def _settings(judgement: Judgement) -> list[list[str]]:
    plan, evidence = judgement.plan, judgement.evidence
    counts = [len(batch[0]) for batch in judgement.task.train]
    sizes = ", ".join(map(str, counts))
    if len(counts) > _MANY:
        sizes = f"{min(counts)} to {max(counts)}, {np.median(counts):g} in the median"
    return [
        ["protocol", str(plan.make_protocol())],
        ["rounds", str(plan.rounds)],
        ["training samples per client", sizes],
        ["seeds", f"{plan.setting_seeds} set the price, {plan.judging_seeds} others judged"],
        ["reward", plan.reward],
        ["tolerance", f"{plan.tolerance:.3g} of each member's honest reward"],
        [
            "tried",
            f"{len(evidence.deviations)} deviations of each of {len(plan.deviators)} clients",
        ],
        ["discount rate found", f"{judgement.discount:.4g} a round"],
    ]


def _likeness(judgement: Judgement, folder: Path) -> dict[str, Any]:
    """How alike the clients are: label shares, gradients, ζ and ρ; (least, median, most)."""
    far = label_distances(judgement.task.train)
    path = folder / "likeness.json"
    points = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {"label_distances": None if far is None else _spread(far), "points": points}


def alike(judgement: Judgement, folder: Path) -> list[list[str]]:
    """How alike the clients are, in words: (what, how much)."""
    likeness = _likeness(judgement, folder)
    rows: list[list[str]] = []
    if likeness["label_distances"]:
        text = _range(likeness["label_distances"]) + " (total variation)"
        rows.append(["label shares differ by", text])
    for point in likeness["points"]:
        known = point["cosines"]
        text = f"cosine of their gradients {_range(known)}" if known else "gradients lost in noise"
        text += f", ζ = {point['zeta']:.3g}, ρ = {point['rho']:.3g}"
        rows.append([f"clients compared after {point['round']} rounds", text])
    return rows


def _spread(values: Array) -> list[float]:
    return [float(value) for value in np.quantile(values, [0, 0.5, 1])]


def _range(spread: list[float]) -> str:
    low, _, high = spread
    return f"{low:.3g}" if low == high else f"{low:.3g} … {high:.3g}"


def _interval(values: Array) -> dict[str, float]:
    mean, low, high = interval(values)
    return {"mean": mean, "low": low, "high": high}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
