"""Serving the console: addresses, TLS, and connections that take too long to say anything.

What is refused before there is a request that can be read is in the access log, too.
"""

from __future__ import annotations

import asyncio
import ipaddress
from pathlib import Path
from typing import Any, ClassVar, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from verax.console.log import AccessLog

#: Seconds that the head of a request may take, from the first byte on; of the first one, from the
#: connection on.
HEAD_SECONDS = 20.0
#: The largest head of a request, in bytes.
_MOST_HEAD = 16_384
MOST_CONNECTIONS = 1_000
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """A host as it stands in an address: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


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
    """Closes connections whose requests do not arrive in time, and those that are too many."""

    refusals: ClassVar[AccessLog]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._log_refusal(503, "too many connections")
            transport.write(_FULL)
            transport.close()
            return
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._close_if_incomplete)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request, or no more once its head is complete."""
        super().data_received(data)
        if not self._awaits_request():
            self._stop_waiting()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._close_if_incomplete)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._log_refusal(400, msg)
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _awaits_request(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _close_if_incomplete(self) -> None:
        self._deadline = None
        if self._awaits_request() and not self.transport.is_closing():
            self._log_refusal(408, "the request did not arrive in time")
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _log_refusal(self, status: int, note: str) -> None:
        address = self.client[0] if self.client else ""
        self.refusals.write(who="", address=address, method="", path="", status=status, note=note)


def make_server(
    app: Any,
    log: AccessLog,
    host: str,
    port: int,
    *,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    behind_proxy: bool = False,
) -> uvicorn.Server:
    """A server that is ready to run.

    Args:
        app: the application.
        log: where refusals are written.
        host: the address to listen on.
        port: the port.
        certfile: TLS certificate, if TLS is spoken here.
        keyfile: its private key.
        behind_proxy: whether a proxy on this machine says in X-Forwarded-For who asks.
    """

    class Protocol(ImpatientProtocol):
        refusals = log

    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=behind_proxy,
            forwarded_allow_ips=["127.0.0.1", "::1"],
            timeout_keep_alive=15,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=_MOST_HEAD,
            ssl_certfile=certfile,
            ssl_keyfile=keyfile,
        )
    )
