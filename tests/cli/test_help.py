"""`--help` of every command: nothing swallowed, and an example of its own."""

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
