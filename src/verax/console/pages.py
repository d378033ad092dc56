"""The pages: each collects what it shows and renders a template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from verax.amounts import number
from verax.console import account_views, views
from verax.console.call import COOKIE, Call
from verax.console.viewer import Viewer

#: The tabs of a federation: (path below it, words, whether members see it).
_TABS = (
    ("", "Rounds", True),
    ("/balances", "Balances", True),
    ("/terms", "Terms", True),
    ("/audit", "Audit", False),
    ("/settlement", "Settlement", False),
    ("/book", "Check the book", True),
)


def render(call: Call, template: str, status: int = 200, **values: Any) -> Response:
    """A page with what every page needs."""
    page = call.console.templates.get_template(template)
    text = page.render(token=call.token, form_key=call.form_key, status=status, **values)
    return Response(text, status, media_type="text/html")


def _federation_page(call: Call, template: str, tab: str, **values: Any) -> Response:
    viewer = call.viewer
    followed = viewer.federation
    with followed.lock:
        return render(
            call,
            template,
            viewer=viewer,
            facts=views.federation_facts(viewer),
            base=f"/f/{followed.key}",
            tab=tab,
            tabs=_tabs(viewer),
            money=followed.money,
            number=number,
            **values,
        )


def _tabs(viewer: Viewer) -> Sequence[tuple[str, str]]:
    if viewer.is_operator:
        return [(path, words) for path, words, _ in _TABS]
    own = [("", "My account"), (f"/members/{viewer.account}", "My statement")]
    return own + [(path, words) for path, words, open_ in _TABS[1:] if open_]


# Signing in and out


def sign_in_page(call: Call) -> Response:
    """The form; a link from the terminal carries the token behind #, which no server sees."""
    if call.form_key:
        return RedirectResponse("/", 303)
    return render(call, "sign_in.html", problem="")


def sign_in(call: Call) -> Response:
    """Begin a session; after too many failures an address must wait."""
    console, client = call.console, call.request.client
    address = client.host if client else ""
    if wait := console.sign_ins.wait(address):
        words = f"Too many attempts. Try again in {wait} seconds."
        response = render(call, "sign_in.html", 429, problem=words)
        response.headers["retry-after"] = str(wait)
        return response
    cookie = console.access.sign_in(call.form.get("token", "").strip())
    if cookie is None:
        console.sign_ins.failed(address)
        words = "This token is not valid: it is mistyped, expired or revoked."
        return render(call, "sign_in.html", 401, problem=words)
    session = console.access.session(cookie)
    call.note_who(None if session is None else session.token)
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE, cookie, httponly=True, samesite="strict", secure=console.secure, path="/"
    )
    return response


def sign_out(call: Call) -> Response:
    """End the session."""
    call.console.access.sign_out(call.request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(COOKIE, path="/")
    return response


# Federations


def home(call: Call) -> Response:
    """All federations that the token opens; a single one is opened at once."""
    assert call.token is not None
    library = call.console.library
    found = [Viewer.of(call.token, each) for each in library.federations]
    mine = [viewer for viewer in found if viewer is not None]
    if len(mine) == 1:
        return RedirectResponse(f"/f/{mine[0].federation.key}", 303)
    rows = [views.federation_facts(viewer) for viewer in mine]
    return render(call, "home.html", rows=rows, problem=library.problem)


def overview(call: Call) -> Response:
    """A run as it happens for the operator; a member's own account for a member."""
    return _overview(call, "operator.html" if call.viewer.is_operator else "member.html")


def live_part(call: Call) -> Response:
    """The part of the same page that changes with every round."""
    operator = call.viewer.is_operator
    return _overview(call, "operator_live.html" if operator else "member_live.html")


def _overview(call: Call, template: str) -> Response:
    viewer, library = call.viewer, call.console.library
    # Held until the page is made: it shows all records up to the number that it states.
    with viewer.federation.lock:
        if viewer.account is None:
            values: dict[str, Any] = {
                "rounds": views.rounds(viewer, library, limit=3),
                "alarms": views.alarms(viewer, most=6),
                "owing": views.balances(viewer),
            }
        else:
            values = {
                "statement": account_views.statement(viewer, library, viewer.account, most=8),
                "alarms": views.alarms(viewer, most=5),
                "price": account_views.price_now(viewer),
            }
        return _federation_page(call, template, "", **values)


def rounds(call: Call) -> Response:
    """Earlier rounds, in pages."""
    before = call.number("before", 0, 2**62) or None
    run = call.text("run")
    shown = views.rounds(call.viewer, call.console.library, before=before, limit=20, run=run)
    runs = list(reversed(call.viewer.federation.runs))[:100]
    return _federation_page(
        call, "rounds.html", "", rounds=shown, run=run, runs=runs, before=before
    )


def balances(call: Call) -> Response:
    """Balances and limits; the operator books deposits here."""
    search = call.text("search")
    rows = views.balances(call.viewer, search)
    return _federation_page(
        call,
        "balances.html",
        "/balances",
        rows=rows,
        search=search,
        reference=call.console.new_reference(),
        problem="",
        done=call.text("done"),
    )


def terms(call: Call) -> Response:
    """The terms in force and their history."""
    versions = views.terms_versions(call.viewer)
    return _federation_page(call, "terms.html", "/terms", versions=versions)


def statement(call: Call) -> Response:
    """A member's statement, in pages."""
    page = call.number("page", 1, 10**9)
    found = account_views.statement(call.viewer, call.console.library, call.account, page=page)
    return _federation_page(
        call,
        "statement.html",
        f"/members/{call.account}",
        statement=found,
        signs=call.console.signer is not None,
    )


def audit(call: Call) -> Response:
    """The audit's verdict beside what was charged."""
    document = call.console.audit_summary()
    rows = [] if document is None else views.comparison(call.viewer, document)
    return _federation_page(call, "audit.html", "/audit", audit=document, rows=rows)


def audit_report(call: Call) -> Response:
    """The audit's report itself, in a sandbox: it brings its own script, not the console's."""
    folder = call.console.audit
    path = None if folder is None else folder / "report.html"
    if path is None or not path.is_file():
        return render(call, "error.html", 404, message="There is no report.")
    policy = (
        "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
    )
    return Response(
        path.read_bytes(), media_type="text/html", headers={"content-security-policy": policy}
    )


def settlement(call: Call) -> Response:
    """The transfers that would clear all balances; posted only after a typed confirmation."""
    return _settlement(call, "")


def _settlement(call: Call, problem: str, status: int = 200) -> Response:
    response = _federation_page(
        call,
        "settlement.html",
        "/settlement",
        settlement=views.settlement(call.viewer),
        reference=call.console.new_reference(),
        problem=problem,
        done=call.text("done"),
    )
    response.status_code = status
    return response


def book(call: Call) -> Response:
    """Export, checkpoint, witnesses, and the check in the browser."""
    viewer = call.viewer
    own = "" if viewer.account is None else viewer.federation.state.accounts[viewer.account].member
    return _federation_page(
        call,
        "book.html",
        "/book",
        head=views.tree_head(viewer),
        witnesses=views.witnesses(viewer),
        keys=viewer.federation.state.changes.witnesses,
        own=own,
        signs=call.console.signer is not None,
    )
