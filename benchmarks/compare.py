"""Rounds per CPU-second: Verax beside its peers, and beside the speed of a matrix product.

Each peer runs in an environment of its own (`environments.py`), single-threaded, on the same work
(`peers/work.py`). Turns alternate and the best of each is taken, so that a neighbour's noise hits
all alike. What could not be run is said with its reason.

    python benchmarks/compare.py [--seconds 4] [--turns 2] [--rows softmax:fedsgd:3 mlp:fedsgd:3]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from environments import SCRIPTS, NotAvailable, environment

HERE = Path(__file__).resolve().parent
LIMIT = """
import os, time
os.environ.update({f"{p}_NUM_THREADS": "1" for p in ("OMP", "OPENBLAS", "MKL")})
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
a = np.random.default_rng(0).random((2048, 2048), dtype=np.float32)
best = 0.0
for _ in range(6):
    begin = time.process_time(); a @ a; spent = time.process_time() - begin
    best = max(best, 2 * 2048**3 / spent)
print(best)
"""


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


def measured(peer: str, row: tuple[str, str, str], seconds: float) -> dict[str, float] | str:
    """One turn of a peer: its line, or why there is none."""
    try:
        python = sys.executable if peer == "verax" else str(environment(peer))
    except NotAvailable as reason:
        return str(reason)
    script = HERE / "peers" / "verax_peer.py" if peer == "verax" else SCRIPTS[peer]
    model, protocol, clients = row
    command = [python, str(script), "--model", model, "--protocol", protocol]
    command += ["--clients", clients, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return (done.stderr.strip().splitlines() or ["no message"])[-1]
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument(
        "--rows", nargs="+", default=["softmax:fedsgd:3", "mlp:fedsgd:3", "mlp:fedavg:3"]
    )
    parser.add_argument("--peers", nargs="+", default=["plain_torch", "pfl", "flower", "fedjax"])
    options = parser.parse_args()
    for text in options.rows:
        model, protocol, clients = text.split(":")
        row = (model, protocol, clients)
        best: dict[str, float] = {}
        why: dict[str, str] = {}
        limit = 0.0
        for _ in range(options.turns):
            printed = subprocess.run([sys.executable, "-c", LIMIT], capture_output=True, text=True)
            limit = max(limit, float(printed.stdout))
            for peer in ("verax", *options.peers):
                found = measured(peer, row, options.seconds * (3 if peer == "flower" else 1))
                if isinstance(found, str):
                    why[peer] = found
                else:
                    rate = found["rounds_per_cpu_second"]
                    best[peer] = max(best.get(peer, 0.0), rate)
        print(f"\n{model}, {protocol}, {clients} clients: rounds per CPU-second")
        ours = best.get("verax")
        for peer, rate in best.items():
            ratio = "" if peer == "verax" or ours is None else f"   verax is {ours / rate:.1f} ×"
            print(f"  {peer:12} {rate:12.1f}{ratio}")
        for peer, reason in why.items():
            if peer not in best:
                print(f"  {peer:12} not measured, because {reason}")
        work = flops(model, protocol, int(clients))
        if ours is not None and work is not None:
            share = ours * work / limit
            print(
                f"  of a large matrix product ({limit / 1e9:.0f} GFLOP/s): {share:.0%}", flush=True
            )


if __name__ == "__main__":
    main()
