"""The harm rule beside the norm profile: who still gains by misreporting, in seven federations.

`record` computes the runs of the settings that are named (default: all) and keeps them in a folder;
`judge` sets weights and prices on some seeds, chooses multiples and combinations on others, and
judges them on yet others; `search` lets an evolution strategy look for better misreports. Results
are added to a JSON file, and `tables` prints them as Markdown (`docs/theory/harm.md`).

    python benchmarks/harm_rule.py record --folder RUNS
    python benchmarks/harm_rule.py judge --folder RUNS --json docs/theory/harm.json
    python benchmarks/harm_rule.py search --folder RUNS --json docs/theory/harm.json
    python benchmarks/harm_rule.py tables --json docs/theory/harm.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from harm.judge import CHOOSE, JUDGE, SET, Recorded, judge, pair_reportings, probes
from harm.runs import SETTINGS, Records, Tried, runs_of
from harm.search import search
from harm.tables import tables

from verax.audit.plan.deviations import DeviationPlan


def record(name: str, folder: Path) -> None:
    """Compute all runs of a setting and keep them in one file."""
    begin = time.perf_counter()
    runs = runs_of(SETTINGS[name])
    who = range(runs.task.clients)
    grid = [Tried((c,), d) for c in who for d in DeviationPlan().reportings_tried(runs.blocks)]
    small = [Tried((c,), d) for c in who for d in probes(runs.blocks)]
    both = [
        Tried(pair, d)
        for pair in itertools.combinations(who, 2)
        for d in pair_reportings(runs.blocks)
    ]
    kept: dict[str, Any] = {}
    for what, tried, seeds in (
        ("honest", None, (*SET, *CHOOSE, *JUDGE)),
        ("probes", small, SET),
        ("grid", grid, (*CHOOSE, *JUDGE)),
        ("pairs", both, JUDGE),
    ):
        each = [runs.honest(seed) if tried is None else runs.run(seed, tried) for seed in seeds]
        for field in Records._fields:
            values = np.stack([np.asarray(getattr(one, field)) for one in each])
            kept[f"{what}.{field}"] = values.astype(np.float32)
        print(f"{name}: {what} after {time.perf_counter() - begin:.0f} s", flush=True)
    np.savez(folder / f"{name}.npz", seconds=time.perf_counter() - begin, **kept)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("record", "judge", "search", "tables"))
    parser.add_argument("settings", nargs="*", help=f"of {', '.join(SETTINGS)}; default: all")
    parser.add_argument("--folder", type=Path, default=Path("harm-runs"), help="of the runs")
    parser.add_argument("--json", type=Path, default=Path("harm.json"), help="of the results")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = json.loads(given.json.read_text()) if given.json.exists() else {}
    if given.what == "tables":
        print(tables(results))
        return
    for name in given.settings or SETTINGS:
        begin = time.perf_counter()
        if given.what == "record":
            record(name, given.folder)
            continue
        if given.what == "judge":
            results[name] = results.get(name, {}) | judge(Recorded(name, given.folder))
        else:
            found = search(Recorded(name, given.folder), runs_of(SETTINGS[name]))
            seconds = round(time.perf_counter() - begin)
            results[name] = results.get(name, {}) | {"search": found | {"seconds": seconds}}
        given.json.write_text(json.dumps(results) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
