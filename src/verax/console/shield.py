"""What holds for every response: allowed hosts, strict headers, and a line in the access log."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from verax.console.log import AccessLog

#: Scripts, styles and images come from the console itself, nothing is inline, nobody may frame it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Shield:
    """Refuses requests for other hosts, adds headers, and logs.

    Args:
        app: the application.
        log: where every access and every refusal is written.
        hosts: names under which the console may be asked for, without ports; another name means
            that a page elsewhere resolves its own name to this machine.
        secure: whether the console is reached by TLS.
    """

    def __init__(
        self, app: ASGIApp, *, log: AccessLog, hosts: Collection[str], secure: bool
    ) -> None:
        self._app, self._log, self._secure = app, log, secure
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def note(message: Message) -> None:
            # The line is written first: whoever has an answer is in the log.
            if message["type"] == "http.response.start":
                self._write(scope, message["status"])
                self._add_headers(MutableHeaders(scope=message))
            await send(message)

        if _host_name(Headers(scope=scope).get("host", "")) in self._hosts:
            await self._app(scope, receive, note)
        else:
            refusal = PlainTextResponse("This console has another address.\n", 400)
            await refusal(scope, receive, note)

    def _write(self, scope: Scope, status: int) -> None:
        client = scope.get("client")
        self._log.write(
            who=scope.get("state", {}).get("who", ""),
            address=client[0] if client else "",
            method=scope["method"],
            path=scope["path"],
            status=status,
        )

    def _add_headers(self, headers: MutableHeaders) -> None:
        for name, value in _HEADERS.items():
            headers[name] = value
        headers.setdefault("content-security-policy", POLICY)
        headers.setdefault("cache-control", "no-store")
        if self._secure:
            headers["strict-transport-security"] = "max-age=31536000"


def _host_name(host: str) -> str:
    """The name without its port; an IPv6 address keeps its brackets."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
