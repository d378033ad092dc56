"""The tables of `docs/results.md`, from the folders that `verax reproduce` left.

    python benchmarks/results.py FOLDER [FOLDER …]

Figures are copied to `docs/results/`, tables replace what stands behind the page's mark. Plan and
summary of each audit go to `docs/results/FIGURE-USERS/`, so that every number can be traced; names
of folders of the machine that ran it are left out.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
FIGURES = ROOT / "docs" / "results"
MARK = "<!-- measured -->"


def interval(found: dict[str, float] | None) -> str:
    if found is None:
        return "–"
    return f"{found['mean']:+.2g} [{found['low']:+.2g}, {found['high']:+.2g}]"


def window(found: dict[str, Any]) -> str:
    if found["low"] is None:
        return "none"
    return f"{found['low']:.2g} … {'∞' if found['high'] is None else format(found['high'], '.2g')}"


def pays(found: dict[str, float], tolerance: float) -> str:
    """In words, what an interval says of a gain."""
    if found["low"] > tolerance:
        return "yes"
    if found["low"] > 0:
        return "a little"
    return "no" if found["high"] < tolerance else "not shown"


def rows(results: dict[str, Any]) -> list[list[str]]:
    table: list[list[str]] = []
    for name, facts in results.items():
        best, under = facts["best_over"], facts["best_under_at_high_price"]
        table.append(
            [
                name,
                facts["split"],
                f"{facts['rounds']} × {facts['seeds']}",
                f"{facts['honest_loss']['mean']:.3g}",
                f"{best['a']:g}",
                interval(best["gain"]),
                interval(best["steering"]),
                interval(best["faster_learning"]),
                pays(best["gain"], facts["tolerance"]),
                f"a = {under['a']:g}: {interval(under['gain_at_price'])}",
                window(facts["window_constant_misreports"]),
                window(facts["window_all"]),
                f"{facts['best_at_profile']['share']:.2%} ({facts['best_at_profile']['label']})",
            ]
        )
    return table


def curves(results: dict[str, Any]) -> list[list[str]]:
    """Gain over a at C = 0, with steering, of every scale that was tried."""
    return [
        [
            name,
            facts["split"],
            f"{scale['a']:g}",
            interval(scale["gain"]),
            interval(scale["steering"]),
        ]
        for name, facts in results.items()
        for scale in (*facts["under"], *facts["over"])
    ]


def alike(results: dict[str, Any]) -> list[list[str]]:
    return [
        [name, facts["split"], "; ".join(f"{what}: {much}" for what, much in facts["similarity"])]
        for name, facts in results.items()
        if name.startswith("fedsgd")
    ]


def markdown(heads: list[str], table: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in table])


def keep_sources(source: Path, target: Path) -> None:
    """Copy an audit's plan and summary; of data and encoder only the last name stays."""
    target.mkdir(exist_ok=True)
    plan = (source / "plan.toml").read_text(encoding="utf-8")
    task = tomllib.loads(plan)["task"]
    for name in ("plan.toml", "audit.json"):
        text = (source / name).read_text(encoding="utf-8")
        for path in (task.get("data"), task.get("encoder")):
            text = text.replace(path, Path(path).name) if path else text
        (target / name).write_text(text, encoding="utf-8")


def main() -> None:
    FIGURES.mkdir(exist_ok=True)
    whole, scales, likeness, pictures = [], [], [], []
    for folder in map(Path, sys.argv[1:]):
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        whole += rows(results)
        scales += curves({n: f for n, f in results.items() if n.startswith("fedsgd")})
        likeness += alike(results)
        for name, facts in results.items():
            keep_sources(folder / name, FIGURES / f"{name}-{facts['split']}")
            for panel in (Path(p) for p in facts["panels"] if p.endswith(".png")):
                target = FIGURES / f"{name}-{facts['split']}-{panel.name}"
                shutil.copyfile(folder / name / panel.name, target)
                pictures.append(f"![{name}, {facts['split']}](results/{target.name})")
    heads = ["figure", "users", "rounds × runs", "honest loss", "best a > 1", "gain at C = 0"]
    heads += ["steering", "faster learning", "pays?", "under-reporting at 10 × the price"]
    heads += ["window, constant misreports", "window, with timing", "at the price profile"]
    parts = [
        "## All figures",
        markdown(heads, whole),
        "## FedSGD: gain over a without payments",
        markdown(["figure", "users", "a", "gain", "steering"], scales),
        "## How alike the clients are",
        markdown(["figure", "users", "measured"], likeness),
        "## Panels",
        *pictures,
    ]
    words = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(words + MARK + "\n\n" + "\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
