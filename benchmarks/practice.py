"""What practitioners use instead of prices, beside prices, on the same runs of three federations.

`record` computes the runs of the settings that are named (default: all) and keeps them in a
folder; `judge` writes the results to a JSON file; `tables` prints them as Markdown
(`docs/practice.md`).

    python benchmarks/practice.py record --folder RUNS
    python benchmarks/practice.py judge --folder RUNS --json docs/practice.json
    python benchmarks/practice.py tables --json docs/practice.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contributions import (
    ContributionSubject,
    honest_payments,
    load_contributions,
    rises,
)
from numpy.typing import NDArray
from page import table

from verax.audit.judge import Judgement, judge
from verax.audit.judge.candidates import joint_best
from verax.audit.judge.evidence import Evidence
from verax.audit.judge.windows import interval
from verax.audit.plan import Plan
from verax.audit.run.execute import run
from verax.audit.run.record import load_runs
from verax.learning import Behaviour, Seeds, Simulator, Task
from verax.tasks import digits
from verax.tasks.cancer import cancer

Array = NDArray[np.float64]

#: Two seeds set prices, one other chooses among them, and four further ones judge.
SEEDS = {"setting_seeds": 2, "choosing_seeds": 1, "judging_seeds": 4}


@dataclass(frozen=True)
class Setting:
    """A federation to measure.

    Attributes:
        words: what it is.
        task: makes its data, model and loss.
        robust: aggregators that differ from each other with so many members.
    """

    words: str
    task: Callable[[], Task]
    robust: tuple[str, ...]


SETTINGS = {
    "default": Setting(
        "three clients, digits (`verax audit`)", lambda: digits(3, "softmax"), ("median",)
    ),
    "ten": Setting(
        "ten clients, digits",
        lambda: digits(10, "softmax"),
        ("median", "trimmed-mean:0.2", "krum:1"),
    ),
    "cancer": Setting("four hospitals, breast cancer", cancer, ("median",)),
}


def plan_of(setting: Setting, task: Task) -> Plan:
    """The default audit, without a search, with robust aggregators and clipping."""
    plan = Plan.of(clients=task.clients, rules="squared-norm", evaluate_every=5, **SEEDS)
    bound = float(np.median(honest_lengths(plan, task)))
    return plan.changed(task=task.name, robust=(*setting.robust, f"clipped:{bound:.3g}"))


def honest_lengths(plan: Plan, task: Task) -> Array:
    """The length of every honest message of the seeds that set prices."""
    simulator = Simulator(task, plan.protocol.make(), plan.rounds)
    outcomes = [simulator.run(Seeds.of(seed), [Behaviour()]) for seed in plan.seeds.setting]
    return np.sqrt(np.stack([outcome.norms for outcome in outcomes]))


def first_losses(plan: Plan, task: Task) -> Array:
    """Every member's evaluation loss before the first round, mean over setting seeds, (N,)."""
    simulator = Simulator(task, plan.protocol.make(), plan.rounds)
    starts = [simulator.start(Seeds.of(seed)) for seed in plan.seeds.setting]
    return np.mean([simulator.evaluate(start).loss[0] for start in starts], axis=0)


