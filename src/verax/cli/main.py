"""The command `verax`: one file per command, errors of one line, exit code 2 for wrong values."""

from __future__ import annotations

import os
import sys

import typer

from verax import __version__
from verax.cli import (
    audit,
    bounds,
    console,
    data,
    doctor,
    example,
    ledger,
    reproduce,
    spot_check,
    watch,
)
from verax.quiet import NO_TELEMETRY
from verax.text import printable

# What a wrong command line raises; its name depends on whether typer carries a click of its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]
#: What numbers of too many digits and documents of too many brackets raise.
_TOO_LARGE = (ArithmeticError, MemoryError, RecursionError)
_STOPPED = 130  # as shells say it for Ctrl-C

app = typer.Typer(
    rich_markup_mode="markdown",
    name="verax",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Find out whether members of a federation gain by misreporting, and what stops it.",
)
app.command("audit")(audit.audit)
app.command("bounds")(bounds.bounds)
app.command("commit")(spot_check.commit)
app.command("doctor")(doctor.doctor)
app.command("keep-drawn")(spot_check.keep_drawn)
app.command("reproduce")(reproduce.reproduce)
app.command("spot-check")(spot_check.spot_check)
app.command("watch")(watch.watch)
app.add_typer(console.app, name="console")
app.add_typer(data.app, name="data")
app.add_typer(example.app, name="example")
app.add_typer(ledger.app, name="ledger")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"verax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None: ...


def main() -> None:
    """Run the command line; a wrong value is one line on stderr and exit code 2."""
    os.environ.update(NO_TELEMETRY)  # before a command imports Flower or Ray
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = _STOPPED
    except (ValueError, OSError, _UsageError, *_TOO_LARGE) as error:
        message = getattr(error, "format_message", error.__str__)()
        if isinstance(error, _TOO_LARGE):
            message = f"a number or a document is too large ({message or type(error).__name__})"
        if message:  # empty when the help was printed instead
            print(f"verax: {printable(' '.join(message.split()))}", file=sys.stderr)
        sys.exit(2)
    if code == _STOPPED:
        print("verax: stopped; the same command goes on from here", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)
