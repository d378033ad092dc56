"""`verax ledger`: the books of a federation, from its creation to the settlement."""

from __future__ import annotations

import typer

from verax.cli.ledger import booking, checking, reading, setup, spot, witnessing

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Books of charges that every member can check.")
for command in (
    setup.create,
    setup.key,
    setup.join,
    setup.leave,
    setup.terms,
    setup.limit,
    booking.post,
    booking.deposit,
    booking.correct,
    booking.settle,
    reading.rounds,
    reading.balances,
    reading.statement,
    reading.watch,
    checking.verify,
    checking.export_,
    checking.import_,
    checking.backup,
    checking.rebuild,
    witnessing.checkpoint,
    witnessing.witness,
    witnessing.prove,
    witnessing.compare,
    spot.close,
    spot.draw,
    spot.fine,
):
    app.command(command.__name__.rstrip("_"))(command)
