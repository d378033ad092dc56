"""The application: what all endpoints share, and the table of routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import uuid4

import jinja2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.applications import Starlette
from starlette.convertors import (  # codespell:ignore convertors
    IntegerConvertor,
    register_url_convertor,
)
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from verax.console import api, booking, live, metrics, openapi, pages, static_files
from verax.console.access import Access
from verax.console.call import Call, Endpoint, LiveEndpoint, Need, guarded, guarded_live
from verax.console.follow import Library
from verax.console.limits import (
    MOST_EXPORTS,
    MOST_EXPORTS_EACH,
    MOST_STREAMS,
    MOST_STREAMS_EACH,
    Places,
    SignInLimit,
)
from verax.console.log import AccessLog
from verax.console.shield import Shield


@dataclass
class Console:
    """What all endpoints share.

    Attributes:
        library: the book, followed.
        url: its path or URL, for the two forms that write.
        access: tokens and sessions.
        log: the access log.
        audit: the folder of an audit, if there is one.
        signer: the operator's key name and private key for checkpoints, if there is one.
        secure: whether browsers reach the console by TLS, its own or a proxy's.
        every: seconds between two looks at the book.
    """

    library: Library
    url: str | Path
    access: Access
    log: AccessLog
    audit: Path | None = None
    signer: tuple[str, Ed25519PrivateKey] | None = None
    secure: bool = False
    every: float = 0.5
    sign_ins: SignInLimit = field(default_factory=SignInLimit)
    streams: Places = field(default_factory=lambda: Places(MOST_STREAMS_EACH, MOST_STREAMS))
    exports: Places = field(default_factory=lambda: Places(MOST_EXPORTS_EACH, MOST_EXPORTS))
    news: live.News = field(default_factory=live.News)
    templates: jinja2.Environment = field(default_factory=lambda: _templates())

    def audit_summary(self) -> dict[str, Any] | None:
        """The audit as its JSON says it; None if there is none that can be read."""
        if self.audit is None:
            return None
        try:
            return json.loads((self.audit / "audit.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def new_reference(self) -> str:
        """An id for a booking, so that sending its form twice books once."""
        return uuid4().hex


def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(files("verax.console").joinpath("templates"))),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@dataclass(frozen=True)
class Page:
    """A route: its path, what it needs, and what answers it."""

    path: str
    need: Need
    endpoint: Endpoint
    method: str = "GET"


@dataclass(frozen=True)
class Stream:
    """A route that stays open."""

    path: str
    need: Need
    endpoint: LiveEndpoint
    method: str = "GET"


_F, _API = "/f/{federation}", "/api/v1"
_OF = f"{_API}/federations/{{federation}}"
_ACCOUNT = "/members/{account:account}"

ROUTES: tuple[Page | Stream, ...] = (
    Page("/healthz", Need.NOTHING, metrics.healthz),
    Page("/metrics", Need.OPERATOR, metrics.metrics),
    Page("/static/{name:path}", Need.NOTHING, static_files.static),
    Page("/favicon.ico", Need.NOTHING, static_files.icon),
    Page("/sign-in", Need.NOTHING, pages.sign_in_page),
    Page("/sign-in", Need.NOTHING, pages.sign_in, "POST"),
    Page("/sign-out", Need.TOKEN, pages.sign_out, "POST"),
    Page("/", Need.TOKEN, pages.home),
    Page(_F, Need.FEDERATION, pages.overview),
    Page(f"{_F}/live", Need.FEDERATION, pages.live_part),
    Stream(f"{_F}/events", Need.FEDERATION, live.events),
    Page(f"{_F}/rounds", Need.FEDERATION, pages.rounds),
    Page(f"{_F}/balances", Need.FEDERATION, pages.balances),
    Page(f"{_F}/deposit", Need.OPERATOR, booking.deposit, "POST"),
    Page(f"{_F}/terms", Need.FEDERATION, pages.terms),
    Page(f"{_F}/audit", Need.OPERATOR, pages.audit),
    Page(f"{_F}/audit/report", Need.OPERATOR, pages.audit_report),
    Page(f"{_F}/settlement", Need.OPERATOR, pages.settlement),
    Page(f"{_F}/settlement", Need.OPERATOR, booking.settlement, "POST"),
    Page(f"{_F}/book", Need.FEDERATION, pages.book),
    Page(f"{_F}{_ACCOUNT}", Need.ACCOUNT, pages.statement),
    Page(f"{_API}/openapi.json", Need.NOTHING, openapi.document),
    Page(f"{_API}/me", Need.TOKEN, api.me),
    Page(f"{_API}/federations", Need.TOKEN, api.federations),
    Page(_OF, Need.FEDERATION, api.federation),
    Page(f"{_OF}/rounds", Need.FEDERATION, api.rounds),
    Page(f"{_OF}/alarms", Need.FEDERATION, api.alarms),
    Page(f"{_OF}/norms", Need.FEDERATION, api.norms),
    Page(f"{_OF}/balances", Need.FEDERATION, api.balances),
    Page(f"{_OF}/terms", Need.FEDERATION, api.terms),
    Page(f"{_OF}{_ACCOUNT}/statement", Need.ACCOUNT, api.statement),
    Page(f"{_OF}{_ACCOUNT}/series", Need.ACCOUNT, api.series),
    Page(f"{_OF}{_ACCOUNT}/receipts", Need.ACCOUNT, api.receipts),
    Page(f"{_OF}{_ACCOUNT}/receipts.jsonl", Need.EVIDENCE, api.signed_receipts),
    Page(f"{_OF}/comparison", Need.OPERATOR, api.comparison),
    Page(f"{_OF}/settlement", Need.OPERATOR, api.settlement),
    Page(f"{_OF}/settlement.csv", Need.OPERATOR, api.settlement_csv),
    Page(f"{_OF}/tree", Need.FEDERATION, api.tree),
    Page(f"{_OF}/checkpoint", Need.FEDERATION, api.checkpoint),
    Page(f"{_OF}/export", Need.EXPORT, api.export),
)


def create_app(console: Console, hosts: Collection[str]) -> Shield:
    """The ASGI application.

    Args:
        console: what endpoints share.
        hosts: names under which it may be asked for, without ports.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        following = asyncio.create_task(
            live.follow(console.library, console.news, console.every, stop)
        )
        yield
        stop.set()
        await following  # not cancelled: a thread that reads would outlive the book

    def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        words = error.detail if isinstance(error, HTTPException) else "Something went wrong here."
        return _refusal(console, request, status, words)

    app = Starlette(
        routes=[_route(console, each) for each in ROUTES],
        lifespan=lifespan,
        exception_handlers={HTTPException: refused, 500: refused},
    )
    # Outside of everything: the answer to an error of our own is logged and has headers, too.
    return Shield(app, log=console.log, hosts=hosts, secure=console.secure)


class _AccountConvertor(IntegerConvertor):
    """An account number: so many digits that it is one, and no address is too long to be read."""

    regex = "[0-9]{1,9}"


register_url_convertor("account", _AccountConvertor())


def _route(console: Console, each: Page | Stream) -> Route:
    if isinstance(each, Stream):
        handle = guarded_live(console, each.need, each.endpoint)
    else:
        handle = guarded(console, each.need, each.endpoint)
    return Route(each.path, handle, methods=[each.method])


def _refusal(console: Console, request: Request, status: int, words: str) -> Response:
    """An error as JSON for programs, and as a page for people; 401 leads to the sign-in."""
    if request.url.path.startswith(_API) or request.url.path == "/metrics":
        headers = {"www-authenticate": "Bearer"} if status == 401 else None
        return JSONResponse({"error": words}, status, headers)
    call = Call(console, request)
    if status == 401:
        return pages.render(call, "sign_in.html", 401, problem="")
    return pages.render(call, "error.html", status, message=words)
