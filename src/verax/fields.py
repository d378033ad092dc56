"""Reading a TOML document field by field, so that errors name the field and leftovers are found."""

from __future__ import annotations

from typing import Any

__all__ = ["Fields"]

Row = tuple[float, ...]


class Fields:
    """A table whose fields are taken one by one; `refuse_rest` names any that nobody took."""

    def __init__(self, content: dict[str, Any], prefix: str = "") -> None:
        self._rest = dict(content)
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return name in self._rest

    def table(self, name: str, *, optional: bool = False) -> Fields:
        """A table within this one."""
        value = self._take(name, {} if optional else None)
        if not isinstance(value, dict):
            raise ValueError(f"{self._prefix}{name} must be a table, is {value!r}")
        return Fields(value, f"{self._prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]

    def text(self, name: str, default: str | None = None) -> Any:
        """A text; typed Any, because the caller checks it against its own choices."""
        return self._typed(name, default, str, "a text")

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        return self._typed(name, default, int, "a whole number")

    def switch(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise ValueError(f"{self._prefix}{name} must be true or false, is {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number."""
        return float(self._typed(name, default, int | float, "a number"))

    def texts(self, name: str, default: tuple[str, ...] | None = ()) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self._each(name, self._take(name, _listed(default)), str, "texts"))

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of whole numbers."""
        return tuple(self._each(name, self._take(name, _listed(default)), int, "whole numbers"))

    def numbers(self, name: str, default: Row | None = None) -> Row:
        """A list of numbers."""
        values = self._each(name, self._take(name, _listed(default)), int | float, "numbers")
        return tuple(float(value) for value in values)

    def rows(self, name: str) -> tuple[Row, ...]:
        """A number, or a list whose items are numbers or lists of numbers: one row each."""
        given = self._take(name, None)
        rows: list[Any] = given if isinstance(given, list) else [given]
        result: list[Row] = []
        for row in rows:
            values = row if isinstance(row, list) else [row]
            numbers = self._each(name, values, int | float, "numbers")
            result.append(tuple(float(value) for value in numbers))
        return tuple(result)

    def refuse_rest(self) -> None:
        """Raise if a field is left that nothing has asked for."""
        if self._rest:
            raise ValueError(f"unknown field {self._prefix}{next(iter(self._rest))}")

    def _take(self, name: str, default: Any) -> Any:
        value = self._rest.pop(name, default)
        if value is None:
            raise ValueError(f"{self._prefix}{name} is missing")
        return value

    def _typed(self, name: str, default: Any, kind: Any, words: str) -> Any:
        value = self._take(name, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{self._prefix}{name} must be {words}, is {value!r}")
        return value

    def _each(self, name: str, values: Any, kind: Any, words: str) -> list[Any]:
        wrong = not isinstance(values, list) or any(
            not isinstance(value, kind) or isinstance(value, bool)
            for value in values  # pyright: ignore[reportUnknownVariableType]
        )
        if wrong:
            raise ValueError(f"{self._prefix}{name} must be a list of {words}, is {values!r}")
        return list(values)


def _listed(default: Any) -> Any:
    return None if default is None else list(default)
