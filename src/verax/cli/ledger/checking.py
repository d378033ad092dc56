"""`verax ledger verify | export | import | checkpoint`: books that leave the house."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    Out,
    counting,
    ledger_package,
    open_book,
    print_json,
    safe,
)

if TYPE_CHECKING:
    pass

__all__ = ["checkpoint", "export_", "import_", "verify"]


def verify(
    book: BookOption,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="An earlier checkpoint to hold the book against.")
    ] = None,
    signer: Annotated[
        str | None, typer.Option(help="The public key that checkpoints must be signed with.")
    ] = None,
    mine: Annotated[
        Path | None,
        typer.Option(help='Your own norms, JSON Lines of {"run": …, "round": …, "norm": …}.'),
    ] = None,
    member: Annotated[str | None, typer.Option(help="Who you are, for --mine.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Check a book or an export against everything that could be wrong; exit code 1 if anything is.

    For example:

        verax ledger verify export.jsonl --checkpoint may.json
    """
    ledger_package()
    from verax.ledger import verify as verifier

    names = [federation] if federation is not None else verifier.federations(book)
    if not names:
        raise ValueError(f"{book} holds no federation; `verax ledger init` founds one")
    failed = False
    for name in names:
        with counting("verifying") as step:
            found = verifier.verify(
                book,
                federation=name or None,
                checkpoints=checkpoint or (),
                signer=signer,
                mine=mine,
                member=member,
                progress=step,
            )
        failed = failed or not found.ok
        if as_json:
            print_json(
                {
                    "federation": found.federation,
                    "ok": found.ok,
                    "records": found.sequence,
                    "rounds": found.rounds,
                    "entries": found.entries,
                    "hash": found.hash,
                    "checkpoints": found.checkpoints,
                    "balances": found.balances,
                    "wrong": found.wrong,
                    "findings": [vars(each) for each in found.findings],
                }
            )
            continue
        for each in found.findings:
            typer.echo(safe(f"WRONG ({each.kind}): {each.message}"))
        verdict = "nothing wrong found" if found.ok else f"{found.wrong} findings"
        typer.echo(
            safe(
                f"{found.federation}: {verdict} in {found.sequence} records, {found.rounds} "
                f"rounds, {found.entries} entries; last hash {found.hash}"
            )
        )
    if failed:
        raise typer.Exit(1)


def export_(
    book: BookOption, out: Out = None, federation: Federation = None, as_json: AsJson = False
) -> None:
    """Write a federation's book to one file that `verify` and `import` read.

    For example:

        verax ledger export book.db --out clinics.jsonl
    """
    ledger_package()
    from verax.ledger.export import default_name, export_book

    with open_book(book, federation, read_only=True) as (opened, name), counting("writing") as step:
        path = out or Path(default_name(name, ".jsonl"))
        count = export_book(opened, name, path, step)
    if as_json:
        print_json({"federation": name, "file": str(path), "records": count})
    else:
        typer.echo(f"{count} records of {name} in {path}")


def import_(
    book: BookOption,
    file: Annotated[Path, typer.Argument(help="An export.")],
    as_json: AsJson = False,
) -> None:
    """Verify an export and take it into a book, or add what is new in it.

    For example:

        verax ledger import copy.db clinics.jsonl
    """
    ledger = ledger_package()
    from verax.ledger.export import import_book

    with ledger.Book.create(book) as opened, counting("importing") as step:
        name, new = import_book(opened, file, step)
    if as_json:
        print_json({"federation": name, "new": new})
    else:
        typer.echo(f"{new} new records of {name}")


def checkpoint(
    book: BookOption,
    out: Out = None,
    key: Annotated[
        Path | None, typer.Option(help="Ed25519 private key (PEM) to sign with.")
    ] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make the key of --key first.")
    ] = False,
    federation: Federation = None,
) -> None:
    """Write down where the chain ends now, for members to keep; signed if there is a key.

    For example:

        verax ledger checkpoint book.db --out may.json --key operator.pem
    """
    ledger_package()
    from verax.files import write_text
    from verax.ledger import checkpoint as made

    if new_key and key is None:
        raise ValueError("--new-key needs --key, the file to make")
    private = None
    if key is not None:
        private = made.new_key(key) if new_key else made.load_key(key)
    with open_book(book, federation, read_only=True) as (opened, name):
        content = made.make_checkpoint(opened, name, private)
    text = json.dumps(content, ensure_ascii=False, sort_keys=True) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"record {content['sequence']} of {name} in {out}")
