"""The page of `verax reproduce adversary`: tables and a figure from the summaries of its audits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: The heading of each setting, and the summary of its audit.
Audited = tuple[str, dict[str, Any]]


def page(audited: Sequence[Audited]) -> str:
    """The tables in Markdown."""
    lines: list[str] = []
    for words, audit in audited:
        lines += [f"### {words[0].upper()}{words[1:]}", ""]
        lines += _settings(audit) + _tried(audit) + _rules(audit) + _everybody(audit)
    return "\n".join(lines)


def draw(audited: Sequence[Audited], path: Path) -> None:
    """The strongest misreport of every kind, for each setting, at the proposed price."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.2 * len(audited)), layout="constrained")
    axes: Any = figure.subplots(len(audited), 1, sharex=False, squeeze=False)
    for axis, (words, audit) in zip(axes[:, 0], audited, strict=True):
        rows = [*audit["tried"], *_as_rows(audit)][::-1]
        for height, row in enumerate(rows):
            mean, low, high = (100 * end for end in row["gain_share"].values())
            colour = "#b3261e" if row["harmful"] else "#3b6ea5"
            axis.errorbar(
                mean, height, xerr=[[mean - low], [high - mean]], fmt="o", color=colour, ms=4
            )
        axis.axvline(0, color="grey", lw=0.8)
        axis.axvline(100 * audit["tolerance_share"], color="grey", lw=0.8, ls=":")
        axis.set_yticks(range(len(rows)), [row["kind"] for row in rows], fontsize=7)
        axis.set_title(words, fontsize=8, loc="left")
    axes[-1, 0].set_xlabel(
        "gain in % of the honest reward; red: at the others' expense", fontsize=8
    )
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _settings(audit: dict[str, Any]) -> list[str]:
    settings = dict(map(tuple, audit["settings"]))
    proposed = audit["proposed"]
    return [
        f"Seeds: {settings['seeds']}. Proposed: {audit['rule']}, {proposed['schedule']}, times "
        f"{proposed['price']:.3g}.",
        "",
    ]


def _as_rows(audit: dict[str, Any]) -> list[dict[str, Any]]:
    """What the search found, in the form of the table of what was tried."""
    rows: list[dict[str, Any]] = []
    alone = [one for one in audit["search"] if one["price"] == "proposed"]
    if alone:
        best = _strongest(alone, lambda one: one["gain_share"])
        unit = best["gain_share"] / best["gain"]["mean"] if best["gain"]["mean"] else 0.0
        rows.append(
            {
                "kind": "searched policy",
                "label": best["words"],
                "name": best["name"],
                "gain_share": {end: unit * value for end, value in best["gain"].items()},
                "others": f"{best['others_gain']['mean']:+.2g} {audit['currency']}",
                "harmful": best["harmful"],
            }
        )
    if audit["pairs"]:
        best = _strongest(audit["pairs"], lambda one: one["gain_share"]["mean"])
        rows.append(
            {
                "kind": "two members together",
                "label": "searched",
                "name": " and ".join(best["names"]),
                "gain_share": best["gain_share"],
                "others": _share(best["others_share"]),
                "harmful": best["harmful"],
            }
        )
    return rows


def _strongest(
    rows: list[dict[str, Any]], gain: Callable[[dict[str, Any]], float]
) -> dict[str, Any]:
    """The row that gains most at the others' expense, or of all rows if none gains so."""
    harmful = [row for row in rows if row["harmful"] and gain(row) > 0]
    return max(harmful or rows, key=gain)


def _tried(audit: dict[str, Any]) -> list[str]:
    lines = [
        "| tried | strongest | by | it gains | the others gain | at their expense |",
        "|---|---|---|---|---|---|",
    ]
    for row in [*audit["tried"], *_as_rows(audit)]:
        others = row["others"] if "others" in row else _share(row["others_share"])
        lines.append(
            f"| {row['kind']} | {row['label']} | {row['name']} | {_share(row['gain_share'])} | "
            f"{others} | {'yes' if row['harmful'] else 'no'} |"
        )
    return [*lines, ""]


def _rules(audit: dict[str, Any]) -> list[str]:
    lines = ["| rule and price | worst gain at the others' expense | window |", "|---|---|---|"]
    lines += [
        f"| {row['name']} | {100 * row['worst_share']:.2f} % | {row['window']} |"
        for row in audit["rules"]
    ]
    return [*lines, ""]


def _everybody(audit: dict[str, Any]) -> list[str]:
    if not audit["everybody"]:
        return []
    lines = ["| everybody strategic | from scale | all rewards | at rest |", "|---|---|---|---|"]
    lines += [
        f"| price: {row['price']} | {row['start']:g} | {_share(row['rise'])} | "
        f"{'yes' if row['settled'] else 'no'} |"
        for row in audit["everybody"]
    ]
    return [*lines, ""]


def _share(interval: dict[str, float] | None) -> str:
    """A share with its interval, in per cent."""
    if interval is None:
        return "–"
    mean, low, high = (f"{100 * end:+.2f}".replace("-", "−") for end in interval.values())
    return f"{mean} % [{low}, {high}]"