class Practice:
    """A mechanism on the judging seeds, and what its numbers are compared with.

    Args:
        evidence: runs of its aggregator.
        rises: what each deviator pays more than when honest, (C, D, S).
        bills: what each member is expected to pay when honest, (N,).
    """

    def __init__(self, evidence: Evidence, rises: Array, bills: Array) -> None:
        self.evidence, self.bills = evidence, bills
        self.payments = -rises / evidence.reward_sizes[:, None, None]
        own = evidence.reward_sizes[:, None, None]
        others = evidence.reward_sizes.sum() - own
        self.gains = (evidence.gains - rises) / own
        self.others_gains = (evidence.others_rises + rises) / others
        limit = -evidence.others_tolerances[:, None] / others[..., 0]
        self.harmful = self.others_gains.mean(axis=2) < limit

    def row(self, mean: Evidence) -> dict[str, Any]:
        """The numbers of a row; `mean` is the honest federation with the mean and no payment."""
        losses, usual = (e.honest_losses.mean(axis=0) for e in (self.evidence, mean))
        bills, own = self.bills / losses, losses / usual - 1
        return {
            "harmful": self._best(self.harmful),
            "any": self._best(np.ones_like(self.harmful)),
            "honest loss": _percent(losses.mean() / usual.mean() - 1),
            "largest bill": [_percent(bills.max()), int(bills.argmax())],
            "largest rise": [_percent(own.max()), int(own.argmax())],
            "price of gaming": self._price_of_gaming(),
            "manipulability": self._manipulability(),
        }

    def _best(self, which: NDArray[np.bool_]) -> dict[str, Any] | None:
        """The misreport that gains most among some; None if there is none."""
        if not which.any():
            return None
        mean = np.where(which, self.gains.mean(axis=2), -np.inf)
        k, d = np.unravel_index(int(np.argmax(mean)), mean.shape)
        found = interval(self.gains[k, d])
        harm = self.evidence.harm[k, d].mean(axis=0) / self.evidence.reward_sizes
        harm[k] = -np.inf
        return {
            "gain": _percent(found.mean),
            "interval": [_percent(found.low), _percent(found.high)],
            "client": int(k),
            "what": self.evidence.labels[d],
            "received": _percent(self.payments[k, d].mean()),
            "others": _percent(self.others_gains[k, d].mean()),
            "hurt most": [_percent(harm.max()), int(harm.argmax())],
        }

    def _welfare(self, k: int, d: int) -> Array:
        """The mean accuracy of all members under a misreport, by seed."""
        return np.array([one.accuracy.mean() for one in self.evidence.deviation_runs(k, d)])

    def _price_of_gaming(self) -> dict[str, Any]:
        """By how much welfare falls under the best response that lowers it most."""
        honest = self.evidence.honest_accuracy.mean(axis=1)
        found: dict[str, Any] = {"price": 0.0, "client": None, "what": "honest"}
        for k, mean in enumerate(self.gains.mean(axis=2)):
            d = int(np.argmax(mean))
            price = _percent(((honest - self._welfare(k, d)) / honest).mean())
            if mean[d] > 0 and price > found["price"]:
                found = {"price": price, "client": k, "what": self.evidence.labels[d]}
        return found

    def _manipulability(self) -> float:
        """The largest gain by a misreport that does not raise welfare."""
        honest = self.evidence.honest_accuracy.mean()
        C, D = self.harmful.shape
        welfare = np.array([[self._welfare(k, d).mean() for d in range(D)] for k in range(C)])
        gains = np.where(welfare <= honest, self.gains.mean(axis=2), 0.0)
        return max(_percent(gains.max()), 0.0)


