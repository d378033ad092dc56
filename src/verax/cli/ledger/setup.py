"""`verax ledger create | key | join | leave | terms | limit`: a federation, members and terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from verax.cli.ledger.shared import (
    AsJson,
    BookOption,
    Federation,
    FromRound,
    Member,
    OfRun,
    ledger_package,
    open_book,
    print_cautions,
    print_json,
    print_receipt,
    units_of,
)
from verax.text import printable


def create(
    book: BookOption,
    federation: Annotated[str, typer.Option(help="The federation's name.")],
    terms: Annotated[
        Path | None, typer.Option(help="A terms.toml, as `verax audit` proposes it.")
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(help="Instead of --terms: a constant price; all other terms by default."),
    ] = None,
    currency: Annotated[str, typer.Option(help="With --price.")] = "credits",
    scale: Annotated[int, typer.Option(help="Decimal places of a minor unit; with --price.")] = 6,
    as_json: AsJson = False,
) -> None:
    """Create a book with a federation, or add a federation to a book.

    For example:

        verax ledger create book.db --federation clinics --terms terms.toml
    """
    ledger = ledger_package()
    from verax.mechanism import Price, Terms

    if terms is not None and price is None:
        agreed = Terms.load(terms)
    elif terms is None and price is not None:
        agreed = Terms(Price.constant(price), currency=currency, scale=scale)
    else:
        raise ValueError("the federation needs either --terms or --price")
    print_cautions(agreed)
    with ledger.Book.create(book) as opened:
        receipt = opened.create_federation(federation, agreed)
    print_receipt(receipt, as_json, f"{federation} is in the book")


def join(
    book: BookOption,
    member: Annotated[str, typer.Argument(help="Public key or opaque id.")],
    label: Annotated[str, typer.Option(help="The name that people use for the member.")] = "",
    from_round: FromRound = 1,
    run: OfRun = None,
    key: Annotated[
        str | None, typer.Option(help="The public key of its statements, as `key` prints it.")
    ] = None,
    commitment: Annotated[
        Path | None,
        typer.Option(help="What it commits to for spot checks, as `verax commit` writes it."),
    ] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Add a member from a round on, or change its label or key.

    For example:

        verax ledger join book.db 4f1c… --label "North clinic" --key 6Q3…=
    """
    own = {} if commitment is None else read_commitment(commitment)
    with open_book(book, federation) as (opened, name):
        receipt = opened.join(name, member, label, from_round=from_round, run=run, key=key, **own)
        print_receipt(receipt, as_json, f"{member} is a member of {name}")


def read_commitment(path: Path) -> dict[str, str]:
    """The digests of data and app that `verax commit` wrote."""
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
        return {name: str(read[name]) for name in ("data", "app")}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no commitment; `verax commit --out` writes one") from None


def key(
    file: Annotated[Path, typer.Argument(help="The private key; is created if it is not there.")],
    name: Annotated[
        str | None, typer.Option(help="Print an operator's key of this name, for the terms.")
    ] = None,
) -> None:
    """Print the public key of a private one, which is created if it does not exist.

    A member gives its public key to the operator for `join --key`, and signs its updates with the
    private one (`verax.flower.signed`). An operator signs receipts (`[evidence] operator`).

    For example:

        verax ledger key north.pem
    """
    ledger_package()
    from verax.ledger import notes
    from verax.ledger.evidence import evidence_key

    private = notes.load_key(file) if file.exists() else notes.new_key(file)
    operator = None if name is None else notes.public_key(private, name, notes.OPERATOR)
    typer.echo(evidence_key(private) if operator is None else str(operator))


def leave(
    book: BookOption,
    member: Member,
    from_round: FromRound = 1,
    run: OfRun = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Record that a member takes part in no round from this one on; its balance stays.

    For example:

        verax ledger leave book.db North --from-round 120
    """
    with open_book(book, federation) as (opened, name):
        receipt = opened.leave(name, member, from_round=from_round, run=run)
        print_receipt(receipt, as_json, f"{member} leaves {name}")


def terms(
    book: BookOption,
    terms: Annotated[
        Path | None, typer.Option(help="New terms; without them, the terms are printed.")
    ] = None,
    from_round: FromRound = 1,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Change the terms from a round on, or print all versions.

    For example:

        verax ledger terms book.db --terms new.toml --from-round 50
    """
    if terms is not None:
        from verax.mechanism import Terms

        agreed = Terms.load(terms)
        print_cautions(agreed)
        with open_book(book, federation) as (opened, name):
            receipt = opened.change_terms(name, agreed, from_round=from_round)
            print_receipt(receipt, as_json, f"new terms from round {from_round} on")
        return
    with open_book(book, federation, read_only=True) as (opened, name):
        rows = [
            (v.from_round, v.hash, v.sequence, v.terms.to_toml()) for v in opened.versions(name)
        ]
    if as_json:
        keys = ("from_round", "hash", "record", "toml")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    for from_round, hash_, sequence, toml in rows:
        head = f"# from round {from_round} on, record {sequence}, {hash_}"
        typer.echo(printable(f"{head}\n{toml}", keep="\n"))


def limit(
    book: BookOption,
    amount: Annotated[str, typer.Argument(help="The largest debt, as in 12.50, or none.")],
    member: Annotated[
        str | None, typer.Option(help="Whose limit; without it, of all members.")
    ] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Set the largest debt of a member or of all; `verax ledger watch` reports who exceeds it.

    For example:

        verax ledger limit book.db 100 --member North
    """
    with open_book(book, federation) as (opened, name):
        units = None if amount == "none" else units_of(amount, opened.terms(name).scale)
        print_receipt(opened.set_limit(name, units, member), as_json, "the limit is set")
