"""One request: who sent it, what it may see, and the refusal if it may not see that.

Every route states what it needs. `guarded` establishes it before the endpoint is called, so that an
endpoint cannot forget to.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from verax.console.access import Token
from verax.console.viewer import Viewer
from verax.ledger import BookError, BookUnavailableError

if TYPE_CHECKING:
    from verax.console.app import Console

COOKIE = "verax_session"
#: The largest form, in bytes, and how long sending it may take, in seconds.
MOST_BYTES = 16_384
FORM_SECONDS = 10.0


class Need(Enum):
    """What a route needs of whoever calls it."""

    NOTHING = "nothing"
    TOKEN = "any token"
    FEDERATION = "the operator, or a member of the federation"
    ACCOUNT = "the operator, or the member whose account it is"
    EXPORT = "the operator, or a member if the terms open amounts and norms to all"
    EVIDENCE = "the operator, or the member whose account it is if the terms open all to all"
    OPERATOR = "the operator"


@dataclass
class Call:
    """A request that was allowed.

    Attributes:
        console: what all endpoints share.
        request: the request.
        token: whose it is; None if nobody is signed in.
        form_key: what forms of this session must contain; empty without a session.
        form: the fields of a posted form.
    """

    console: Console
    request: Request
    token: Token | None = None
    form_key: str = ""
    form: dict[str, str] = field(default_factory=dict[str, str])
    _viewer: Viewer | None = None

    @property
    def viewer(self) -> Viewer:
        """The token's view of the federation of this address."""
        assert self._viewer is not None, "only on routes that need a federation"
        return self._viewer

    @property
    def account(self) -> int:
        """The account number of this address."""
        return int(self.request.path_params["account"])

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number of the query, between 1 and `most`."""
        text = self.request.query_params.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 19 and 1 <= int(text) <= most):
            raise HTTPException(400, f"{name} must be a whole number from 1 to {most}")
        return int(text)

    def text(self, name: str) -> str:
        """A text of the query, cut to a bounded length."""
        return self.request.query_params.get(name, "")[:200]

    def identify(self) -> None:
        """Find out whose request it is: by a session's cookie, or by a token in a header."""
        access = self.console.access
        cookie = self.request.cookies.get(COOKIE)
        session = None if cookie is None else access.session(cookie)
        scheme, _, text = self.request.headers.get("authorization", "").partition(" ")
        # A proxy sends an empty token for people that it does not know.
        if scheme.lower() == "bearer" and text.strip():
            self.token = access.token(text.strip())
        elif session is not None:
            self.token = session.token
        # Forms need a session; beside a header it must be one of the same token.
        if session is not None and session.token == self.token:
            self.form_key = session.form_key

    def note_who(self, token: Token | None) -> None:
        """Have the access log say whose request it is."""
        self.request.state.who = "" if token is None else f"{token.name} #{token.id}"

    def check(self, need: Need) -> None:
        """Refuse what the token does not open."""
        if need is Need.NOTHING:
            return
        if self.token is None:
            raise HTTPException(401, "Sign in first, or send an access token.")
        if need is Need.OPERATOR and not self.token.is_operator:
            raise HTTPException(403, "Only the operator may see this.")
        if "federation" not in self.request.path_params:
            return
        followed = self.console.library.find(self.request.path_params["federation"])
        viewer = None if followed is None else Viewer.of(self.token, followed)
        if viewer is None:
            raise HTTPException(404, "There is no such federation, or it is not yours.")
        self._viewer = viewer
        of_account = need in (Need.ACCOUNT, Need.EVIDENCE)
        if of_account and viewer.account not in (None, self.account):
            raise HTTPException(403, "This is another member's account.")
        if of_account and self.account not in viewer.federation.series:
            known = {each.number for each in viewer.federation.members}
            if self.account not in known:
                raise HTTPException(404, f"There is no account {self.account}.")
        if need in (Need.EXPORT, Need.EVIDENCE) and not viewer.sees_export:
            raise HTTPException(
                403, "The terms keep amounts and norms to each member; whole records hold all."
            )

    async def read_form(self) -> None:
        """Read a posted form of bounded size and within a bounded time."""
        if self.request.headers.get("content-type", "").partition(";")[0] != (
            "application/x-www-form-urlencoded"
        ):
            raise HTTPException(415, "Forms must be sent as application/x-www-form-urlencoded.")
        body = b""
        try:
            async with asyncio.timeout(FORM_SECONDS):
                async for part in self.request.stream():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise HTTPException(413, f"The form has more than {MOST_BYTES} bytes.")
        except TimeoutError:
            raise HTTPException(408, "The form took too long to arrive.") from None
        except ClientDisconnect:
            raise HTTPException(400, "The form did not arrive completely.") from None
        try:
            table = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=20)
        except ValueError:
            raise HTTPException(400, "The form cannot be read.") from None
        self.form = {name: values[-1] for name, values in table.items()}

    def check_origin(self) -> None:
        """Refuse a form that a page of another site sends."""
        scheme = "https" if self.console.secure else "http"
        origin = self.request.headers.get("origin")
        if origin is not None and origin != f"{scheme}://{self._host}":
            raise HTTPException(403, "The form was sent from another site.")

    def check_form_key(self) -> None:
        """Refuse a form that this console did not give to this session."""
        given = self.form.get("form_key", "")
        if not self.form_key or not hmac.compare_digest(given.encode(), self.form_key.encode()):
            raise HTTPException(403, "The form is not one of this session; open the page again.")

    @property
    def _host(self) -> str:
        return self.request.headers.get("host", "")


Endpoint = Callable[[Call], Response]
LiveEndpoint = Callable[[Call], Awaitable[Response]]


def guarded(console: Console, need: Need, endpoint: Endpoint) -> Any:
    """The endpoint for requests that fulfil the need; it runs in a thread."""

    async def handle(request: Request) -> Response:
        call = await _prepared(console, need, request)
        if request.method == "POST":
            call.check_origin()
            await call.read_form()
            if need is not Need.NOTHING:
                call.check_form_key()
        try:
            return await run_in_threadpool(endpoint, call)
        except (BookError, BookUnavailableError) as error:
            operator = call.token is not None and call.token.is_operator
            words = str(error) if operator else "the operator can see why"
            raise HTTPException(503, f"The book cannot be read now: {words}.") from error

    return handle


def guarded_live(console: Console, need: Need, endpoint: LiveEndpoint) -> Any:
    """The same for an endpoint that waits for news instead of a database."""

    async def handle(request: Request) -> Response:
        return await endpoint(await _prepared(console, need, request))

    return handle


async def _prepared(console: Console, need: Need, request: Request) -> Call:
    call = Call(console, request)
    await run_in_threadpool(call.identify)
    call.note_who(call.token)
    call.check(need)
    return call
