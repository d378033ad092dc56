"""Behind a proxy that speaks TLS: forms, cookies, and tokens that the proxy adds."""

import pytest

from verax.ledger import Book

from .conftest import CLINICS, make_tokens, served


@pytest.fixture
def behind(filled, tmp_path):
    """A console that browsers reach as https://console.example.org."""
    with served(filled, tmp_path / "console", secure=True, behind_proxy=True) as at:
        make_tokens(at)
        yield at


def asked(at, token=None, cookies=None):
    """A client whose requests look as nginx forwards them."""
    headers = {"host": "localhost", "x-forwarded-for": "203.0.113.7"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}".strip()
    client = at.client(cookies=cookies)
    client.headers.update(headers)
    return client


ORIGIN = {"origin": "https://localhost"}


def signed_in(client, at, who):
    done = client.post("/sign-in", data={"token": at.tokens[who]}, headers=ORIGIN)
    assert done.status_code == 303, done.text
    assert "Secure" in done.headers["set-cookie"]
    # httpx sends no Secure cookie over http, and between the proxy and the console there is http.
    return {"cookie": done.headers["set-cookie"].partition(";")[0]}


def form_key(client, headers, path):
    page = client.get(path, headers=headers)
    assert page.status_code == 200
    return page.text.split('name="form_key" value="')[1].split('"')[0]


@pytest.mark.parametrize("token", [None, ""])
def test_an_operator_signs_in_and_sends_the_forms(behind, token):
    """With the empty token, too, that a proxy adds for people that it does not know."""
    with asked(behind, token) as client:
        headers = signed_in(client, behind, "operator")
        key = form_key(client, headers, f"/f/{CLINICS}/balances")
        data = {"form_key": key, "member": "a", "amount": "x", "reference": "r"}
        refused = client.post(f"/f/{CLINICS}/deposit", data=data, headers=headers | ORIGIN)
        assert refused.status_code == 422  # the form arrived: only its amount is wrong
        elsewhere = headers | {"origin": "http://localhost"}
        assert (
            client.post("/sign-out", data={"form_key": key}, headers=elsewhere).status_code == 403
        )
        done = client.post("/sign-out", data={"form_key": key}, headers=headers | ORIGIN)
        assert done.status_code == 303
        assert client.get(f"/f/{CLINICS}", headers=headers).status_code == 401


def test_a_person_that_the_proxy_knows_reads_without_a_session(behind):
    with asked(behind, behind.tokens["operator"]) as client:
        page = client.get(f"/f/{CLINICS}/settlement").text
        assert "Settlement" in page
        assert "Sign out" not in page  # there is no session that could end
        assert "sign in with your token" in page
        headers = signed_in(client, behind, "operator")
        assert form_key(client, headers, f"/f/{CLINICS}/settlement")


def test_a_session_of_another_token_gives_the_proxys_person_no_form(behind):
    with asked(behind) as client:
        cookie = signed_in(client, behind, "operator")
    with asked(behind, behind.tokens["a"]) as client:
        page = client.get(f"/f/{CLINICS}/balances", headers=cookie)
        assert page.status_code == 200
        assert "form_key" not in page.text
        assert client.get(f"/f/{CLINICS}/audit", headers=cookie).status_code == 403


def test_the_log_names_who_asked_the_proxy(behind):
    with asked(behind, behind.tokens["a"]) as client:
        client.get(f"/f/{CLINICS}")
    assert '"address": "203.0.113.7"' in behind.log.splitlines()[-1]


def test_without_a_proxy_nobody_says_who_asks(own):
    own.get("/healthz", headers={"x-forwarded-for": "203.0.113.7"})
    assert "203.0.113.7" not in own.log
    with Book.open(own.path) as book:
        assert book.federations()
