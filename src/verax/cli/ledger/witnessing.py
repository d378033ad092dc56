"""`verax ledger checkpoint | witness | prove | compare`: so that everybody sees the same book."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    Out,
    ledger_package,
    open_book,
    print_json,
    say,
)

Key = Annotated[Path, typer.Option(help="Your Ed25519 private key (PEM).")]
NewKey = Annotated[bool, typer.Option("--new-key", help="Create the key in that file first.")]
KeyName = Annotated[str, typer.Option(help="Your key's name, such as north.example/book.")]


def checkpoint(
    book: BookOption,
    key: Annotated[Path | None, typer.Option(help="Your Ed25519 private key (PEM).")] = None,
    name: KeyName = "operator",
    new_key: NewKey = False,
    add: Annotated[
        Path | None, typer.Option(help="Book this checkpoint, which witnesses have signed.")
    ] = None,
    out: Out = None,
    federation: Federation = None,
) -> None:
    """Sign the size and root of the book for members to keep; or book a witnessed one (--add).

    For example:

        verax ledger checkpoint book.db --key operator.pem --out may.note
    """
    ledger_package()
    from verax.ledger import notes
    from verax.ledger import witness as witnesses

    if add is not None:
        with open_book(book, federation) as (opened, which):
            receipt = opened.add_checkpoint(which, add.read_text(encoding="utf-8"))
        say(f"{add} is in the book (record {receipt.sequence})")
        return
    if key is None:
        raise ValueError("a checkpoint needs --key, the private key to sign it with")
    private = notes.new_key(key) if new_key else notes.load_key(key)
    note = witnesses.make_checkpoint(witnesses.read_log(book, federation), name, private)
    _write(out, str(note), f"{note.checkpoint.size} records in {{}}, signed by ")
    if out is not None:
        typer.echo(str(notes.public_key(private, name, notes.OPERATOR)))


def witness(
    source: Annotated[
        str, typer.Argument(help="A book, an export, or a proof made by `prove --since`.")
    ],
    key: Key,
    name: KeyName,
    seen: Annotated[
        Path, typer.Option(help="The last checkpoint that you signed; is created and replaced.")
    ],
    checkpoint: Annotated[
        Path | None, typer.Option(help="The checkpoint to sign, unless SOURCE is a proof.")
    ] = None,
    new_key: NewKey = False,
    out: Out = None,
    federation: Federation = None,
) -> None:
    """Sign a checkpoint as a witness, if it continues the last one that you signed.

    Whoever asks again for the same checkpoint gets the same signature, so that nobody can choose
    among several where signatures draw the rounds of spot checks.

    For example:

        verax ledger witness export.jsonl --checkpoint may.note --key me.pem --name north \
        --seen seen.note --out signed.note
    """
    ledger_package()
    from verax.files import write_text
    from verax.ledger import notes
    from verax.ledger import witness as witnesses

    private = notes.new_key(key) if new_key else notes.load_key(key)
    public = notes.public_key(private, name, notes.WITNESS)
    before = notes.Note.parse(seen.read_text(encoding="utf-8")) if seen.exists() else None
    evidence: Any
    if checkpoint is None:
        _, evidence, note = witnesses.read_growth(Path(source).read_text(encoding="utf-8"))
    else:
        note = notes.Note.parse(checkpoint.read_text(encoding="utf-8"))
        evidence = witnesses.read_log(source, federation)
    last = None if before is None else before.checkpoint
    again = before is not None and last == note.checkpoint and before.cosigned_at(public)
    signed = witnesses.witness(note, last, evidence, name, private, again or int(time.time()))
    write_text(seen, str(signed))
    _write(out, str(signed), f"{note.checkpoint.size} records, witnessed in {{}}, by ")
    if out is not None:
        typer.echo(str(public))


def prove(
    book: BookOption,
    checkpoint: Annotated[Path, typer.Option(help="The checkpoint that the proof leads to.")],
    record: Annotated[
        int | None, typer.Option(help="Prove that this record is in the book.")
    ] = None,
    since: Annotated[
        int | None, typer.Option(help="Prove that the book grew from its first N records.")
    ] = None,
    out: Out = None,
    federation: Federation = None,
) -> None:
    """Write a short proof (C2SP tlog-proof, or a request to a witness).

    For example:

        verax ledger prove book.db --checkpoint may.note --record 17
    """
    ledger_package()
    from verax.ledger import notes
    from verax.ledger import witness as witnesses

    note = notes.Note.parse(checkpoint.read_text(encoding="utf-8"))
    log = witnesses.read_log(book, federation)
    if not log.holds(note.checkpoint):
        raise ValueError(f"{checkpoint} is not a checkpoint of this book")
    size = note.checkpoint.size
    if (record is None) == (since is None):
        raise ValueError("give either --record or --since")
    if since is not None:
        if not 0 <= since <= size:
            raise ValueError(f"since is {since}, must be 0 … {size}")
        _write(out, witnesses.growth_proof(log, note, since), "the proof is in {}")
        return
    if record is None or not 1 <= record <= size:
        raise ValueError(f"record is {record}, must be 1 … {size}")
    with open_book(book, federation, read_only=True) as (opened, which):
        data = next(opened.records(which, after=record - 1)).data
    _write(out, witnesses.presence_proof(log, note, record, data), "the proof is in {}")


def compare(
    one: Annotated[str, typer.Argument(help="A book or an export.")],
    other: Annotated[str, typer.Argument(help="Another one, or a checkpoint.")],
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Find out whether two members see the same book; exit code 1 if they do not.

    For example:

        verax ledger compare mine.jsonl theirs.jsonl
    """
    ledger_package()
    from verax.ledger import notes
    from verax.ledger import witness as witnesses

    log = witnesses.read_log(one, federation)
    text = Path(other).read_bytes()[:6] if "://" not in other else b""
    if text == b"verax/":
        point = notes.Note.parse(Path(other).read_text(encoding="utf-8")).checkpoint
        differs = None if log.holds(point) else point.size
        sizes = [len(log.leaves), point.size]
    else:
        theirs = witnesses.read_log(other, federation)
        differs = witnesses.compare(log, theirs)
        sizes = [len(log.leaves), len(theirs.leaves)]
    if as_json:
        print_json({"same": differs is None, "differs": differs, "records": sizes})
    elif differs is None:
        typer.echo(f"the same book, as far as both go: {sizes[0]} and {sizes[1]} records")
    else:
        say(f"SPLIT VIEW: the books differ, at record {differs} or before")
    if differs is not None:
        raise typer.Exit(1)


def _write(out: Path | None, text: str, words: str) -> None:
    from verax.files import write_text

    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(words.format(out), nl=not words.endswith(" "))
