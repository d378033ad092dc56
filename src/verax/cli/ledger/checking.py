"""`verax ledger verify | export | import | checkpoint`: checking books and exchanging them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    Out,
    Rules,
    counting,
    ledger_package,
    open_book,
    print_json,
    safe,
)


def verify(
    book: BookOption,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="An earlier checkpoint to compare the book with.")
    ] = None,
    signer: Annotated[
        str | None, typer.Option(help="The public key that checkpoints must be signed with.")
    ] = None,
    mine: Annotated[
        Path | None,
        typer.Option(help='Your own norms, JSON Lines of {"run": …, "round": …, "norm": …}.'),
    ] = None,
    member: Annotated[str | None, typer.Option(help="Who you are, for --mine.")] = None,
    rule: Rules = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Check a book or an export completely; exit code 1 if anything is wrong.

    Payments by a rule that is not built in are recomputed only with --rule; without it, everything
    else is checked, and a warning says so.

    For example:

        verax ledger verify export.jsonl --checkpoint may.json
    """
    ledger_package()
    from verax.ledger import verify as verifier
    from verax.ledger.own_rules import measures_of

    rules = measures_of(rule or ())
    names = [federation] if federation is not None else verifier.federations(book)
    if not names:
        raise ValueError(f"{book} holds no federation; `verax ledger create` creates one")
    failed = False
    for name in names:
        with counting("verifying") as step:
            result = verifier.verify(
                book,
                federation=name or None,
                checkpoints=checkpoint or (),
                signer=signer,
                mine=mine,
                member=member,
                rules=rules,
                progress=step,
            )
        failed = failed or not result.ok
        if as_json:
            print_json(_as_json(result))
        else:
            _print_result(result)
    if failed:
        raise typer.Exit(1)


def _as_json(result: Any) -> dict[str, Any]:
    return {
        "federation": result.federation,
        "ok": result.ok,
        "records": result.sequence,
        "rounds": result.rounds,
        "entries": result.entries,
        "hash": result.hash,
        "checkpoints": result.checkpoints,
        "balances": result.balances,
        "wrong": result.wrong,
        "unchecked": result.unchecked,
        "findings": [vars(each) for each in result.findings],
    }


def _print_result(result: Any) -> None:
    for each in result.findings:
        word = "WARNING" if each.kind == "unchecked" else "WRONG"
        typer.echo(safe(f"{word} ({each.kind}): {each.message}"))
    verdict = "nothing wrong found" if result.ok else f"{result.wrong} findings"
    unchecked = ", ".join(result.unchecked)
    note = f"; payments by rule {unchecked} were not recomputed (--rule does)" if unchecked else ""
    typer.echo(
        safe(
            f"{result.federation}: {verdict} in {result.sequence} records, {result.rounds} "
            f"rounds, {result.entries} entries; last hash {result.hash}{note}"
        )
    )


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
    """Verify an export and import it into a book, or add the records that are new in it.

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
        bool, typer.Option("--new-key", help="Create the key in the file of --key first.")
    ] = False,
    federation: Federation = None,
) -> None:
    """Write the end of the chain to a file for members to keep; signed if there is a key.

    For example:

        verax ledger checkpoint book.db --out may.json --key operator.pem
    """
    ledger_package()
    from verax.files import write_text
    from verax.ledger import checkpoint as checkpoints

    if new_key and key is None:
        raise ValueError("--new-key needs --key, the file to create")
    private = None
    if key is not None:
        private = checkpoints.new_key(key) if new_key else checkpoints.load_key(key)
    with open_book(book, federation, read_only=True) as (opened, name):
        content = checkpoints.make_checkpoint(opened, name, private)
    text = json.dumps(content, ensure_ascii=False, sort_keys=True) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"record {content['sequence']} of {name} in {out}")
