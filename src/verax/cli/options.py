"""Command-line options from declared settings, so that each is written down only once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import typer

from verax.documents import Option, options


def with_options(settings: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every setting of a dataclass.

    The command must take `**options`; what the user gave arrives there under the settings' names.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        declared = [
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(one)
            )
            for one in options(settings)
        ]
        positional = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        command.__signature__ = signature.replace(  # pyright: ignore[reportFunctionMemberAccess]
            parameters=[*declared, *positional]
        )
        command.__annotations__ = {p.name: p.annotation for p in [*declared, *positional]}
        return command

    return decorate


def given_options(settings: type, values: dict[str, Any]) -> dict[str, Any]:
    """What the user gave, as values of the settings' types."""
    return {
        one.name: _value(one, values[one.name])
        for one in options(settings)
        if values.get(one.name) not in (None, [])
    }


def _annotation(one: Option) -> Any:
    kind = one.kind
    if get_origin(kind) is tuple:
        kind = list[str] if get_args(kind)[0] is str else str
    default = one.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default)) if get_origin(get_args(one.kind)[0]) is None else "…"  # pyright: ignore
    words = one.help if default in ("", None) else f"{one.help} (default: {default})"
    return Annotated[kind | None, typer.Option(help=words)]


def _value(one: Option, given: Any) -> Any:
    if get_origin(one.kind) is not tuple:
        return given
    item = get_args(one.kind)[0]
    if item is str:
        return tuple(given)
    if get_origin(item) is tuple:
        return tuple(_numbers(one.name, row, float) for row in given.split(";") if row.strip())
    return _numbers(one.name, given, item)


def _numbers(name: str, text: str, kind: Any) -> tuple[Any, ...]:
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        words = "whole numbers" if kind is int else "numbers"
        option = f"--{name.replace('_', '-')}"
        raise ValueError(
            f"{option} is {text!r}, must be {words} separated by commas, such as 0,1,2"
        ) from None
