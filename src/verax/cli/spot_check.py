"""`verax commit | spot-check | keep-drawn`: what a member commits to, and whether it kept to it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verax.cli.ledger.shared import AsJson, Federation, Out, open_book, print_json, say

if TYPE_CHECKING:
    from verax.mechanism import Terms
    from verax.spot.check import MemberFiles

AppFolder = Annotated[Path, typer.Option(help="The folder of the member's Flower app.")]
Data = Annotated[
    str,
    typer.Option(
        help="The member's samples: a file, a folder, or a function of the app (module:name) that "
        "is called with the context and returns arrays or a data set."
    ),
]
RunConfig = Annotated[str, typer.Option(help="Overrides of the run, as `flwr run` takes them.")]
NodeConfig = Annotated[
    str, typer.Option(help="The node's configuration, as `flower-supernode` takes it.")
]


def commit(
    app: AppFolder,
    data: Data,
    run_config: RunConfig = "",
    node_config: NodeConfig = "",
    terms: Annotated[
        Path | None,
        typer.Option(help="The terms, whose spot.tolerance the error of recomputation must meet."),
    ] = None,
    book: Annotated[
        str, typer.Option(help="Instead of --terms: the book with them, a file or a URL.")
    ] = "",
    federation: Federation = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    r"""Test whether an app's updates can be recomputed, and commit to its data and itself.

    The exit code is 1 if the app cannot be recomputed within the tolerance of the terms, or if its
    samples are others each time they are read: then spot checks would fine an honest member.

    For example:

        verax commit --app my-app --data my_app.data:samples --node-config "partition-id=0" \
        --terms terms.toml --out north.json
    """
    _need_flower()
    from verax.files import write_text
    from verax.spot.commitment import commit as commit_to
    from verax.spot.recompute import LARGEST_ERROR, UnrepeatableError, self_test

    agreed = _agreed(terms, book, federation)
    spot, arrays = (None, None) if agreed is None else (agreed.spot, agreed.arrays)
    limit = LARGEST_ERROR if spot is None else spot.tolerance
    files = _files(app, data, Path(), run_config, node_config)
    try:
        with _quietly():
            error = self_test(files.app, files.node_config, arrays, limit)
            made = commit_to(files.app, files.data, files.node_config)
    except UnrepeatableError as refused:
        say(f"NOT REPRODUCIBLE: {refused}")
        raise typer.Exit(1) from None
    if out is not None:
        write_text(out, made.to_json())
    if as_json:
        print_json({**asdict(made), "relative_error": error})
        return
    exactly = "exactly" if not error else f"with a relative error of {error:.2g}"
    say(f"an update can be recomputed on this machine {exactly}")
    if error and spot is None:
        say(f"the terms need a spot.tolerance of more than {error:.2g}; --terms tests it")
    say(f"data {made.data}\napp  {made.app}")


def spot_check(
    book: Annotated[str, typer.Option(help="The book with the draw: a file or a URL.")],
    member: Annotated[str, typer.Option(help="The member's id or label.")],
    run: Annotated[str, typer.Option(help="Which training run.")],
    key: Annotated[Path, typer.Option(help="The auditor's Ed25519 private key (PEM).")],
    out: Annotated[Path, typer.Option(help="The file for the signed report.")],
    app: Annotated[Path | None, typer.Option(help="The folder of the member's Flower app.")] = None,
    data: Annotated[
        str, typer.Option(help="The member's samples, as in `verax commit --data`.")
    ] = "",
    kept: Annotated[
        Path | None, typer.Option(help="The folder of the rounds that the member's mod kept.")
    ] = None,
    run_config: RunConfig = "",
    node_config: NodeConfig = "",
    refused: Annotated[
        str, typer.Option(help="Sign that the member refuses or cannot be checked, and why.")
    ] = "",
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    r"""Recompute a member's drawn rounds where its data are, and sign a report.

    Needs --app, --data and --kept, or --refused. The exit code is 1 if something was found that
    the terms fine. `verax ledger fine` books the report.

    For example:

        verax spot-check --book book.db --run spring --member north --app my-app \
        --data my_app.data:samples --kept kept --key auditor.pem --out north-report.json
    """
    _need_flower()
    from verax.files import write_text
    from verax.ledger import SpotReport
    from verax.ledger.notes import load_key
    from verax.ledger.spot_booking import draft_fine, sign_report
    from verax.spot.check import check_member

    seconds: dict[int, float] = {}
    private = load_key(key)
    with open_book(book, federation, read_only=True) as (opened, name):
        if refused:
            state = opened.state(name)
            own = state.member_account(member).member
            report = sign_report(state, SpotReport(name, run, own, "refused", refused), private)
        elif app is None or kept is None or not data:
            raise ValueError("a check needs --app, --data and --kept, or --refused with a reason")
        else:
            files = _files(app, data, kept, run_config, node_config)
            with _quietly():
                report = check_member(
                    opened, name, run, member, files, private, seconds.__setitem__
                )
        levy = draft_fine(opened.state(name), report)
    write_text(out, json.dumps(asdict(report), ensure_ascii=False) + "\n")
    if as_json:
        print_json({**asdict(report), "fine": levy, "seconds": seconds})
    else:
        for round_, distance, norm in report.found:
            share = (float(distance) / float(norm)) ** 0.5 if float(norm) else float(distance)
            say(f"round {round_}: ‖m − g‖² = {float(distance):.4g}, {share:.2%} of the update")
        if report.reason:
            say(f"{report.outcome}: {report.reason}")
        say(f"the fine by the terms is {levy:.6g}; the signed report is {out}")
    if levy:
        raise typer.Exit(1)


def keep_drawn(
    book: Annotated[str, typer.Option(help="The book with the draw: a file or a URL.")],
    member: Annotated[str, typer.Option(help="The member's id or label.")],
    run: Annotated[str, typer.Option(help="Which training run.")],
    kept: Annotated[Path, typer.Option(help="The folder of the rounds that the mod kept.")],
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Remove the kept rounds of a run that were not drawn: no check needs them any more.

    For example:

        verax keep-drawn --book book.db --run spring --member north --kept kept
    """
    _need_flower()
    from verax.flower.prescribing import remove_kept
    from verax.ledger.spot_booking import drawn_run

    with open_book(book, federation, read_only=True) as (opened, name):
        state = opened.state(name)
        account = state.member_account(member)
        drawn = sorted(set(drawn_run(state, run).drawn.get(account.number, ())))
    removed = remove_kept(kept, account.member, run, drawn)
    if as_json:
        print_json({"removed": len(removed), "drawn": drawn})
    else:
        say(f"{len(removed)} rounds removed; drawn: {', '.join(map(str, drawn)) or 'none'}")


