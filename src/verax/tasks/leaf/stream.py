"""Reads the users of a LEAF file one after the other, without holding the whole file.

A file is one object, {"users": […], "num_samples": […], "user_data": {user: {"x": …, "y": …}}}, of
up to gigabytes. Only `user_data` is large, so it is entered; every other value is read whole.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

_CHUNK = 1 << 20
_SPACE = " \t\n\r"
_decode = json.JSONDecoder().raw_decode


class User(NamedTuple):
    """One user's samples, as JSON gives them."""

    name: str
    x: list[Any]
    y: list[Any]


class Source(NamedTuple):
    """What was read: the SHA-256 of the bytes, and what the file says of its users."""

    checksum: str
    users: list[str]
    counts: list[int]


def read_file(path: Path, progress: Callable[[int], None], sources: list[Source]) -> Iterator[User]:
    """The users of a file in the order of `user_data`; its source is then added to `sources`."""
    others: dict[str, Any] = {}
    with path.open("rb") as file:
        text = _Text(path, file, progress)
        text.take("{")
        while text.peek() != "}":
            key = text.value()
            text.take(":")
            if key == "user_data":
                yield from _users(text)
            else:
                others[str(key)] = text.value()
            if text.peek() != "}":
                text.take(",")
        text.end()
    users, counts = others.get("users"), others.get("num_samples")
    if not (isinstance(users, list) and isinstance(counts, list) and len(users) == len(counts)):
        raise ValueError(
            f"{path}: no `users` and `num_samples` of the same length; not LEAF's file"
        )
    sources.append(Source(text.checksum, [str(name) for name in users], [int(n) for n in counts]))


def _users(text: _Text) -> Iterator[User]:
    text.take("{")
    while text.peek() != "}":
        name = text.value()
        text.user = str(name)
        text.take(":")
        data = text.value()
        if not (
            isinstance(data, dict)
            and isinstance(data.get("x"), list)
            and isinstance(data.get("y"), list)
            and len(data["x"]) == len(data["y"])
        ):
            raise ValueError(f"{text.path}: user {name!r} has no lists x and y of the same length")
        yield User(text.user, data["x"], data["y"])
        if text.peek() != "}":
            text.take(",")
    text.take("}")


class _Text:
    """A window onto a file's text that moves forward value by value."""

    def __init__(self, path: Path, file: IO[bytes], progress: Callable[[int], None]) -> None:
        self.path, self.user = path, ""
        self._file, self._progress = file, progress
        self._digest, self._utf8 = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._ended = "", 0, False
        self._usual = _CHUNK  # the length of the last value; the next is probably similar

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()

    def peek(self) -> str:
        """The next character that is not space; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more(_CHUNK)

    def take(self, character: str) -> None:
        if self.peek() != character:
            raise self._broken(f"{character!r} expected")
        self._at += 1

    def value(self) -> Any:
        """The next value, whole; more is read until it is complete."""
        self.peek()
        if len(self._text) - self._at < self._usual:
            self._more(self._usual + self._usual // 4)
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    raise self._broken(error.msg) from None
            else:
                # A number that ends where the window ends may go on behind it.
                if end < len(self._text) or self._ended:
                    self._usual = max(end - self._at, 64)
                    self._at = end
                    return value
            self._more(len(self._text) - self._at + _CHUNK)

    def end(self) -> None:
        """The last brace, and nothing behind it."""
        self.take("}")
        if self.peek():
            raise self._broken("nothing more expected")

    def _more(self, size: int) -> None:
        block = self._file.read(size)
        self._ended = len(block) < size
        self._progress(len(block))
        self._digest.update(block)
        try:
            new = self._utf8.decode(block, self._ended)
        except UnicodeDecodeError as error:
            raise self._broken(str(error)) from None
        self._text, self._at = self._text[self._at :] + new, 0

    def _broken(self, what: str) -> ValueError:
        where = f"at user {self.user!r}" if self.user else "before the first user"
        return ValueError(f"{self.path}: broken JSON {where} ({what}); is the file complete?")
