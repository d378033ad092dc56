"""The pages on real data, from the folders that `verax reproduce` left.

    python benchmarks/results.py FOLDER [FOLDER …]

The table of `docs/results.md` stands behind the page's mark and is replaced. Every task has a page
of its own in `docs/results/`, with the panels. Plan and summary of each audit go to
`docs/results/FIGURE-USERS/`, so that every number can be traced; names of folders of the machine
that ran it are left out.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page import table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
FIGURES = ROOT / "docs" / "results"
MARK = "<!-- measured -->"
TITLES = {"femnist": "FEMNIST", "sent140": "Sent140", "shakespeare": "Shakespeare"}


@dataclass(frozen=True)
class Result:
    """One figure: what `results.json` says of it, and the summary of its audit."""

    name: str
    facts: dict[str, Any]
    audit: dict[str, Any]

    @property
    def task(self) -> str:
        return self.name.partition("-")[2]

    @property
    def users(self) -> str:
        return self.facts["split"]

    @property
    def loss(self) -> float:
        return self.audit["clients"][0]["reward_size"]

    def share_of(self, gain: dict[str, float] | None) -> str:
        """An interval as a share of the honest loss, in per cent."""
        if gain is None:
            return "–"
        mean, low, high = (100 * gain[end] / self.loss for end in ("mean", "low", "high"))
        return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"

    def rule(self, name: str) -> dict[str, Any] | None:
        return next((row for row in self.audit["rules"] if row["name"] == name), None)


def read(folder: Path) -> list[Result]:
    """All figures of a folder, with their sources copied."""
    found: list[Result] = []
    for name, facts in json.loads((folder / "results.json").read_text(encoding="utf-8")).items():
        keep_sources(folder / name, FIGURES / f"{name}-{facts['split']}")
        for panel in (folder / name).glob("panel*.png"):
            shutil.copyfile(panel, FIGURES / f"{name}-{facts['split']}" / panel.name)
        audit = json.loads((folder / name / "audit.json").read_text(encoding="utf-8"))
        found.append(Result(name, facts, audit))
    return found


def keep_sources(source: Path, target: Path) -> None:
    """Copy an audit's plan and summary; of data and encoder only the last name stays."""
    target.mkdir(exist_ok=True)
    plan = (source / "plan.toml").read_text(encoding="utf-8")
    task = tomllib.loads(plan)["task"]
    for name in ("plan.toml", "audit.json"):
        text = (source / name).read_text(encoding="utf-8")
        for path in (task.get("data"), task.get("encoder")):
            text = text.replace(path, Path(path).name) if path else text
        if name == "audit.json":
            text = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
        (target / name).write_text(text, encoding="utf-8")


def window(found: dict[str, Any] | None) -> str:
    if not found or found["low"] is None:
        return "none"
    return f"{found['low']:.2g} … {'∞' if found['high'] is None else format(found['high'], '.2g')}"


def hurt(result: Result) -> str:
    """Who is hurt most by the best scale above 1, in units of loss."""
    a = result.facts["best_over"]["a"]
    deviations = result.audit["clients"][0]["deviations"]
    best = next(d for d in deviations if d["constant"] and d["a_late"] == a and d["b"] == 0)
    member, rise = max(best["harm"].items(), key=lambda item: item[1]["mean"])
    if rise["low"] <= 0:
        return "nobody"
    return f"{result.audit['members'][int(member)][0]}: {rise['mean']:+.2g}"


def proposed(result: Result) -> str:
    """The largest gain at the others' expense at the proposed price."""
    gains = [
        (one["at_proposed_price"]["gain"]["mean"] / result.loss, one["label"])
        for one in result.audit["clients"][0]["deviations"]
        if one["at_proposed_price"]["effect"] == "costs the others"
    ]
    share, label = max(gains, default=(0.0, ""))
    return f"{100 * share:.1f} ({label})" if share > 0 else "0.0"


def least(result: Result) -> str:
    """The rule and price that leaves least at the others' expense, spot checks aside."""
    rows = [
        row
        for row in result.audit["rules"]
        if "spot" not in row["name"] and "no payment" not in row["name"]
    ]
    best = min(rows, key=lambda row: row["worst_share"])
    return f"{100 * best['worst_share']:.1f} ({best['name']})"


