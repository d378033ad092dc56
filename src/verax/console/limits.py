"""How often somebody may try to sign in, and how many long answers a token may have at once."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterable, Callable, Iterable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

#: Failed sign-ins of one address that are allowed within a minute.
MOST_FAILURES = 10
#: Addresses whose failures are remembered; beyond that the oldest are forgotten.
_MOST_ADDRESSES = 10_000

#: Open live streams: of one token, and of all together.
MOST_STREAMS_EACH = 8
MOST_STREAMS = 400
#: Downloads of whole books at the same time: of one token, and of all together.
MOST_EXPORTS_EACH = 2
MOST_EXPORTS = 200


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


class Places:
    """Counts answers that last, by token.

    Args:
        each: how many a token may have at once.
        together: how many all tokens may have at once.
    """

    def __init__(self, each: int, together: int) -> None:
        self.each, self.together = each, together
        self._taken: Counter[int] = Counter()
        self._lock = threading.Lock()

    def reserve(self, token: int) -> bool:
        """Take a place if one is free; whoever took it releases it."""
        with self._lock:
            if self._taken[token] >= self.each or self._taken.total() >= self.together:
                return False
            self._taken[token] += 1
            return True

    def release(self, token: int) -> None:
        """Give a place back."""
        with self._lock:
            self._taken[token] -= 1

    def taken(self, token: int) -> int:
        """How many places a token has."""
        return self._taken[token]


class ReservedResponse(StreamingResponse):
    """A stream that gives its place back when it has ended, however it ends.

    Args:
        content: the parts.
        release: gives the place back.
        media_type: of the content.
        headers: more headers.
    """

    def __init__(
        self,
        content: AsyncIterable[str | bytes] | Iterable[bytes],
        release: Callable[[], None],
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, then release the place."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()
