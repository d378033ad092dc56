"""Rounds per CPU-second: Verax beside its peers, and beside the speed of a matrix product.

Each peer runs in an environment of its own (`environments.py`), single-threaded, on the same work
(`peers/work.py`). Turns alternate and the best of each is taken, so that a neighbour's noise hits
all alike. What could not be run is said with its reason. `--json` also writes the numbers of every
row to a file.

    python benchmarks/compare.py [--seconds 4] [--turns 2] [--rows mlp:fedsgd:3 …] [--all]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from alone import line_of
from environments import SCRIPTS, NotAvailable, environment
from page import table

PEERS = Path(__file__).resolve().parent / "peers"
SHORT = ["softmax:fedsgd:3", "mlp:fedsgd:3", "mlp:fedavg:3"]
ALL = [
    "softmax:fedsgd:3",
    *(f"{m}:{p}:{n}" for m in ("mlp", "cnn") for p in ("fedsgd", "fedavg") for n in (3, 100)),
]
HEADS = ["peer", "rounds per CPU-s", "Verax is", "rounds per s", "set-up s", "MB"]


def flops(model: str, protocol: str, clients: int) -> float | None:
    """Multiplications and additions of a round's matrix products: forward, and two backward.

    The first layer needs no gradient with respect to its input.
    """
    sizes = {"softmax": (64, 10), "mlp": (784, 128, 10)}.get(model)
    if sizes is None:
        return None
    per_batch = sum(
        2 * 32 * a * b * (2 if k == 0 else 3) for k, (a, b) in enumerate(itertools.pairwise(sizes))
    )
    return per_batch * clients * (19 if protocol == "fedavg" else 1)


def turn(peer: str, row: tuple[str, str, str], seconds: float) -> dict[str, Any]:
    """One turn of a peer: its line."""
    python = sys.executable if peer == "verax" else str(environment(peer))
    script = PEERS / "verax_peer.py" if peer == "verax" else SCRIPTS[peer]
    model, protocol, clients = row
    command = [python, str(script), "--model", model, "--protocol", protocol]
    # Ray's daemons want a core of their own; their CPU time counts all the same.
    return line_of(
        [*command, "--clients", clients, "--seconds", str(seconds)], one_core=peer != "flower"
    )


def heading(text: str) -> str:
    """A row's name on the page."""
    model, protocol, clients = text.split(":")
    return f"**{model}, {protocol}, {clients} clients**"


def compared(text: str, peers: list[str], turns: int, seconds: float) -> tuple[str, dict[str, Any]]:
    """A row of the comparison: in Markdown, and its numbers."""
    model, protocol, clients = text.split(":")
    best: dict[str, dict[str, Any]] = {}
    why: dict[str, str] = {}
    limit = 0.0
    for _ in range(turns):
        limit = max(limit, line_of([sys.executable, str(PEERS / "limit.py")]))
        for peer in peers:
            if peer in why:
                continue
            try:
                found = turn(
                    peer, (model, protocol, clients), seconds * (1 + 2 * (peer == "flower"))
                )
            except NotAvailable as reason:
                why[peer] = str(reason)
                continue
            known = best.get(peer, found)
            best[peer] = max(known, found, key=lambda line: line["rounds_per_cpu_second"])
    ours = best["verax"]["rounds_per_cpu_second"] if "verax" in best else float("nan")
    rows = [
        [
            f"{peer} {line['version']}",
            f"{line['rounds_per_cpu_second']:.4g}",
            "" if peer == "verax" else f"{ours / line['rounds_per_cpu_second']:.2f} ×",
            f"{line['rounds_per_second']:.4g}",
            f"{line['setup_seconds']:.0f}",
            f"{line['peak_rss_mb']:.0f}",
        ]
        for peer, line in best.items()
    ]
    words = [heading(text), table(HEADS, rows)]
    words += [f"{peer}: not measured, because {reason}" for peer, reason in why.items()]
    work = flops(model, protocol, int(clients))
    share = None
    if work is not None and "verax" in best:
        share = ours * work / limit
        words.append(f"Verax: {share:.0%} of a large matrix product ({limit / 1e9:.0f} GFLOP/s).")
    rates = {peer: line["rounds_per_cpu_second"] for peer, line in best.items()}
    return "\n\n".join(words), {"rounds_per_cpu_second": rates, "share_of_limit": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rows", nargs="+", default=SHORT)
    parser.add_argument("--all", action="store_true", help="every row; takes hours")
    parser.add_argument("--peers", nargs="+", default=["verax", *SCRIPTS])
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    options = parser.parse_args()
    numbers: dict[str, Any] = {}
    for text in ALL if options.all else options.rows:
        words, numbers[text] = compared(text, options.peers, options.turns, options.seconds)
        print(words, end="\n\n", flush=True)
        if options.json:
            options.json.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
