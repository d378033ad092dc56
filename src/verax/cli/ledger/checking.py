"""`verax ledger verify | export | import | backup | rebuild`: checking books and copying them."""

from __future__ import annotations

from base64 import b64encode
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
    say,
)


def verify(
    book: BookOption,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="An earlier checkpoint to compare the book with.")
    ] = None,
    signer: Annotated[
        str | None,
        typer.Option(help="The operator's public key that checkpoints and receipts must have."),
    ] = None,
    witness: Annotated[
        list[str] | None, typer.Option(help="A witness's public key that they must have, too.")
    ] = None,
    mine: Annotated[
        Path | None,
        typer.Option(help="Your own evidence, JSON Lines: norms, statements and receipts."),
    ] = None,
    member: Annotated[str | None, typer.Option(help="Who you are, for --mine.")] = None,
    rule: Rules = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Check a book or an export completely; exit code 1 if anything is wrong.

    Payments by a rule that is not built in are recomputed only with --rule; without it, everything
    else is checked, and a warning says so. What somebody decided on (deposits, corrections,
    settlements, new terms and keys, skipped rounds) is always listed: no rule can check it, only
    you. With --mine, what your statements and receipts prove is listed, too.

    For example:

        verax ledger verify export.jsonl --checkpoint may.note --mine north.jsonl --member north
    """
    ledger_package()
    from verax import verifier
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
                witnesses=witness or (),
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
        "root": b64encode(result.root).decode(),
        "checkpoints": result.checkpoints,
        "balances": result.balances,
        "wrong": result.wrong,
        "unchecked": result.unchecked,
        "proven": result.proven,
        "decisions": [vars(each) for each in result.decisions],
        "findings": [vars(each) for each in result.findings],
    }


def _print_result(result: Any) -> None:
    for words in result.proven:
        say(f"PROVEN: {words}")
    for each in result.decisions:
        say(f"DECISION ({each.kind}): {each.message}")
    for each in result.findings:
        word = "WARNING" if each.kind == "unchecked" else "WRONG"
        say(f"{word} ({each.kind}): {each.message}")
    verdict = "nothing wrong found" if result.ok else f"{result.wrong} findings"
    unchecked = ", ".join(result.unchecked)
    note = f"; payments by rule {unchecked} were not recomputed (--rule does)" if unchecked else ""
    say(
        f"{result.federation}: {verdict} in {result.sequence} records, {result.rounds} "
        f"rounds, {result.entries} entries; last hash {result.hash}{note}"
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
        say(f"{count} records of {name} in {path}")


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
        say(f"{new} new records of {name}")


def backup(
    book: BookOption,
    out: Annotated[Path, typer.Argument(help="A new file; for PostgreSQL a new folder.")],
) -> None:
    """Copy a book while it is in use; PostgreSQL's are written as exports.

    Copying the file of a SQLite book would lose what is only in its write-ahead log.

    For example:

        verax ledger backup book.db book-2026-05.db
    """
    ledger = ledger_package()
    from verax.ledger.export import backup_book

    with ledger.Book.open(book, read_only=True) as opened:
        backup_book(opened, out)
    say(f"a backup of {book} is in {out}")


def rebuild(book: BookOption, federation: Federation = None) -> None:
    """Make the tables beside the records anew, if `verify` says that they differ.

    For example:

        verax ledger rebuild book.db
    """
    with open_book(book, federation) as (opened, name):
        opened.rebuild(name)
    say(f"entries and accounts of {name} were made anew from its records")
