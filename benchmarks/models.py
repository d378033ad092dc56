"""The paper's three models: Verax's simulator beside PyTorch, and both beside a matrix product.

FedSGD with 3 clients, one thread, rounds per CPU-second on the same work (`peers/paper_work.py`):
CNN and head with batches of 32, LSTM with 16. PyTorch adds the clients' gradients up and keeps
nothing; Verax also records losses and the Gram matrix of the clients' messages. Turns alternate,
the median of each is taken; compiling and other setting up is apart. The limit is a large float32
matrix product in the same turns, the arithmetic that of the models' own matrix products.

    python benchmarks/models.py [--seconds 5] [--turns 3] [--models cnn lstm head] [--runs 1]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from compare import LIMIT
from environments import NotAvailable, environment

PEERS = Path(__file__).resolve().parent / "peers"
sys.path.insert(0, str(PEERS))

from paper_work import EXPERIMENTS  # noqa: E402

#: Federations computed at once, where that was fastest.
RUNS = {"cnn": 1, "lstm": 1, "head": 1}


def line(command: list[str]) -> dict:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    lines = [text for text in done.stdout.splitlines() if text.startswith("{")]
    if done.returncode or not lines:
        raise NotAvailable((done.stderr.strip().splitlines() or ["no message"])[-1])
    found = json.loads(lines[-1])
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
    if hasattr(os, "sched_setaffinity"):  # inherited by all that is started here
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print("FedSGD, 3 clients, one thread, rounds per CPU-second; share of a large matrix product")
    print(
        f"{'model':6}{'GFLOP':>8}{'limit':>8}{'runs':>6}{'Verax':>9}{'share':>7}{'MB':>7}"
        f"{'set-up s':>10}{'PyTorch':>9}{'share':>7}{'MB':>7}{'ratio':>7}"
    )
    for name in options.models:
        work, runs = EXPERIMENTS[name], options.runs or RUNS[name]
        ours: list[dict] = []
        theirs: list[dict] = []
        limits: list[float] = []
        given = ["--model", name, "--seconds", str(options.seconds)]
        why = ""
        for _ in range(options.turns):
            limits.append(float(line_of_limit()))
            script = str(PEERS / "paper_verax.py")
            ours.append(line([sys.executable, script, *given, "--runs", str(runs)]))
            try:
                python = str(environment("plain_torch"))
                theirs.append(line([python, str(PEERS / "paper_torch.py"), *given]))
            except NotAvailable as reason:
                why = f"  PyTorch not measured, because {reason}"
        limit = max(limits)
        rate = statistics.median(turn["rate"] for turn in ours)
        text = (
            f"{name:6}{work.flops / 1e9:8.2f}{limit / 1e9:8.1f}{runs:6}{rate:9.2f}"
            f"{rate * work.flops / limit:7.0%}{max(turn['memory_mb'] for turn in ours):7.0f}"
            f"{max(turn['setup'] for turn in ours):10.1f}"
        )
        if theirs:
            other = statistics.median(turn["rate"] for turn in theirs)
            text += (
                f"{other:9.2f}{other * work.flops / limit:7.0%}"
                f"{max(turn['memory_mb'] for turn in theirs):7.0f}{rate / other:7.2f}"
            )
        print(text + why, flush=True)


def line_of_limit() -> str:
    return subprocess.run([sys.executable, "-c", LIMIT], capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