def record(setting: Setting, folder: Path) -> None:
    """Compute all runs of a setting."""
    task, begin = setting.task(), time.process_time()
    plan = plan_of(setting, task)
    run(plan, ContributionSubject(task), folder)
    seconds = {"seconds": round(time.process_time() - begin)}
    (folder / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")


def results_of(setting: Setting, folder: Path) -> dict[str, Any]:
    """All rows of a setting, from its runs."""
    task = setting.task()
    plan = Plan.from_toml((folder / "plan.toml").read_text(encoding="utf-8"))
    judgement = judge(plan, ContributionSubject(task), folder)
    evidence = judgement.evidence
    nothing = np.zeros_like(evidence.gains)
    no_bills = np.zeros(task.clients)
    rows = {"no payment, mean": Practice(evidence, nothing, no_bills)}
    for other in judgement.compared:
        rows[_aggregator_words(other.aggregator)] = Practice(
            other, np.zeros_like(other.gains), no_bills
        )
    rates = contribution_rates(judgement, first_losses(plan, task), folder)
    known = load_contributions(load_runs(folder), folder)
    more, bills = rises(evidence, known), honest_payments(evidence, known).mean(axis=0)
    for name, k in rates.items():
        rows[f"pay by contribution, {name}"] = Practice(evidence, k * more, k * bills)
    main = judgement.main
    constant = main.chosen_by["constant"]
    prices = {
        "constant price, chosen": (
            "constant",
            best_multiple(constant.evidence, constant.rises),
        ),
        "price profile × 1": ("profile", 1.0),
        "what the audit proposes": (judgement.choice.kind, judgement.multiplier),
    }
    if prices["what the audit proposes"] == prices["price profile × 1"]:
        del prices["what the audit proposes"]
    for name, (kind, multiple) in prices.items():
        candidate = main.candidates[kind]
        bills = multiple * candidate.honest.sum(axis=0)
        rows[name] = Practice(evidence, multiple * candidate.rises, bills)
    return {
        "words": setting.words,
        "clients": task.clients,
        "misreports": len(plan.tried),
        "honest losses": evidence.honest_losses.mean(axis=0).round(4).tolist(),
        "honest accuracy": round(float(evidence.honest_accuracy.mean()), 4),
        "k": {name: float(f"{k:.4g}") for name, k in rates.items()},
        "proposed": [judgement.choice.kind, float(f"{judgement.multiplier:.4g}")],
        "prices": {name: [kind, float(f"{m:.4g}")] for name, (kind, m) in prices.items()},
        "aggregators": plan.prices.robust,
        **json.loads((folder / "seconds.json").read_text(encoding="utf-8")),
        "rows": {name: own.row(evidence) for name, own in rows.items()},
    }


def contribution_rates(judgement: Judgement, before: Array, folder: Path) -> dict[str, float]:
    """The multiples k of pay by contribution.

    Args:
        judgement: of the setting.
        before: every member's loss before the first round, (N,).
        folder: of the runs.
    """
    plan, runs = judgement.plan, load_runs(folder)
    known = load_contributions(runs, folder)
    setting = Evidence(plan, runs, plan.seeds.setting)
    choosing = Evidence(plan, runs, plan.seeds.choosing)
    each = [known[one.run.number] for one in setting.honest_runs]
    fallen = before.sum() - setting.honest_losses.sum(axis=1).mean()
    return {
        "k = 1": 1.0,
        "worth the model": float(fallen / np.sum(each, axis=1).mean()),
        "chosen": best_multiple(choosing, rises(choosing, known)),
    }


def best_multiple(evidence: Evidence, rises: Array) -> float:
    """The multiple that leaves the least gain at the others' expense, then the least gain of all.

    Multiples are 0 and 81 others, between a thousandth and a thousand times the one that an audit
    would choose (or 1, where it would choose none).
    """
    middle = joint_best(evidence, rises)[0] or 1.0

    def left(multiple: float) -> tuple[float, float]:
        own = Practice(evidence, multiple * rises, np.zeros(len(evidence.reward_sizes)))
        mean = own.gains.mean(axis=2)
        return float(np.max(mean, where=own.harmful, initial=0.0)), float(mean.max())

    return min((0.0, *middle * np.logspace(-3, 3, 81)), key=left)


def tables(results: dict[str, Any]) -> str:
    """The table to quote, then one with everything for each setting."""
    texts = [f"## At the others' expense\n\n{_short_table(results)}"]
    for one in results.values():
        heads = [
            "mechanism",
            "largest gain at the others' expense",
            "by",
            "the others",
            "loss rises most",
            "largest gain of all",
            "by",
            "the others",
            "honest loss, all",
            "honest loss, outlier",
            "largest honest bill",
            "price of gaming",
            "manipulability",
        ]
        rows = [[name, *_cells(row)] for name, row in one["rows"].items()]
        texts.append(f"## {one['words'].capitalize()}\n\n{table(heads, rows)}")
    return "\n\n".join(texts)


def _short_table(results: dict[str, Any]) -> str:
    """For each setting the largest gain at the others' expense, and what honesty costs an outlier.

    The latter is its bill, or what its loss is higher than with the mean.
    """
    heads = ["mechanism"]
    for one in results.values():
        heads += [f"{one['words']}: gain", "honesty costs"]
    longest_first = sorted(results.values(), key=lambda one: -len(one["rows"]))
    names = dict.fromkeys(name for one in longest_first for name in one["rows"])
    lines: list[list[str]] = []
    for name in names:
        cells = [name]
        for one in results.values():
            row = one["rows"].get(name)
            if row is None:
                cells += ["–", "–"]
                continue
            cost = row["largest bill"][0] or row["largest rise"][0]
            cells += [_gain(row["harmful"]) if row["harmful"] else "none", _number(cost)]
        lines.append(cells)
    return table(heads, lines)


def _aggregator_words(name: str) -> str:
    """An aggregator as tables name it, without its numbers, which may differ by setting."""
    kind = name.partition(":")[0]
    words = {"clipped": "clipping", "trimmed-mean": "trimmed mean", "krum": "Krum"}
    return words.get(kind, kind)


def _cells(row: dict[str, Any]) -> list[str]:
    cells: list[str] = []
    for kind in ("harmful", "any"):
        worst = row[kind]
        if worst is None:
            cells += ["none", "–", "–"]
        else:
            by = f"{worst['what']}, client {worst['client']}"
            cells += [_gain(worst), by, _number(worst["others"])]
        if kind == "harmful":
            cells.append(_of_client(worst["hurt most"]) if worst else "–")
    cells.append(_number(row["honest loss"]))
    cells += [_of_client(row["largest rise"]), _of_client(row["largest bill"])]
    return [*cells, _number(row["price of gaming"]["price"]), _number(row["manipulability"])]


def _of_client(found: tuple[float, int]) -> str:
    """A share, and whose it is; nobody's if it is not above zero."""
    value, client = found
    return f"{_number(value)} (client {client})" if value > 0 else "0"


def _gain(found: dict[str, Any]) -> str:
    low, high = map(_number, found["interval"])
    return f"{_number(found['gain'])} [{low}, {high}]"


def _number(value: float) -> str:
    text = f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")


def _percent(share: float) -> float:
    """In per cent, with two decimals; adding zero makes no zero negative."""
    return round(100 * float(share), 2) + 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("record", "judge", "tables"))
    parser.add_argument("settings", nargs="*", help=f"of {', '.join(SETTINGS)}; default: all")
    parser.add_argument("--folder", type=Path, default=Path("practice-runs"), help="of the runs")
    parser.add_argument("--json", type=Path, default=Path("practice.json"), help="of the results")
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.json.read_text()) if given.json.exists() else {}
    if given.what == "tables":
        print(tables(results))
        return
    for name in given.settings or SETTINGS:
        if given.what == "record":
            record(SETTINGS[name], given.folder / name)
        else:
            results[name] = results_of(SETTINGS[name], given.folder / name)
            given.json.write_text(json.dumps(results) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
