"""`verax doctor`: what this machine has, what it lacks, and the command that brings it."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: The oldest Python that Verax runs on.
_OLDEST = (3, 11)

#: What each extra is for, and the packages that it installs.
_EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "console": ("pages for operators and members", ("starlette", "uvicorn", "sqlalchemy")),
    "flower": ("audit, charge and rehearse Flower apps", ("flwr", "ray", "sqlalchemy")),
    "ledger": ("keep and read books", ("sqlalchemy", "cryptography")),
    "postgres": ("keep books on PostgreSQL", ("psycopg",)),
    "ray": ("audit on a Ray cluster", ("ray",)),
    "text": ("encode texts for Sent140", ("onnxruntime", "safetensors", "tokenizers")),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        name: what it is.
        purpose: what Verax uses it for.
        version: which one is there, or None if it is missing.
        remedy: the command that brings it; empty if it is there.
        required: whether nothing works without it.
    """

    name: str
    purpose: str
    version: str | None
    remedy: str = ""
    required: bool = False


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what this machine has, what it lacks, and the command that brings it.

    The exit code is 0 if `verax audit` can run, 1 if something is missing that it needs.

    For example:

        verax doctor
        verax doctor --json
    """
    findings = list(examine())
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _show(findings)
    if any(finding.required and finding.version is None for finding in findings):
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Look at Python, JAX, the extras, PyTorch and the programs that tests use."""
    enough = sys.version_info[:2] >= _OLDEST
    oldest = ".".join(map(str, _OLDEST))
    yield Finding(
        "Python",
        "everything",
        platform.python_version() if enough else None,
        "" if enough else f"install Python {oldest} or newer; this is {platform.python_version()}",
        required=True,
    )
    device = _jax_device()
    yield Finding(
        "JAX",
        "simulated audits",
        device,
        "" if device else "pip install 'jax>=0.6'",
        required=True,
    )
    for extra, (purpose, packages) in _EXTRAS.items():
        yield _packages(
            f"extra {extra}", purpose, packages, f"pip install '.[{extra}]'  (in a clone)"
        )
    yield _packages("PyTorch", "apps that use it", ("torch",), "pip install torch")
    for program, purpose, package in (
        ("psql", "look at books on PostgreSQL", "postgresql-client"),
        ("chromium", "browser tests", "chromium chromium-driver"),
    ):
        path = shutil.which(program)
        yield Finding(
            program, purpose, path, "" if path else f"apt-get install {package}  (as root)"
        )


def _jax_device() -> str | None:
    """JAX's version and what it computes on, or None if it cannot be imported."""
    try:
        import jax
    except ImportError:
        return None
    devices = jax.devices()
    return f"{jax.__version__} on {len(devices)} {devices[0].platform} device(s)"


def _packages(name: str, purpose: str, packages: tuple[str, ...], remedy: str) -> Finding:
    """Whether all of some packages are installed; metadata are read, nothing is imported."""
    try:
        there = ", ".join(f"{package} {version(package)}" for package in packages)
    except PackageNotFoundError:
        return Finding(name, purpose, None, remedy)
    return Finding(name, purpose, there)


def _show(findings: list[Finding]) -> None:
    table = Table("", "what", "for", "version, or the command that brings it", box=None)
    for one in findings:
        mark = "✓" if one.version else "✗" if one.required else "–"
        # As plain text: rich would read the brackets of `.[flower]` as markup.
        table.add_row(*map(Text, (mark, one.name, one.purpose, one.version or one.remedy)))
    Console().print(table)
