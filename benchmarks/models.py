"""The paper's three models: Verax's simulator beside PyTorch, and both beside a matrix product.

FedSGD with 3 clients, one thread, rounds per CPU-second on the same work (`peers/paper_work.py`):
CNN and head with batches of 32, LSTM with 16. PyTorch's loop is written three ways: `pooled` adds
the clients' gradients up and keeps nothing, `apart` takes each client's by itself and then steps
by them all, `recording` also keeps losses and the Gram matrix of the messages, as Verax does. Turns
alternate, the median of each is taken; compiling and other setting up is apart. The limit is a
large float32 matrix product in the same turns, the arithmetic that of the models' own matrix
products.

    python benchmarks/models.py [--seconds 5] [--turns 3] [--models cnn lstm head] [--runs 1]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from alone import line_of
from environments import NotAvailable, environment
from peers.paper_work import EXPERIMENTS

PEERS = Path(__file__).resolve().parent / "peers"

#: How PyTorch's loop is written; see `peers/paper_torch.py`.
LOOPS = ("pooled", "apart", "recording")
#: Federations computed at once, where that was fastest.
RUNS = {"cnn": 1, "lstm": 1, "head": 1}


def learned(command: list[str]) -> dict:
    """A peer's line, if its model has learned."""
    found = line_of(command)
    before, after = found["loss"]
    if not after < before:
        raise NotAvailable(f"its model did not learn: loss {before:.4f} before, {after:.4f} after")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=list(EXPERIMENTS), default=list(EXPERIMENTS))
    parser.add_argument("--runs", type=int, help="federations at once, for all models")
    options = parser.parse_args()
    print("FedSGD, 3 clients, one thread, rounds per CPU-second; share of a large matrix product")
    print(
        f"{'model':6}{'GFLOP':>8}{'limit':>8}{'runs':>6}{'Verax':>9}{'share':>7}{'MB':>7}"
        f"{'set-up s':>10}" + "".join(f"{loop:>11}{'share':>7}{'ratio':>7}" for loop in LOOPS)
    )
    for name in options.models:
        work, runs = EXPERIMENTS[name], options.runs or RUNS[name]
        ours: list[dict] = []
        theirs: dict[str, list[float]] = {loop: [] for loop in LOOPS}
        limits: list[float] = []
        given = ["--model", name, "--seconds", str(options.seconds)]
        why = ""
        for _ in range(options.turns):
            limits.append(line_of([sys.executable, str(PEERS / "limit.py")]))
            script = str(PEERS / "paper_verax.py")
            ours.append(learned([sys.executable, script, *given, "--runs", str(runs)]))
            try:
                python = str(environment("plain_torch"))
                for loop, rates in theirs.items():
                    script = str(PEERS / "paper_torch.py")
                    rates.append(learned([python, script, *given, "--loop", loop])["rate"])
            except NotAvailable as reason:
                why = f"  PyTorch not measured, because {reason}"
        limit = max(limits)
        rate = statistics.median(turn["rate"] for turn in ours)
        text = (
            f"{name:6}{work.flops / 1e9:8.2f}{limit / 1e9:8.1f}{runs:6}{rate:9.2f}"
            f"{rate * work.flops / limit:7.0%}{max(turn['memory_mb'] for turn in ours):7.0f}"
            f"{max(turn['setup'] for turn in ours):10.1f}"
        )
        for rates in theirs.values():
            if rates:
                other = statistics.median(rates)
                text += f"{other:11.2f}{other * work.flops / limit:7.0%}{rate / other:7.2f}"
        print(text + why, flush=True)


if __name__ == "__main__":
    main()
