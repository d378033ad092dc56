"""Every route with every kind of token, made from the table of routes."""

import re

import httpx
import pytest

from verax.console.app import ROUTES, Stream
from verax.console.call import COOKIE, Need
from verax.console.follow import key_of
from verax.console.viewer import openness_warning
from verax.ledger import Book

from .conftest import BANKS, CLINICS, MIXED, fill, make_tokens, served

KINDS = (
    "", "no token", "unknown", "expired", "revoked", "of nobody", "of escrow",
    "operator", "a", "b", "x",
)  # fmt: skip

#: Who may call a route about clinics, and about South's account (number 2) there.
ALLOWED = {
    Need.NOTHING: {*KINDS, "signed out"},
    Need.TOKEN: {"operator", "a", "b", "x", "of nobody", "of escrow"},
    Need.FEDERATION: {"operator", "a", "b"},
    Need.ACCOUNT: {"operator", "b"},
    Need.EXPORT: {"operator"},
    Need.EVIDENCE: {"operator"},
    Need.OPERATOR: {"operator"},
}


def address(route, federation=CLINICS, account=2):
    path = route.path.replace("{federation}", federation).replace("{account:account}", str(account))
    return path.replace("{name:path}", "console.css")


def status(at, route, who, *, by_session=False, **places):
    """The status of a request; a stream is left after its first bytes."""
    path = address(route, **places)
    cookie = at.cookies.get(who) or "made-up"
    given = {"cookies": {COOKIE: cookie}} if by_session else {"token": at.tokens.get(who, "")}
    with at.client(**given) as client:
        if isinstance(route, Stream):
            with client.stream("GET", path) as answer:
                return answer.status_code
        return client.request(route.method, path).status_code


GETS = [route for route in ROUTES if route.method == "GET"]


@pytest.mark.parametrize("route", GETS, ids=lambda route: route.path)
@pytest.mark.parametrize("by_session", [False, True], ids=["token", "session"])
def test_a_route_opens_to_those_it_is_for_and_to_nobody_else(at, route, by_session):
    for who in (*KINDS, "signed out"):
        found = status(at, route, who, by_session=by_session)
        if who in ALLOWED[route.need]:
            assert found in (200, 303) or route.path.endswith("/report"), (who, found)
        else:
            assert found in (401, 403, 404), (who, found)


@pytest.mark.parametrize("route", GETS, ids=lambda route: route.path)
def test_no_route_shows_a_member_what_is_anothers(at, route):
    """South's norms, amounts, balance, limit and advance; whatever the address asks for."""
    secrets = ("78.123", "79.123", "80.123", "98765", "987.65", "54321", "543.21", "an advance")
    for who in ("a", "x", ""):
        for account in (1, 2, 3):
            path = address(route, account=account)
            with at.client(at.tokens.get(who, "")) as client, client.stream("GET", path) as answer:
                seen = next(answer.iter_text(), "") if isinstance(route, Stream) else (
                    answer.read().decode()
                )  # fmt: skip
            assert not [secret for secret in secrets if secret in seen], (who, path)


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("route", GETS, ids=lambda route: route.path)
def test_what_is_open_does_not_open_the_rest(at, route, name):
    """U looks: V's norm is 3.0625 and V owes −2.0625; W's reason is a word about its update."""
    token = at.access.create(1, federation=name, member="u")
    secret_norms, secret_amounts = ("3.0625", "a shape of Vs"), ("4062500", "4.0625")
    secrets = secret_norms if MIXED[name].norms == "own" else secret_amounts
    for account in (1, 2, 3):
        path = address(route, key_of(name), account)
        with at.client(token) as client, client.stream("GET", path) as answer:
            seen = next(answer.iter_text(), "") if isinstance(route, Stream) else (
                answer.read().decode()
            )  # fmt: skip
        assert not [secret for secret in secrets if secret in seen], path


def test_what_is_open_is_shown(at):
    def lines(name):
        token = at.access.create(1, federation=name, member="u")
        return at.get(f"/api/v1/federations/{key_of(name)}/rounds", token).json()[0]["lines"]

    u, v, w = lines("open amounts")
    assert (u["norm"], v["norm"], w["reason"]) == (7.125, None, "")
    assert None not in (u["amount"], v["amount"], w["amount"])
    u, v, w = lines("open norms")
    assert (u["norm"], v["norm"], w["reason"]) == (7.125, 3.0625, "a shape of Vs")
    assert (v["amount"], w["amount"]) == (None, None)


