"""Measure all that `docs/performance.md` says, in one sitting, and write that page anew.

    python benchmarks/everything.py              # about half an hour on two quiet cores
    python benchmarks/everything.py layer norms  # some sections, printed and not written

Sections run one after the other, so that none disturbs another. A section that fails says so on the
page, and the command exits with 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page import table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
ROWS = (
    "softmax:fedsgd:3",
    "mlp:fedsgd:3",
    "mlp:fedavg:3",
    "cnn:fedsgd:3",
    "mlp:fedsgd:100",
)

#: What the page's first sentence compares, and how peers are called there.
LEADING = "mlp:fedavg:3"
PEERS = {
    "plain_torch": "a plain PyTorch loop",
    "pfl": "pfl",
    "fedjax": "FedJAX",
    "flower": "Flower's simulation",
}


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Attributes:
        name: on the command line.
        title: on the page.
        words: what is measured, and how.
        measure: given a folder for numbers, the text to show.
    """

    name: str
    title: str
    words: str
    measure: Callable[[Path], str]


def script(name: str, *arguments: str, numbers: bool = False, plain: bool = False) -> Any:
    """Run another benchmark; what it prints.

    Args:
        name: of the file.
        arguments: on its command line.
        numbers: whether it writes its numbers to a file of its name, too.
        plain: whether its tables are made for a terminal.
    """

    def measure(folder: Path) -> str:
        command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments]
        if numbers:
            command += ["--json", str(folder / f"{name}.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise RuntimeError(lines[-1])
        text = done.stdout.strip()
        return f"```text\n{text}\n```" if plain else text

    return measure


def cold_start(_folder: Path) -> str:
    """`make audit` in a new clone, without and with the packages in a cache."""
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        packages = Path(home) / "packages"
        for name in ("no package cache", "packages in a cache"):
            clone = Path(home) / name.replace(" ", "-")
            kept = {
                "PIP_CACHE_DIR": str(packages / "pip"),
                "UV_CACHE_DIR": str(packages / "uv"),
                "VERAX_CACHE": str(clone / "compiled"),
            }
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
            begin = time.perf_counter()
            spent: list[float] = []
            for target in (".venv/.ready", "audit"):
                subprocess.run(
                    ["make", "--no-print-directory", target],
                    check=True,
                    capture_output=True,
                    cwd=clone,
                    env=os.environ | kept,
                )
                spent.append(time.perf_counter() - begin)
            rows.append([name, f"{spent[0]:.0f}", f"{spent[1] - spent[0]:.0f}", f"{spent[1]:.0f}"])
            shutil.rmtree(clone)
    return table(["`make audit` in a new clone", "set-up, s", "audit, s", "together, s"], rows)


SECTIONS = (
    Section(
        "peers",
        "Beside other simulators",
        "Rounds per CPU-second of the whole process, with all of its threads and helpers; set-up "
        "and compiling apart; one turn each on one core (Flower and its Ray daemons on two). All "
        "train the same model on the same data (`benchmarks/peers/work.py`). Verax alone also "
        "measures every member's update, its norm, its inner products and its loss. Ratios below "
        "1.2 are no ranking: runs of the same program differ by a tenth. Products that stay in the "
        "processor's cache are faster than the large one, so that shares may exceed 100 %. More "
        "rows: `python benchmarks/compare.py --all` (hours).",
        script("compare", "--turns", "1", "--rows", *ROWS, numbers=True),
    ),
    Section(
        "models",
        "The paper's three models",
        "FedSGD with three members, rounds per CPU-second beside three ways of writing PyTorch's "
        "loop, and each as a share of a large matrix product (`benchmarks/models.py`). Verax "
        "computes the CNN's second layer by Winograd's algorithm, which needs a third of the "
        "multiplications that are counted.",
        script("models", "--turns", "1", "--seconds", "4", plain=True),
    ),
    Section(
        "growth",
        "How cost grows",
        "Each row is a process of its own on one core; times are CPU time without compiling, "
        "memory is the process's peak. Beyond 64 members, and where all messages together are "
        "more than 67 million numbers, a round is *streamed*: members are computed chunk by "
        "chunk. The parts of a round are compiled one by one and cost more so than in the whole.",
        script("scaling", "--quick", numbers=True),
    ),
    Section(
        "audit",
        "An audit beside its arithmetic",
        "CPU time of the default audit as a user starts it, and of its training rounds alone.",
        script("audit_cost", plain=True),
    ),
    Section(
        "app",
        "An audit of a Flower app",
        "The PyTorch app of the tests; how much CPU time is spent outside of it.",
        script("app_audit", plain=True),
    ),
    Section(
        "layer",
        "The payment layer",
        "What `PaidStrategy` adds to a round of FedAvg with 10 members and 10 million parameters, "
        "beside the round's own work on the server.",
        script("flower_layer"),
    ),
    Section(
        "norms",
        "Squared norms",
        "Beside the speed at which NumPy reads the same numbers.",
        script("norms", plain=True),
    ),
    Section(
        "ledger",
        "The ledger",
        "Posting rounds of 100 members beside bare inserts of the same rows by the driver in the "
        "same transactions; the speed and memory of `verify` on one core.",
        script("ledger", plain=True),
    ),
    Section(
        "cold",
        "Cold start",
        "Wall time on this machine, whose package index is near.",
        cold_start,
    ),
)


def leading_sentences(folder: Path) -> list[str]:
    """How Verax compares, what share of the limit it reaches, and how cost grows."""
    sentences: list[str] = []
    peers, growth = folder / "compare.json", folder / "scaling.json"
    if peers.exists():
        found = json.loads(peers.read_text())[LEADING]
        rates = found["rounds_per_cpu_second"]
        ratios = [
            f"{rates['verax'] / rates[peer]:.1f} × as fast as {words}"
            for peer, words in PEERS.items()
            if peer in rates
        ]
        if ratios:
            sentences.append(
                "A round of FedAvg of an MLP with three members (MNIST's size, 19 local steps) is "
                f"{_joined(ratios)}, in rounds per CPU-second."
            )
        if found["share_of_limit"]:
            sentences.append(
                f"It reaches {found['share_of_limit']:.0%} of the speed of a large matrix product "
                "on the same core."
            )
    if growth.exists():
        rows = json.loads(growth.read_text())
        clients, wide = rows["With clients"], rows["With parameters"]
        runs = rows["With runs in a batch"]
        sentences.append(
            f"From {clients[0]['clients']} to {clients[-1]['clients']} members a round of softmax "
            f"costs {_factor(clients)} times as much; from {wide[0]['parameters']:,} to "
            f"{wide[-1]['parameters']:,} parameters it costs {_factor(wide)} times as much; and "
            f"{runs[-1]['runs']} runs in a batch cost {_factor(runs)} times as much as one."
        )
    return sentences


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _factor(rows: list[dict[str, Any]]) -> str:
    return f"{rows[-1]['seconds'] / rows[0]['seconds']:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [section.name for section in SECTIONS]
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(names)}; default: all")
    wanted = parser.parse_args().sections
    if unknown := set(wanted) - set(names):
        parser.error(f"there is no section {sorted(unknown)[0]}; there are {', '.join(names)}")
    parts: list[str] = []
    failed = False
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for section in SECTIONS:
            if wanted and section.name not in wanted:
                continue
            print(f"{section.title} …", file=sys.stderr, flush=True)
            clock = time.perf_counter()
            try:
                text = section.measure(Path(folder))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                text, failed = f"Not measured: {error}", True
            seconds = time.perf_counter() - clock
            parts.append(
                f"## {section.title}\n\n{section.words}\n\n{text}\n\n*Measured in {seconds:.0f} s.*"
            )
            print(parts[-1], end="\n\n", flush=True)
        leading = leading_sentences(Path(folder))
    minutes = (time.perf_counter() - begin) / 60
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    page = [
        "# Speed and growth",
        "\n".join(f"- {sentence}" for sentence in leading),
        f"All of this page was measured by `make bench` in one sitting of {minutes:.0f} minutes on "
        f"{datetime.datetime.now(datetime.UTC):%d %B %Y}: {machine}. What was given up for plain "
        "code, and what it costs, is on a [page of its own](plain-code.md).",
        *parts,
    ]
    if not wanted:
        PAGE.write_text("\n\n".join(part for part in page if part) + "\n", encoding="utf-8")
        print(f"Written: {PAGE.relative_to(ROOT)} after {minutes:.0f} minutes", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
