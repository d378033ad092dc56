"""How time and memory grow: with clients, parameters, runs in a batch, and Ray's workers.

Every row is a process of its own on one core, so that its peak memory is its own. Compiling is
apart; a round is timed over several, in CPU time. `--json` also writes the rows to a file. `--ray`
measures the workers instead: one large plan, whole commands by the wall clock, so the machine must
be otherwise idle.

    python benchmarks/scaling.py [--quick] [--ray] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from page import table

#: To set the profile on and to judge it by: the audit that Ray's workers share out.
SEEDS = (2, 80)


def measure(model: str, clients: int, width: int, hidden: int, rounds: int) -> dict[str, Any]:
    """Seconds a round and peak memory of a federation, in this process."""
    import resource

    import numpy as np

    from verax.learning import Behaviour, Protocol, Seeds, Simulator, Task
    from verax.tasks.models import cnn, perceptron

    rng = np.random.default_rng(0)
    if model == "cnn":
        network, shape, classes, dtype = cnn(), (28, 28), 62, np.uint8
    else:
        sizes = (64, 10) if model == "softmax" else (64, hidden, 10)
        network, shape, classes, dtype = perceptron(sizes), (64,), 10, np.float32

    def samples() -> tuple[Any, Any]:
        x = rng.integers(0, 255, (32, *shape)) / (1 if dtype == np.uint8 else 255)
        return x.astype(dtype), rng.integers(0, classes, 32).astype(np.int32)

    data = [samples() for _ in range(clients)]
    tests = [(x[:1], y[:1]) for x, y in data[:1]] * clients
    task = Task("growth", data, tests, network.init, network.loss, fast_gradient=network.gradient)
    simulator = Simulator(task, Protocol(), 3 * rounds, rounds)
    runs = [Behaviour()] * width
    clocks = [time.process_time()]

    def after(state: Any, records: Any, length: int) -> None:
        np.asarray(records[-1].loss)
        clocks.append(time.process_time())

    simulator.run(Seeds.of(0), runs, after_segment=after)
    spent = min(b - a for a, b in itertools.pairwise(clocks[1:])) / rounds
    return {
        "model": model,
        "clients": clients,
        "runs": width,
        "parameters": simulator.parameters,
        "streamed": simulator.streams,
        "seconds": spent,
        "gradient": spent / clients / width,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def parts(rounds: int = 50) -> list[tuple[str, float]]:
    """Where a round's time goes on the embedded task: each part compiled by itself."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from verax.audit.run.record import write_table
    from verax.learning import Protocol, Seeds, Simulator
    from verax.learning.factored import dense
    from verax.learning.vectors import gram_matrix
    from verax.mechanism import SquaredNorm, pay
    from verax.tasks import digits

    task = digits()
    simulator = Simulator(task, Protocol(), rounds, rounds)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), simulator.start(Seeds.of(0)).params)
    index = simulator.sample_positions(Seeds.of(0), 0, 1)[0]
    batch = tuple(a[:, 0] for a in simulator.gather(jnp.arange(task.clients), index))
    gradient = task.gradient

    @jax.jit
    def gradients(p: Any) -> Any:
        return dense(jax.vmap(lambda x, y: gradient(p, (x, y))[1])(*batch))

    @jax.jit
    def scaled(g: Any) -> Any:
        return jax.tree.map(lambda leaf: 1.5 * leaf, g)

    @jax.jit
    def stepped(p: Any, g: Any) -> Any:
        return jax.tree.map(lambda q, u: q - 0.06 * u.mean(0), p, g)

    gram = jax.jit(gram_matrix)
    updates = gradients(params)

    def cpu(function: Any, *arguments: Any, times: int = 300) -> float:
        jax.block_until_ready(function(*arguments))
        begin = time.process_time()
        for _ in range(times):
            jax.block_until_ready(function(*arguments))
        return (time.process_time() - begin) / times

    norms = np.abs(np.random.default_rng(0).normal(size=(1000, 3)))
    import pyarrow as pa

    table = pa.table({"gram": pa.array(np.random.default_rng(0).normal(size=9 * 1000))})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rounds.parquet"
        writing = cpu(lambda: write_table(file, [table]), times=20) / 1000
    return [
        ("gradients of 3 clients", cpu(gradients, params)),
        ("reporting (a scale)", cpu(scaled, updates)),
        ("norms (Gram matrix)", cpu(gram, updates)),
        ("aggregate and step", cpu(stepped, params, updates)),
        ("pricing, from the record", cpu(lambda: pay(SquaredNorm(), norms, 1.0).amounts) / 1000),
        ("writing, Parquet", writing),
    ]


