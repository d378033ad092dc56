"""Frozen dataclasses as TOML or JSON documents: each setting is declared once, in its dataclass.

The type of a field decides what a document may hold; its check stands in `__post_init__`; the help
text in its metadata serves the command line. Unknown fields, missing fields and wrong types are
refused with the field's full name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, Field, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tomli_w

from verax.text import printable, shown

_T = TypeVar("_T")


def option(default: Any, help_: str, name: str = "") -> Any:
    """Declare a setting: its default, what it means, and its name on the command line.

    An empty `name` stands for the field's own name.
    """
    return field(default=default, metadata={"help": help_, "name": name})


class Option:
    """A setting somewhere in a nested dataclass, as command lines and keyword arguments see it."""

    def __init__(self, path: tuple[str, ...], declared: Field[Any], kind: Any) -> None:
        self.path, self.kind, self.default = path, kind, declared.default
        self.name: str = declared.metadata["name"] or declared.name
        self.help: str = declared.metadata["help"]


def options(kind: type, path: tuple[str, ...] = ()) -> Iterator[Option]:
    """All settings that were declared by `option`, those of nested dataclasses included."""
    hints = get_type_hints(kind)
    for declared in fields(kind):
        here = (*path, declared.name)
        if is_dataclass(hints[declared.name]):
            yield from options(hints[declared.name], here)
        elif "help" in declared.metadata:
            yield Option(here, declared, hints[declared.name])


def read(kind: type[_T], document: Any, name: str = "") -> _T:
    """A value of a dataclass from a table of a document; absent fields have their defaults."""
    if not isinstance(document, dict):
        raise ValueError(f"{name} must be a table, is {shown(document)}")
    table: dict[str, Any] = {**document}
    prefix = f"{name}." if name else ""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for declared in fields(kind):  # pyright: ignore[reportArgumentType]
        if declared.name in table:
            value = table.pop(declared.name)
            values[declared.name] = read_value(hints[declared.name], value, prefix + declared.name)
        elif declared.default is MISSING and declared.default_factory is MISSING:
            raise ValueError(f"{prefix}{declared.name} is missing")
    if table:
        raise ValueError(f"unknown field {prefix}{printable(next(iter(table)), 80)}")
    return kind(**values)


def read_value(kind: Any, value: Any, name: str) -> Any:
    """A value of a field's type from what a document holds."""
    if get_origin(kind) is UnionType:  # of a dataclass and None, which an absent table stands for
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    if is_dataclass(kind):
        return read(kind, value, name)  # pyright: ignore[reportArgumentType]
    if get_origin(kind) is Literal:
        kind = str
    if kind is bool:
        return _typed(value, bool, name, "true or false")
    if kind is str:
        return _typed(value, str, name, "a text")
    if kind is int:
        return _typed(value, int, name, "a whole number")
    if kind is float:
        return _float(_typed(value, (int, float), name, "a number"), name)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if get_origin(item) is tuple:  # a number, or a list of numbers and lists of numbers
            rows = value if isinstance(value, list) else [value]
            return tuple(
                tuple(
                    _float(one, name)
                    for one in _each(row if isinstance(row, list) else [row], float, name)
                )
                for row in rows
            )
        convert = _float if item is float else lambda one, _: item(one)
        return tuple(convert(one, name) for one in _each(value, item, name))
    raise TypeError(f"{name} is declared as {kind}, which no document can hold")


def write(value: Any) -> dict[str, Any]:
    """A dataclass as a table: every field but None and lists that are empty by default."""
    table: dict[str, Any] = {}
    for declared in fields(value):
        own = getattr(value, declared.name)
        if is_dataclass(own):
            table[declared.name] = write(own)
        elif own is not None and (own != () or declared.default != ()):
            table[declared.name] = _listed(own)
    return table


def to_toml(value: Any, comment: str = "") -> str:
    """The TOML form of a dataclass; each line of `comment` stands before it."""
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    return head + tomli_w.dumps(write(value))


def from_toml(kind: type[_T], text: str) -> _T:
    """Read the TOML form."""
    try:
        return read(kind, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    except RecursionError:
        raise ValueError("not TOML that can be read: its lists are nested too deeply") from None


def check_choice(name: str, value: str, choices: Any) -> None:
    """Refuse a text that is not one of a Literal's choices."""
    if value not in get_args(choices):
        raise ValueError(f"{name} is {value!r}, must be one of {', '.join(get_args(choices))}")


def _typed(value: Any, kind: Any, name: str, words: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} must be {words}, is {shown(value)}")
    return value


def _float(value: float, name: str) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond float64
        raise ValueError(f"{name} is {shown(value)}, must be at most about 1.8e308") from None


def _each(values: Any, kind: type, name: str) -> list[Any]:
    words = {str: "texts", int: "whole numbers", float: "numbers"}[kind]
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(values, list) or any(
        not isinstance(value, accepted) or isinstance(value, bool)
        for value in values  # pyright: ignore[reportUnknownVariableType]
    ):
        raise ValueError(f"{name} must be a list of {words}, is {shown(values)}")
    return list(values)  # pyright: ignore[reportUnknownArgumentType]


def _listed(value: Any) -> Any:
    """Tuples as lists; rows of one number each as plain numbers, and a single one by itself."""
    if isinstance(value, tuple):
        rows: Any = value
        if all(isinstance(row, tuple) and len(row) == 1 for row in rows):
            return rows[0][0] if len(rows) == 1 else [row[0] for row in rows]
        return [_listed(item) for item in rows]
    return value
