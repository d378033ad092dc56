"""While an app is audited, its `PaidStrategy` charges nobody and opens no book."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_audited = ContextVar("audited", default=False)


@contextmanager
def unpaid() -> Generator[None]:
    """Strategies that are made and started inside charge nobody."""
    token = _audited.set(True)
    try:
        yield
    finally:
        _audited.reset(token)


def is_unpaid() -> bool:
    """Whether an audit is running the app."""
    return _audited.get()