def in_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def row(model: str, clients: int, width: int = 1, hidden: int = 64, rounds: int = 5) -> Any:
    return in_process("--row", model, *map(str, (clients, width, hidden, rounds)))


def ray_rows(rounds: int) -> list[tuple[str, float]]:
    """Wall seconds of one plan: one process, one Ray worker, two; all compiled before."""
    verax = Path(sys.executable).with_name("verax")
    ways = {
        "one process": ["--workers", "1"],
        "Ray, 1 worker": ["--on", "ray", "--workers", "1"],
        "Ray, 2 workers": ["--on", "ray", "--workers", "2"],
    }
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"VERAX_CACHE": f"{folder}/cache"}

        def seconds(name: str, seeds: tuple[int, int], options: list[str]) -> float:
            command = [verax, "audit", "--rounds", str(rounds), "--out", f"{folder}/{name}"]
            command += ["--setting-seeds", str(seeds[0]), "--judging-seeds", str(seeds[1])]
            begin = time.perf_counter()
            subprocess.run([*command, *options], check=True, capture_output=True, env=environment)
            return time.perf_counter() - begin

        seconds("short", (1, 2), ways["one process"])
        return [(name, seconds(name, SEEDS, options)) for name, options in ways.items()]


def ray_table() -> None:
    waits = ray_rows(1000)
    rows = [[name, f"{s:.0f}", f"{waits[1][1] / s:.2f} ×"] for name, s in waits]
    print(table(["way", "s", "against one Ray worker"], rows))


def tables(quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Print all tables; the measured rows by what grows."""
    measured: dict[str, list[dict[str, Any]]] = {}

    def show(title: str, heads: list[str], rows: list[list[str]]) -> None:
        print(f"**{title}**\n\n{table(heads, rows)}", end="\n\n", flush=True)

    def add(title: str, rows: list[dict[str, Any]]) -> None:
        measured[title] = rows
        show(title, heads, [cells(one) for one in rows])

    def cells(found: dict[str, Any]) -> list[str]:
        return [
            found["model"],
            f"{found['clients']:,}",
            f"{found['parameters']:,}",
            str(found["runs"]),
            f"{found['seconds'] * 1e3:.3g}",
            f"{found['gradient'] * 1e3:.3g}",
            f"{found['memory'] / 2**30:.2f}",
            "yes" if found["streamed"] else "no",
        ]

    heads = [
        "model",
        "clients",
        "parameters",
        "runs",
        "ms a round",
        "ms a client",
        "GB",
        "streamed",
    ]
    many = (10, 100, 1000) if quick else (10, 100, 1000, 10_000)
    add("With clients", [row("softmax", n) for n in many])
    large = (10, 100) if quick else (10, 100, 1000)
    add("With clients, CNN", [row("cnn", n, rounds=1) for n in large])
    wide = (133, 1_330, 13_300, 133_000)
    add("With parameters", [row("mlp", 3, hidden=h) for h in wide[: 3 + (not quick)]])
    add("With runs in a batch", [row("mlp", 3, w, 64, 50) for w in (1, 2, 4, 8, 16)])
    spent: list[list[Any]] = in_process("--parts")["parts"]
    whole = sum(seconds for _, seconds in spent)
    show(
        "Where a round's time goes (digits, each part alone)",
        ["part", "µs", "share"],
        [[name, f"{s * 1e6:.3g}", f"{s / whole:.0%}"] for name, s in spent],
    )
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--ray", action="store_true", help="Ray's workers instead")
    parser.add_argument("--row", nargs=5)
    parser.add_argument("--parts", action="store_true")
    options = parser.parse_args()
    if (options.row or options.parts) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.row:
        model, *numbers = options.row
        print(json.dumps(measure(model, *map(int, numbers))))
        return
    if options.parts:
        print(json.dumps({"parts": parts()}))
        return
    if options.ray:
        ray_table()
        return
    measured = tables(options.quick)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
