"""The results as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from page import table

#: Rules in the order of the tables, and their words.
WORDS = {
    "no payment": "no payment",
    "norm × 1": "norm profile × 1",
    "norm": "norm profile, chosen",
    "harm × 1": "harm × 1",
    "harm": "harm, chosen",
    "harm + norm": "harm + norm",
    "larger": "larger of both",
}

Cell = Callable[[dict[str, Any]], str]


def tables(results: dict[str, Any]) -> str:
    """All tables, each under a heading of its own."""
    known = {name: one for name, one in results.items() if "rules" in one}
    texts: list[str] = []

    def add(title: str, heads: list[str], rows: list[list[str]]) -> None:
        texts.append(f"## {title}\n\n{table(heads, rows)}")

    def by_rule(title: str, cell: Cell, of: Callable[[Any], Any], rules: list[str]) -> None:
        rows = [[one["words"], *(cell(of(one)[rule]) for rule in rules)] for one in known.values()]
        add(title, ["setting", *(WORDS[rule] for rule in rules)], rows)

    everything, compared = list(WORDS), ["norm", "harm", "harm + norm", "larger"]
    by_rule("Worst harmful gain", _worst("harmful"), lambda one: one["rules"], everything)
    by_rule(
        "Worst gain that raises the others' loss",
        _worst("raising"),
        lambda one: one["rules"],
        everything,
    )
    by_rule("Largest gain of all", _with_others, lambda one: one["rules"], everything)
    by_rule(
        "Chosen", lambda row: row["chosen"], lambda one: one["rules"], ["norm", *everything[4:]]
    )
    add(
        "Weights",
        [
            "setting",
            "monotone weights by block",
            "explained",
            "anchored weights",
            "weighted rounds",
        ],
        [
            [
                one["words"],
                _numbers(one["fits"]["monotone"]["weights"]),
                f"{one['fits']['monotone']['explained']:.2f}",
                _numbers(one["fits"]["anchored"]["weights"]),
                f"{one['weighted rounds']} of {one['rounds']}",
            ]
            for one in known.values()
        ],
    )
    for factor in ("0.5", "2.0"):
        by_rule(
            f"True worth {factor} of the assumed",
            _worst("harmful"),
            lambda one, factor=factor: one["worth"][factor],
            compared,
        )
    by_rule("Pairs", _worst("harmful"), lambda one: one["pairs"], ["no payment", *compared])
    for way in next(iter(known.values()))["samples"]:
        by_rule(
            way.capitalize(),
            _worst("harmful"),
            lambda one, way=way: one["samples"][way],
            compared,
        )
    add(
        "Levies that are not shared out",
        ["setting", "monotone × 1: raising", "any", "anchored × 1: raising", "any"],
        [
            [
                one["words"],
                *(
                    _worst(kind)(one["not shared out"][fit])
                    for fit in ("monotone", "anchored")
                    for kind in ("raising", "any")
                ),
            ]
            for one in known.values()
        ],
    )
    ways = list(next(iter(known.values()))["reports"])
    add(
        "False reports of client 0",
        ["setting", *ways],
        [
            [one["words"], *(_numbers(one["reports"][way], 1) for way in ways)]
            for one in known.values()
        ],
    )
    searched = {name: one for name, one in known.items() if "search" in one}
    add(
        "Search",
        ["setting", *(WORDS[rule] for rule in compared)],
        [
            [
                one["words"],
                *(
                    _worst("harmful")(one["search"][rule]) if rule in one["search"] else "–"
                    for rule in compared
                ),
            ]
            for one in searched.values()
        ],
    )
    return "\n\n".join(texts)


def _worst(kind: str) -> Cell:
    def cell(row: dict[str, Any]) -> str:
        found = row.get(kind)
        if not found:
            return "none"
        low, high = found["interval"]
        return f"{_short(found['gain'])} [{_short(low)}, {_short(high)}]"

    return cell


def _with_others(row: dict[str, Any]) -> str:
    return f"{_short(row['any']['gain'])} ({_short(row['any']['others'])})"


def _short(value: float) -> str:
    text = f"{value:.1f}" if abs(value) < 1000 else f"{value:.0e}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")


def _numbers(values: list[float], digits: int = 2) -> str:
    # Adding zero to a rounded number makes no zero negative.
    return ", ".join(f"{round(value, digits) + 0.0:.{digits}f}" for value in values).replace(
        "-", "−"
    )
