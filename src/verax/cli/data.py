"""`verax data inspect`: what a LEAF folder holds."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from verax.cli.bars import progress_bar

if TYPE_CHECKING:
    from verax.tasks.leaf import Leaf

app = typer.Typer(no_args_is_help=True, help="Data in LEAF's layout.")


@app.callback()
def _group() -> None: ...


@app.command("inspect")
def inspect(
    path: Annotated[Path, typer.Argument(help="LEAF's folder with train/ and test/.")],
    task: Annotated[
        str, typer.Option(help="femnist, shakespeare or sent140 (default: by the folder's name).")
    ] = "",
    figure: Annotated[
        Path | None, typer.Option(help="Where to draw the label skew (default: NAME-labels.png).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Users, samples per user, classes, and how labels differ between users.

    The first time the files are read in a stream and kept compact in the cache ($VERAX_CACHE).

    For example:

        verax data inspect leaf/data/femnist/data
    """
    from verax.tasks.leaf import load_leaf

    with progress_bar("reading", "bytes") as bar:
        leaf = load_leaf(path, task, progress=bar.advance)
    facts = _facts(leaf)
    drawn = figure or Path(f"{leaf.kind.name}-labels.png")
    _draw(leaf, drawn)
    if as_json:
        typer.echo(json.dumps({**facts, "figure": str(drawn)}, ensure_ascii=False))
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _words(value))
    table.add_row("figure", str(drawn))
    Console().print(table)


def _facts(leaf: Leaf) -> dict[str, Any]:
    facts: dict[str, Any] = {"data": leaf.kind.name, "users": len(leaf.users)}
    for name, part in (("training", leaf.train), ("test", leaf.test)):
        sizes = part.sizes
        facts[f"{name}_samples"] = int(sizes.sum())
        facts[f"{name}_samples_per_user"] = {
            "least": int(sizes.min()),
            "median": float(np.median(sizes)),
            "most": int(sizes.max()),
        }
    facts["classes"] = leaf.kind.classes
    facts["classes_present"] = len(np.unique(leaf.train.labels))
    shares = leaf.train.label_shares(leaf.kind.classes)
    whole = np.bincount(leaf.train.labels, minlength=leaf.kind.classes) / len(leaf.train.labels)
    facts["label_skew"] = float(np.abs(shares - whole).sum(axis=1).mean() / 2)
    facts["skipped"] = leaf.skipped
    facts["sha256"] = leaf.checksum
    return facts


def _words(value: Any) -> str:
    if isinstance(value, dict):
        pairs: list[str] = [f"{name} {number:g}" for name, number in value.items()]
        return ", ".join(pairs) or "nothing"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _draw(leaf: Leaf, path: Path) -> None:
    """How the labels of users lie, most to least common label, and how many samples users have."""
    from matplotlib.figure import Figure

    from verax.files import write_bytes

    shares = leaf.train.label_shares(leaf.kind.classes)
    labels = np.argsort(-shares.sum(axis=0))
    users = np.argsort(-shares[:, labels[0]], kind="stable")
    users = users[np.linspace(0, len(users) - 1, min(len(users), 400)).astype(int)]
    figure = Figure(figsize=(9.2, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    image = left.imshow(
        shares[np.ix_(users, labels)], aspect="auto", cmap="magma_r", interpolation="nearest"
    )
    left.set(
        xlabel="label, most common first",
        ylabel="user",
        title=f"{leaf.kind.name}: share of each label",
    )
    figure.colorbar(image, ax=left)
    most = int(leaf.train.sizes.max())
    # The axis begins at zero, so that small differences between users do not look large.
    counts, _, _ = right.hist(leaf.train.sizes, np.linspace(0, most + 1, 41), color="#0b6e99")
    right.set(xlabel="training samples of a user", ylabel="users")
    if np.max(counts) > 200:  # a logarithmic axis shows the few users with many samples
        right.set_yscale("log")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())
