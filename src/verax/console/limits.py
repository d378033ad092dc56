"""How often somebody may try to sign in, and how many live streams may be open."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

#: Failed sign-ins of one address that are allowed within a minute.
MOST_FAILURES = 10
#: Addresses whose failures are remembered; beyond that the oldest are forgotten.
_MOST_ADDRESSES = 10_000

#: Open live streams: of one token, and of all together.
MOST_STREAMS_EACH = 8
MOST_STREAMS = 400


class SignInLimit:
    """Refuses an address after too many failures within a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def wait(self, address: str) -> int:
        """For how many seconds the address must wait; 0 if it may try."""
        past = self._failures.get(address, deque[float]())
        while past and past[0] <= self._clock() - 60:
            past.popleft()
        return 0 if len(past) < MOST_FAILURES else max(1, round(past[0] + 60 - self._clock()))

    def failed(self, address: str) -> None:
        """Remember a failure."""
        past = self._failures.pop(address, deque[float](maxlen=MOST_FAILURES))
        past.append(self._clock())
        self._failures[address] = past
        if len(self._failures) > _MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]


class StreamLimit:
    """Counts open live streams by token."""

    def __init__(self) -> None:
        self._open: Counter[int] = Counter()

    def is_reached(self, token: int) -> bool:
        """Whether the token may not open another stream now."""
        return self._open[token] >= MOST_STREAMS_EACH or self._open.total() >= MOST_STREAMS

    @contextmanager
    def counted(self, token: int) -> Generator[None]:
        """Count a stream while it is open."""
        self._open[token] += 1
        try:
            yield
        finally:
            self._open[token] -= 1
