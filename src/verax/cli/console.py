"""`verax console`: pages and an API on a book, and the tokens that open them."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console as Terminal
from rich.table import Table
from typer.core import TyperGroup

from verax.cli.ledger.shared import AsJson, BookOption, Federation, cell, open_book, print_json
from verax.text import printable

if TYPE_CHECKING:
    from verax.console.access import Access

State = Annotated[
    Path | None,
    typer.Option(
        help="Folder of tokens and access log (default: BOOK.console, or ./verax-console for "
        "PostgreSQL)."
    ),
]
Days = Annotated[float, typer.Option(help="For how many days the token is accepted.")]


class _ServeByDefault(TyperGroup):
    """`verax console BOOK` is `verax console serve BOOK`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `serve` before what is no command."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ServeByDefault,
    no_args_is_help=True,
    help="Pages and an API for operators and members: `verax console BOOK`.",
)


@app.command()
def serve(
    book: BookOption,
    audit: Annotated[
        Path | None, typer.Option(help="The folder of an audit, to compare it with the charges.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8765,
    certfile: Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")] = None,
    keyfile: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy on this machine speaks TLS for it.")
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name under which it is reached, for example behind a proxy."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Your Ed25519 private key (PEM), to sign checkpoints.")
    ] = None,
    key_name: Annotated[str, typer.Option(help="Your key's name.")] = "operator",
    state: State = None,
) -> None:
    """Serve the console until Ctrl-C.

    At the first start it makes a token for the operator and prints it as a link, once.

    For example:

        verax console serve book.db --audit verax-audit

    `serve` may be left out: `verax console book.db`.
    """
    console_package()
    from verax.console.app import Console, create_app
    from verax.console.follow import Library
    from verax.console.log import AccessLog
    from verax.console.server import bracketed, check_address, make_server
    from verax.console.viewer import openness_warning
    from verax.ledger import Book
    from verax.ledger.notes import load_key

    secure = check_address(host, certfile, keyfile) or behind_tls
    if audit is not None and not (audit / "audit.json").is_file():
        raise ValueError(f"{audit} holds no audit.json; give the folder of `verax audit --out`")
    folder = _folder(book, state)
    access = _access(folder)
    signer = None if key is None else (key_name, load_key(key))
    with Book.open(book, read_only=True) as opened:
        typer.echo("reading the book …", err=True)
        library = Library(opened)
        if library.problem:
            raise ValueError(library.problem)
        log = AccessLog(folder / "access.log")
        console = Console(
            library,
            book,
            access,
            log,
            audit=audit,
            signer=signer,
            secure=secure,
        )
        hosts = {bracketed(host), "127.0.0.1", "localhost", "[::1]", *(name or ())}
        server = make_server(
            create_app(console, {each.lower() for each in hosts}),
            log,
            host.strip("[]"),
            port,
            certfile=certfile,
            keyfile=keyfile,
            behind_proxy=behind_tls,
        )
        scheme, place = "https" if secure else "http", f"{bracketed(host)}:{port}"
        if behind_tls and name:
            place = name[0]  # where the proxy is
        for warning in filter(None, map(openness_warning, library.federations)):
            typer.echo(printable(f"note: {warning}"), err=True)
        typer.echo(_invitation(access, f"{scheme}://{place}"))
        if hasattr(os, "nice"):
            os.nice(5)  # a federation that runs on the same machine goes first
        server.run()


@app.command()
def token(
    book: BookOption,
    member: Annotated[
        str | None, typer.Option(help="The member's id or label; without it, the operator's.")
    ] = None,
    days: Days = 90.0,
    federation: Federation = None,
    state: State = None,
) -> None:
    """Make an access token and print it, once: only its hash is stored.

    For example:

        verax console token book.db --member north --days 30
    """
    console_package()
    access = _access(_folder(book, state))
    if member is None:
        typer.echo(access.create(days))
        return
    with open_book(book, federation, read_only=True) as (opened, name):
        account = opened.state(name).member_account(member)
    typer.echo(access.create(days, federation=name, member=account.member))


@app.command()
def tokens(book: BookOption, state: State = None, as_json: AsJson = False) -> None:
    """List all tokens: whose they are and until when they are accepted.

    For example:

        verax console tokens book.db
    """
    console_package()
    found = _access(_folder(book, state)).tokens()
    if as_json:
        print_json([vars(each) for each in found])
        return
    table = Table("number", "whose", "federation", "made", "accepted until")
    for each in found:
        until = f"revoked {each.revoked}" if each.revoked else each.expires
        row = (str(each.id), each.name, each.federation, each.created, until)
        table.add_row(*map(cell, row))
    Terminal().print(table)


@app.command()
def revoke(
    book: BookOption,
    number: Annotated[int, typer.Argument(help="The token's number in `verax console tokens`.")],
    state: State = None,
) -> None:
    """Accept a token no more; sessions that began with it end.

    For example:

        verax console revoke book.db 3
    """
    console_package()
    _access(_folder(book, state)).revoke(number)
    typer.echo(f"token {number} is revoked")


def console_package() -> None:
    """Import the package, or say which extra must be installed."""
    try:
        for name in ("starlette", "uvicorn", "verax.ledger"):
            import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("verax"):
            raise
        raise ValueError(
            f"the console needs {error.name}, which is not installed: "
            "pip install '.[console]' in a clone of Verax"
        ) from None


def _folder(book: str, state: Path | None) -> Path:
    """Where tokens and the access log are kept."""
    if state is not None:
        return state
    if "://" in book and not book.startswith("sqlite"):
        return Path("verax-console")
    path = Path(book.removeprefix("sqlite:///")).expanduser()
    if not path.is_file():
        raise ValueError(f"{path} does not exist; `verax ledger create {path}` creates a book")
    return path.with_name(f"{path.name}.console")


def _access(folder: Path) -> Access:
    from verax.console.access import Access

    return Access(folder / "access.db")


def _invitation(access: Access, address: str) -> str:
    """Where to go; at the first start a link with the operator's token, which no server is sent."""
    if access.has_operator():
        words = "sign in with your token; `verax console token` makes another one; Ctrl-C stops"
        return printable(f"Console: {address} ({words})")
    link = printable(f"{address}/sign-in#token={access.create(365.0)}")
    return f"Console: {link}\nKeep this link: its token is not shown again. Ctrl-C stops."
