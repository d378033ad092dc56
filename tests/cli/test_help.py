"""`--help` of every command: nothing swallowed, and an example of its own."""

import subprocess
import sys

import click
import pytest
import typer.main

from verax.cli.main import app


def commands(command, path=("verax",)):
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_words_for_every_option(name):
    command = COMMANDS[name]
    assert f"        {name}" in (command.callback.__doc__ or ""), "no example"
    for parameter in command.params:
        words = getattr(parameter, "help", None)
        if parameter.name != "help" and isinstance(parameter, click.Option):
            assert words, f"{parameter.name} has no help"
        assert "[" not in (words or ""), f"{words!r}: brackets are taken for markup"


def test_the_command_starts_without_what_only_some_commands_need():
    """Loading these takes seconds, and `verax ledger balances` needs none of the first five."""
    heavy = ("matplotlib", "jax", "numba", "sklearn", "scipy.optimize", "sqlalchemy", "flwr")
    code = f"import sys, verax.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
