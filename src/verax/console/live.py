"""Live updates: one server-sent event whenever the book has grown.

The event says how many records there are; the page then fetches what changed, by the same routes
and with the same rights as when it was opened.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from verax.console.call import Call
from verax.console.follow import Library

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

    async def wait(self, seconds: float) -> None:
        """Wait for news, at most this long."""
        event = self._event
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except TimeoutError:
            return


async def follow(library: Library, news: News, every: float) -> None:
    """Read the book again and again, and tell everybody when it has grown."""
    while True:
        if await run_in_threadpool(library.refresh):
            news.publish()
        await asyncio.sleep(every)


async def events(call: Call) -> Response:
    """The stream of a federation."""
    console, token = call.console, call.token
    assert token is not None
    followed = call.viewer.federation
    if console.streams.is_reached(token.id):
        raise HTTPException(429, "Too many live pages are open; close one.")

    async def lines() -> AsyncGenerator[str]:
        with console.streams.counted(token.id):
            seen, end = followed.state.sequence, time.monotonic() + _LONGEST
            yield f"retry: 2000\nevent: open\ndata: {seen}\n\n"
            while time.monotonic() < end:
                await console.news.wait(_HEARTBEAT)
                if followed.state.sequence != seen:
                    seen = followed.state.sequence
                    data = {"records": seen, "rounds": len(followed.rounds)}
                    yield f"id: {seen}\nevent: book\ndata: {json.dumps(data)}\n\n"
                    continue
                again = Call(console, call.request)
                await run_in_threadpool(again.identify)
                if again.token is None:
                    return
                yield ": still here\n\n"

    return StreamingResponse(
        lines(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )
