"""Serving the console: addresses, TLS, and connections that take too long to say anything."""

from __future__ import annotations

import asyncio
import ipaddress
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds that a connection may take until its first request is complete.
FIRST_REQUEST = 20.0
#: The largest head of a request, in bytes.
_MOST_HEAD = 16_384
_MOST_CONNECTIONS = 1_000


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_address(host: str, certfile: Path | None, keyfile: Path | None) -> bool:
    """Whether TLS is used; without it, refuse any address but loopback."""
    if (certfile is None) != (keyfile is None):
        raise ValueError("TLS needs both --certfile and --keyfile")
    if certfile is None and not is_loopback(host):
        raise ValueError(
            f"--host is {host}, which others can reach: tokens would travel unencrypted; give "
            "--certfile and --keyfile, or bind to 127.0.0.1 behind a proxy that speaks TLS"
        )
    return certfile is not None


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose first request does not arrive in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(FIRST_REQUEST, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if getattr(self, "cycle", None) is None:  # no request was complete
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._deadline.cancel()
        super().connection_lost(exc)


def make_server(
    app: Any, host: str, port: int, certfile: Path | None = None, keyfile: Path | None = None
) -> uvicorn.Server:
    """A server that is ready to run."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=ImpatientProtocol,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=3,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_MOST_HEAD,
            ssl_certfile=certfile,
            ssl_keyfile=keyfile,
        )
    )
