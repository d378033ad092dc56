"""An audit as one JSON object: the terminal, `--json`, the report, figures and panels all read it.

From `reward_gain` and `payment_rise` of a deviation a script computes its gain at any price C:
reward_gain.mean − C · payment_rise[schedule]; the values of every seed stand beside them.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax import __version__
from verax.amounts import money, number
from verax.audit.judge.judgement import Judgement
from verax.audit.judge.windows import Window
from verax.audit.search import SearchResults
from verax.audit.show.tables import interval_of, tables
from verax.audit.show.verdict import not_tried, verdict, why_not
from verax.game import Reporting

Array = NDArray[np.float64]

# Of more clients than this, only the extremes are listed.
_MANY = 20

SCHEDULE_WORDS = {
    "constant": "one price C for all rounds, as in the paper",
    "discounted": "a price that rises toward the end at the rate that deters best",
    "common profile": "a price per block of rounds, the same for all members, set by probes",
    "profile": "a price per block of rounds and member, set by probes on other seeds",
}


def summarise(judgement: Judgement, found: SearchResults, folder: Path) -> dict[str, Any]:
    """Everything, as plain JSON values; `found` is what was searched."""
    plan, evidence, best = judgement.plan, judgement.evidence, judgement.best
    low, high = best.common
    similarity, shown = _similarity(judgement, folder), tables(judgement, found)
    reason = why_not(judgement, shown)
    holds = reason is None
    return {
        "verax": __version__,
        "task": judgement.subject.name,
        "title": f"{judgement.subject.name}: {plan.task.clients} clients, {plan.rounds} rounds",
        "message": judgement.description.message,
        "rule": judgement.main.rule.name,
        "settings": _settings(judgement) + _similarity_words(similarity),
        "verdict": verdict(judgement, shown),
        "currency": plan.prices.currency,
        "worth": np.broadcast_to(plan.prices.worth, plan.task.clients).tolist(),
        "worth_range": _worth_range(judgement) if holds else None,
        "tolerance": float(evidence.tolerances.mean()),
        "tolerance_share": plan.prices.tolerance,
        "schedules": list(judgement.schedules),
        "schedule_words": {name: SCHEDULE_WORDS[name] for name in judgement.schedules},
        "discount": judgement.main.discount,
        "window": {"schedule": best.kind, "low": low, "high": _finite(high)} if holds else None,
        "reason": reason,
        "proposed": {"schedule": best.kind, "price": judgement.multiplier},
        "clients": [_client(judgement, k) for k in range(len(plan.deviators))],
        **shown,
        "profile": _profile(judgement),
        "payments": _payments(judgement),
        "rules": [asdict(row) for row in judgement.comparison],
        "members": _members(judgement),
        "members_words": _members_words(judgement),
        "similarity": similarity,
        "diverged": {d.describe(plan.rounds): r for d, r in evidence.diverged.items()},
        "not_tried": not_tried(plan, shown),
        "versions": {name: value for name, value in judgement.versions.items() if name != "data"},
    }


def _worth_range(judgement: Judgement) -> dict[str, float | None] | None:
    """{low, high} of the true worth over the entered one; high is None where there is no limit."""
    ends = judgement.worth_range
    return None if ends is None else {"low": ends[0], "high": _finite(ends[1])}


def _client(judgement: Judgement, k: int) -> dict[str, Any]:
    evidence, client = judgement.evidence, judgement.plan.deviators[k]
    schedules = judgement.schedules.items()
    return {
        "client": client,
        "name": judgement.subject.names[client],
        "tolerance": float(evidence.tolerances[client]),
        "others_tolerance": float(evidence.others_tolerances[k]),
        "reward_size": float(evidence.reward_sizes[client]),
        "honest_loss": interval_of(evidence.honest_losses[:, client]),
        "honest_accuracy": _finite(float(evidence.honest_accuracy[:, client].mean())),
        "honest_payment": {name: float(c.honest[:, client].sum()) for name, c in schedules},
        "windows": [_window(name, c.windows[k]) for name, c in schedules],
        "windows_constant_misreports": [
            _window(name, c.windows_constant[k]) for name, c in schedules
        ],
        "deviations": [_deviation(judgement, k, d) for d in range(len(evidence.deviations))],
    }


def _deviation(judgement: Judgement, k: int, d: int) -> dict[str, Any]:
    evidence = judgement.evidence
    deviation = evidence.deviations[d]
    steering = evidence.steering(k, d)
    client = judgement.plan.deviators[k]
    rises = {name: c.rises[k, d] for name, c in judgement.schedules.items()}
    return {
        "label": evidence.labels[d],
        **_scales(deviation, judgement.plan.rounds),
        "constant": deviation.constant is not None,
        "reward_gain": interval_of(evidence.gains[k, d]),
        "reward_gain_by_seed": evidence.gains[k, d].tolist(),
        "steering": None if steering is None else interval_of(steering),
        "faster_learning": (
            None if steering is None else interval_of(evidence.gains[k, d] - steering)
        ),
        "others_gain": interval_of(evidence.others_rises[k, d]),
        "at_proposed_price": _at_proposed_price(judgement, k, d),
        "payment_rise": {name: float(rise.mean()) for name, rise in rises.items()},
        "payment_rise_by_seed": {name: rise.tolist() for name, rise in rises.items()},
        "harm": {
            str(j): interval_of(evidence.harm[k, d, :, j])
            for j in _most_hurt(evidence.harm[k, d].mean(axis=0), client)
        },
    }


def _at_proposed_price(judgement: Judgement, k: int, d: int) -> dict[str, Any]:
    """What the deviator gains, what the others lose and gain, and whether it costs them."""
    evidence, best, multiple = judgement.evidence, judgement.best, judgement.multiplier
    others = best.others_gains(multiple)[k, d]
    effect = "harmless"
    if best.harmful(multiple)[k, d]:
        effect = "costs the others"
    elif float(others.mean()) > evidence.others_tolerances[k]:
        effect = "helps the others"
    losses = np.delete(evidence.harm[k, d], judgement.plan.deviators[k], axis=1)
    return {
        "gain": interval_of(evidence.gains[k, d] - multiple * best.rises[k, d]),
        "others_loss": interval_of(losses.mean(axis=1)),
        "others_gain": interval_of(others),
        "effect": effect,
    }


def _scales(deviation: Reporting, rounds: int) -> dict[str, Any]:
    """The scale before and after a switch of a reporting that switches at most once, else None."""
    nothing = {"a_early": None, "a_late": None, "switch_round": None, "b": None}
    if deviation.constant is not None:
        a, b = deviation.constant
        return {"a_early": a, "a_late": a, "switch_round": None, "b": b}
    scales = deviation.scales(rounds)
    switches = np.flatnonzero(np.diff(scales)) + 1
    if deviation.program is not None or len(switches) != 1:
        return nothing
    early, late = float(scales[0]), float(scales[-1])
    return {"a_early": early, "a_late": late, "switch_round": int(switches[0]) + 1, "b": 0.0}


def _most_hurt(harm: Array, client: int) -> list[int]:
    """Everybody else; of many clients those that are hurt most."""
    others = [j for j in range(len(harm)) if j != client]
    if len(others) > _MANY:
        others = sorted(sorted(others, key=lambda j: -harm[j])[:_MANY])
    return others


def _window(name: str, window: Window) -> dict[str, Any]:
    empty = window.empty
    return {
        "schedule": name,
        "low": None if empty else window.low,
        "high": None if empty else _finite(window.high),
        "unbounded": not empty and math.isinf(window.high),
        "low_interval": [_finite(end) for end in window.low_interval],
        "high_interval": [_finite(end) for end in window.high_interval],
        "worst_gain": window.worst_gain,
        "best_price": window.best_price,
        "reason": window.reason or None,
    }


def _profile(judgement: Judgement) -> dict[str, Any]:
    main, blocks = judgement.main, judgement.plan.blocks
    reward = np.stack([one.reward for one in main.sensitivities])  # (S, C, K)
    clients, count = reward.shape[1:]
    return {
        "starts": list(blocks.starts),
        "rounds": blocks.rounds,
        "prices": main.profile.prices[:, list(judgement.plan.deviators)].tolist(),
        "common": main.common.prices[:, 0].tolist(),
        "temptation": [
            [interval_of(reward[:, i, k]) for i in range(clients)] for k in range(count)
        ],
        "undeterred": [{"block": k, "reason": reason} for k, reason in main.profile.undeterred],
    }


def _payments(judgement: Judgement) -> dict[str, Any]:
    """What the deviators have paid while all are honest, in the order of `clients`."""
    plan, T = judgement.plan, judgement.plan.rounds
    points = np.unique(np.linspace(1, T, min(T, 120)).astype(int))
    return {
        "rounds": points.tolist(),
        "schedules": {
            name: np.cumsum(c.honest, axis=0)[points - 1][:, list(plan.deviators)].tolist()
            for name, c in judgement.schedules.items()
        },
    }


def _members(judgement: Judgement) -> list[list[Any]]:
    """(name, honest payment at the proposed price, honest loss) of everybody."""
    paid = judgement.best.honest.sum(axis=0) * judgement.multiplier
    losses = judgement.evidence.honest_losses.mean(axis=0)
    rows = zip(judgement.subject.names, paid.tolist(), losses.tolist(), strict=True)
    return [[name, float(f"{own:.6g}"), float(f"{loss:.6g}")] for name, own, loss in rows]


def _members_words(judgement: Judgement) -> str:
    """How honest payments are distributed, before allowances."""
    paid = judgement.best.honest.sum(axis=0) * judgement.multiplier
    low, quarter, middle, most, high = np.quantile(paid, [0, 0.25, 0.5, 0.75, 1])

    def range_of(low: float, high: float) -> str:
        end = money(high, judgement.plan.prices.currency, sign=True)
        return f"{number(low, sign=True)} to {end}"

    words = f"Before allowances honest members pay {range_of(low, high)} over the run"
    if len(paid) > _MANY:
        median = money(middle, judgement.plan.prices.currency, sign=True)
        words += f", half of them {range_of(quarter, most)}, in the median {median}"
    return words + "."


def _settings(judgement: Judgement) -> list[list[str]]:
    plan, evidence = judgement.plan, judgement.evidence
    described = judgement.description
    return [
        ["protocol", described.protocol],
        ["a message is", f"a {described.message}, after {described.local_work}"],
        ["rounds", str(plan.rounds)],
        *map(list, described.details),
        [
            "seeds",
            f"{plan.seeds.set} set the prices, {plan.seeds.choose} others chose among them, "
            f"{plan.seeds.judge} further ones judged",
        ],
        ["reward", plan.prices.reward],
        ["tolerance", f"{plan.prices.tolerance:.3g} of each member's honest reward"],
        [
            "tried",
            f"{len(evidence.deviations)} misreports of each of {len(plan.deviators)} clients",
        ],
        ["prices set by", f"probes of ±{plan.prices.probe:g} in {len(plan.blocks)} blocks"],
        ["best discount rate", f"{judgement.main.discount:.4g} a round"],
    ]


def _similarity(judgement: Judgement, folder: Path) -> dict[str, Any]:
    """How similar the clients are: label shares, gradients, ζ and ρ; (least, median, largest)."""
    distances = judgement.description.label_distances
    path = folder / "similarity.json"
    return {
        "label_distances": None if distances is None else list(distances),
        "points": json.loads(path.read_text(encoding="utf-8")) if path.exists() else [],
    }


def _similarity_words(similarity: dict[str, Any]) -> list[list[str]]:
    """How similar the clients are, in words: (what, how much)."""
    rows: list[list[str]] = []
    if similarity["label_distances"]:
        text = _range_words(similarity["label_distances"]) + " (total variation)"
        rows.append(["label shares differ by", text])
    for point in similarity["points"]:
        text = "gradients hidden by noise"
        if point["cosines"]:
            text = f"cosine of their gradients {_range_words(point['cosines'])}"
        text += f", ζ = {point['zeta']:.3g}, ρ = {point['rho']:.3g}"
        rows.append([f"clients compared after {point['round']} rounds", text])
    return rows


def _range_words(quantiles: list[float]) -> str:
    low, _, high = quantiles
    return f"{low:.3g}" if low == high else f"{low:.3g} … {high:.3g}"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