def signal(result: Result) -> str:
    shares = [share for row in result.audit["noise"] for share in row["signal_share"]]
    return f"{min(shares):.0%} … {max(shares):.0%}" if shares else "–"


def row(result: Result) -> list[str]:
    """One line of the summary."""
    facts, best = result.facts, result.facts["best_over"]
    profile = result.rule(f"{result.audit['rule']}, profile")
    return [
        f"[{result.name}](results/{result.task}.md)",
        result.users,
        f"{facts['rounds']:,} × {facts['seeds']}",
        f"{facts['honest_loss']['mean']:.3g}",
        f"a = {best['a']:g}: {result.share_of(best['gain'])}",
        result.share_of(best["steering"]),
        hurt(result),
        window(facts["window_constant_misreports"]),
        window(facts["window_all"]),
        f"{100 * profile['worst_share']:.1f}" if profile else "–",
        proposed(result),
        least(result),
        signal(result),
    ]


HEADS = [
    "figure",
    "users",
    "rounds × seeds",
    "honest loss",
    "best a > 1 without a price gains, %",
    "of it steering, %",
    "who is hurt most",
    "window of C, constant a",
    "with timing",
    "profile leaves, %",
    "proposed leaves, %",
    "least of all rules, %",
    "signal in a squared norm",
]


def task_page(task: str, results: list[Result]) -> str:
    """The page of a task: verdicts and panels, the long tables folded."""
    parts = [
        f"# {TITLES[task]}",
        "Every figure is an audit; its plan and its whole summary stand beside this page. Gains "
        "are in per cent of the honest loss, intervals are 95 % over the judging seeds. [What all "
        "of this says](../results.md).",
    ]
    for result in results:
        folder = f"{result.name}-{result.users}"
        parts += [
            f"## {result.name}, users {result.users}, {result.facts['rounds']:,} rounds",
            "\n".join(f"- {sentence}" for sentence in result.audit["verdict"][:4]),
            *(
                f"![{result.name}, users {result.users}]({folder}/{panel.name})"
                for panel in sorted((FIGURES / folder).glob("panel*.png"))
            ),
            folded("Scales, without a price", scales(result)),
            folded("Every misreport at the proposed price", misreports(result)),
            folded("Rules and prices on the same runs", rules(result)),
            f"[plan.toml]({folder}/plan.toml) · [audit.json]({folder}/audit.json)",
        ]
    return "\n\n".join(parts) + "\n"


def folded(title: str, text: str) -> str:
    lines = "\n".join(f"    {line}" if line else "" for line in text.splitlines())
    return f'??? note "{title}"\n\n{lines}'


def scales(result: Result) -> str:
    rows = [
        [f"{one['a']:g}", result.share_of(one["gain"]), result.share_of(one["steering"])]
        for one in (*result.facts["under"], *result.facts["over"])
    ]
    return table(["a", "gain, %", "of it steering, %"], rows)


def misreports(result: Result) -> str:
    rows = [
        [
            one["label"],
            result.share_of(one["reward_gain"]),
            result.share_of(one["at_proposed_price"]["gain"]),
            result.share_of(one["at_proposed_price"]["others_gain"]),
            one["at_proposed_price"]["effect"],
        ]
        for one in result.audit["clients"][0]["deviations"]
    ]
    heads = ["misreport", "gain without a price, %", "at the proposed one, %"]
    return table([*heads, "the others gain, % of its loss", "effect"], rows)


def rules(result: Result) -> str:
    rows = [
        [one["name"], f"{100 * one['worst_share']:.2f}", one["window"]]
        for one in result.audit["rules"]
    ]
    return table(["rule and price", "worst gain at the others' expense, %", "window"], rows)


def main() -> None:
    FIGURES.mkdir(exist_ok=True)
    results = [result for folder in map(Path, sys.argv[1:]) for result in read(folder)]
    results.sort(key=lambda one: (one.task, one.name, one.users))
    for task in TITLES:
        if own := [one for one in results if one.task == task]:
            (FIGURES / f"{task}.md").write_text(task_page(task, own), encoding="utf-8")
    words = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    measured = table(HEADS, [row(one) for one in results])
    PAGE.write_text(f"{words}{MARK}\n\n{measured}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
