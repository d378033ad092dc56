"""Live updates: one server-sent event whenever the book has grown.

The event says how many records there are; the page then fetches what changed, by the same routes
and with the same rights as when it was opened.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from verax.console.call import Call
from verax.console.follow import Library
from verax.console.limits import ReservedResponse

#: Seconds after which a stream says that it is still there, and looks whether its token is.
_HEARTBEAT = 15.0
#: Seconds after which a stream ends; the browser opens another one.
_LONGEST = 900.0


class News:
    """Wakes all live streams at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def publish(self) -> None:
        """Wake everybody who waits."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def upcoming(self) -> asyncio.Event:
        """The event of the next news: whoever takes it before looking misses nothing."""
        return self._event


async def follow(library: Library, news: News, every: float, stop: asyncio.Event) -> None:
    """Read the book until told to stop, and tell everybody when it has grown or cannot be read."""
    told = library.news
    while not stop.is_set():
        try:
            await run_in_threadpool(library.refresh)
        except Exception as error:  # whatever it is, the console goes on and says so
            logging.getLogger("uvicorn.error").exception("reading the book failed")
            library.fail(f"reading the book failed: {error!r:.200}")
        # Compared with what was told, not with what was known: a form may have read it meanwhile.
        if library.news != told:
            told = library.news
            news.publish()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every)


async def events(call: Call) -> Response:
    """The stream of a federation."""
    console, token = call.console, call.token
    assert token is not None
    followed = call.viewer.federation
    if not console.streams.reserve(token.id):
        raise HTTPException(429, "Too many live pages are open; close one.")

    async def lines() -> AsyncGenerator[str]:
        seen, end = followed.news, time.monotonic() + _LONGEST
        checked = time.monotonic()
        yield f"retry: 2000\nevent: open\ndata: {_version(seen)}\n\n"
        while time.monotonic() < end:
            if time.monotonic() >= checked + _HEARTBEAT:
                again = Call(console, call.request)
                await run_in_threadpool(again.identify)
                if again.token is None:
                    return
                checked = time.monotonic()
                yield ": still here\n\n"
            upcoming = console.news.upcoming()
            if followed.news == seen:
                with suppress(TimeoutError):
                    await asyncio.wait_for(upcoming.wait(), _HEARTBEAT)
            if followed.news != seen:
                seen = followed.news
                data = {"records": seen[0], "rounds": len(followed.rounds)}
                yield f"id: {_version(seen)}\nevent: book\ndata: {json.dumps(data)}\n\n"

    return ReservedResponse(
        lines(),
        lambda: console.streams.release(token.id),
        "text/event-stream",
        {"x-accel-buffering": "no"},
    )


def _version(news: tuple[int, str]) -> str:
    """What a page compares with what it shows: the records, and a mark if there is a problem."""
    records, problem = news
    return f"{records}!" if problem else str(records)