def test_amounts_reveal_norms_as_the_documentation_says(at):
    """Σ payments known and one's own norm: p_i − p_j = C n/(n−1) (s_i − s_j)."""
    with Book.open(at.path, read_only=True) as book:
        (body,) = [r.body for r in book.records("open amounts") if r.kind == "round"]
    (own, other, _), n = body.payments, 3  # W, rejected, is charged like the largest
    assert 7.125 - (own - other) * (n - 1) / n == pytest.approx(3.0625)
    library = at.console.library
    assert [each.name for each in library.federations if openness_warning(each)] == ["open amounts"]


def test_the_secrets_are_shown_to_their_owner_and_to_the_operator(at):
    for who in ("b", "operator"):
        seen = at.get(f"/api/v1/federations/{CLINICS}/members/2/statement", who).text
        assert "80.123" in seen
        assert "98765" in seen
        assert "54321" in seen


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written_but_by_the_forms(at, method):
    writable = {route.path for route in ROUTES if route.method == "POST"}
    for route in GETS:
        if method != "POST" or route.path not in writable:
            with at.client(at.tokens["operator"]) as client:
                assert client.request(method, address(route)).status_code == 405


def test_forms_need_a_session_and_not_only_a_token(at):
    for route in ROUTES:
        if route.method == "POST" and route.need is not Need.NOTHING:
            for who in KINDS:
                with at.client(at.tokens.get(who, "")) as client:
                    answer = client.post(address(route), data={"form_key": ""})
                assert answer.status_code in (401, 403, 404), (route.path, who)


def test_a_federation_that_is_open_shows_its_members_everything(at):
    lines = at.get(f"/api/v1/federations/{BANKS}/rounds", "x").json()[0]["lines"]
    assert [(line["member"], line["norm"], line["amount"]) for line in lines] == [
        ("x", 2.0, 1_000_000),
        ("y", 1.0, -1_000_000),
    ]
    assert at.get(f"/api/v1/federations/{BANKS}/export", "x").status_code == 200
    receipts = f"/api/v1/federations/{BANKS}/members/{{}}/receipts.jsonl"
    assert at.get(receipts.format(1), "x").status_code == 200
    assert at.get(receipts.format(2), "x").status_code == 403
    assert at.get(f"/api/v1/federations/{BANKS}/members/2/statement", "x").status_code == 403
    assert at.get(f"/api/v1/federations/{CLINICS}/export", "a").status_code == 403


def test_a_book_on_postgresql_is_shown_as_the_same_book_on_sqlite(at, postgres, tmp_path):
    """Every page, the API and the export, to the operator and to a member."""
    changing = r'value="[0-9a-f]{32}"'  # what a form sends so that it books once
    with served(fill(postgres()), tmp_path / "console", signer=at.console.signer) as other:
        make_tokens(other)
        for route in GETS:
            if not isinstance(route, Stream):
                for who in ("operator", "b"):
                    one, two = (each.get(address(route), who) for each in (at, other))
                    assert one.status_code == two.status_code, route.path
                    assert re.sub(changing, "", one.text) == re.sub(changing, "", two.text)


def test_the_openapi_document_lists_every_address_of_the_api(at):
    document = at.get("/api/v1/openapi.json").json()
    served = {re.sub(r"\{(\w+):\w+\}", r"{\1}", r.path) for r in ROUTES if "/api/" in r.path}
    assert set(document["paths"]) == served
    for path, operations in document["paths"].items():
        named = {p["name"] for p in operations["get"]["parameters"] if p["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
        assert operations["get"]["summary"]


def test_whoever_is_not_signed_in_is_asked_to_be(at):
    page = at.get(f"/f/{CLINICS}")
    assert page.status_code == 401
    assert 'name="token"' in page.text
    answer = at.get(f"/api/v1/federations/{CLINICS}")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "error" in answer.json()


def test_every_access_and_every_refusal_is_in_the_log(own):
    with httpx.Client(base_url=own.url) as client:
        client.get("/healthz")
    own.get(f"/f/{CLINICS}/settlement", "a")
    own.get("/nowhere", "operator")
    lines = [line for line in own.log.splitlines() if line]
    assert '"path": "/healthz", "status": 200' in lines[-3]
    assert '"who": "a #2"' in lines[-2]
    assert '"status": 403' in lines[-2]
    assert '"path": "/nowhere", "status": 404' in lines[-1]