def _agreed(terms: Path | None, book: str, federation: str | None) -> Terms | None:
    """The terms of a file or of a book, if one is given; they must have spot checks."""
    from verax.mechanism import Terms

    if terms is not None and book:
        raise ValueError("give either --terms or --book")
    if terms is not None:
        found = Terms.load(terms)
    elif book:
        with open_book(book, federation, read_only=True) as (opened, name):
            found = opened.terms(name)
    else:
        return None
    if found.spot is None:
        raise ValueError(f"the terms of {terms or book} have no [spot]: nothing will be checked")
    return found


def _files(app: Path, data: str, kept: Path, run_config: str, node_config: str) -> MemberFiles:
    from flwr.common.config import parse_config_args

    from verax.apps.app import load_app
    from verax.plugins import is_reference
    from verax.spot.check import MemberFiles

    try:
        node: dict[str, Any] = parse_config_args([node_config] if node_config else None)
    except Exception as error:  # Flower raises an exception of its command line, or ValueError
        words = getattr(error, "message", error)
        raise ValueError(f"node-config {node_config!r} cannot be read: {words}") from None
    # The app is called in another folder, so that relative paths would lead elsewhere.
    source = data if is_reference(data) else str(Path(data).resolve())
    return MemberFiles(load_app(app, run_config), source, kept.resolve(), node)


@contextmanager
def _quietly() -> Generator[None]:
    """What the app writes and prints goes to a folder that is removed."""
    from verax.apps.scratch import in_scratch

    with (
        tempfile.TemporaryDirectory(prefix="verax-check-") as folder,
        in_scratch(Path(folder), Path(folder) / "log"),
    ):
        yield


def _need_flower() -> None:
    if find_spec("flwr") is None:
        raise ValueError(
            "spot checks need flwr, which is not installed: "
            "pip install '.[flower]' in a clone of Verax"
        )
