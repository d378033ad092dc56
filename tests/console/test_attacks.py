"""Attacks on the console; each is tried and refused."""

import json
import re
import socket
import time

import httpx
import pytest

from verax.console import call as calls
from verax.console import limits, server
from verax.console.follow import key_of
from verax.console.shield import POLICY
from verax.ledger import Book, Report
from verax.mechanism import Price, Terms

from .conftest import BANKS, CLINICS, make_tokens, served

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' {{7*7}} %s"


def raw(at, request, *, seconds=30.0):
    """What the server answers to these bytes."""
    host, port = at.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
            if b"\r\n\r\n" in answer:
                break
    return answer


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/cli/main.py",
        "/static/....//app.py",
        "/static//etc/passwd",
        "/static/verify/..%5c..%5capp.py",
        "/static/console.css%00.js",
        "/f/..%2f..%2fetc%2fpasswd",
        "/f/%2e%2e/audit/report",
        "/api/v1/federations/../../metrics",
    ],
)
def test_no_path_leads_out_of_the_console(at, path):
    """Sent as raw bytes: a client would tidy the path up."""
    token = at.tokens["a"]
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    answer = raw(at, f"{head}Connection: close\r\n\r\n".encode())
    assert answer.split()[1] in (b"400", b"403", b"404"), answer[:200]
    assert b"root:" not in answer
    assert b"import" not in answer


def test_nothing_in_a_request_adds_a_line_or_a_header(own):
    path = "/f/x%0d%0aSet-Cookie:%20evil=1%0d%0a%7b%22who%22:%22operator%22%7d"
    answer = own.get(path, "operator")
    assert "evil" not in str(answer.headers)
    own.get(f"/f/{CLINICS}/balances?done=%0d%0aX-Evil:%201", "operator")
    own.get("/%1b[2J\u2028", "operator")
    rows = [json.loads(line) for line in own.log.splitlines()]
    assert {"time", "who", "address", "method", "path", "status"} <= set(rows[-3])
    assert {row["who"] for row in rows[-3:]} <= {"operator #1", ""}
    assert "\x1b" not in own.log


def test_a_header_with_a_line_break_is_refused(at):
    answer = raw(at, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\rb\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")


def test_names_of_members_and_federations_stay_text(tmp_path):
    with Book.create(tmp_path / "book.db") as book:
        book.create_federation(HOSTILE, Terms(Price.constant(1.0)))
        book.join(HOSTILE, "m" + HOSTILE, HOSTILE)
        book.join(HOSTILE, "=1+1", "@SUM(A1)")
        reports = [
            Report("m" + HOSTILE, "rejected", reason=HOSTILE),
            Report("=1+1", statistic=1.0),
        ]
        book.post(HOSTILE, HOSTILE, 1, reports)
        book.post(HOSTILE, HOSTILE, 2, [Report("=1+1", statistic=1.0), Report("z", statistic=2.0)])
        book.deposit(HOSTILE, "=1+1", 5, HOSTILE, reference="d")
    with served(tmp_path / "book.db", tmp_path / "console") as at:
        make_tokens(at)
        base = f"/f/{key_of(HOSTILE)}"
        for path in (
            "/", base, f"{base}/live", f"{base}/rounds", f"{base}/balances", f"{base}/terms",
            f"{base}/settlement", f"{base}/book", f"{base}/members/1", f"{base}/members/2",
            f"{base}/balances?search={HOSTILE}", f"{base}/rounds?run={HOSTILE}",
        ):  # fmt: skip
            answer = at.get(path, "operator", follow_redirects=True)
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
            assert "<img" not in answer.text
            assert "49" not in re.sub(r"[0-9a-f]{16,}|\d{4}-\d\d-\d\d", "", answer.text)
            assert answer.headers["content-security-policy"] == POLICY
        table = at.get(f"/api/v1/federations/{key_of(HOSTILE)}/settlement.csv", "operator")
        assert "'@SUM(A1)" in table.text
        assert re.search(r'filename="[\w.-]+"$', table.headers["content-disposition"])
        metrics = at.get("/metrics", "operator").text
        assert '\\"' in metrics
        assert len([line for line in metrics.splitlines() if "verax_balance{" in line]) == 3


def test_scripts_and_styles_are_never_inline(at):
    for path in (f"/f/{CLINICS}", f"/f/{CLINICS}/book", f"/f/{CLINICS}/settlement", "/sign-in"):
        answer = at.get(path, "operator", follow_redirects=True)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", answer.text)


def test_every_answer_has_the_headers(at):
    for path in ("/healthz", "/nowhere", "/sign-in", f"/f/{CLINICS}", "/static/console.js"):
        headers = at.get(path, "operator").headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers
    assert at.get(f"/f/{CLINICS}", "operator").headers["cache-control"] == "no-store"


def test_another_host_is_refused(at):
    """A page elsewhere may resolve its own name to this machine (DNS rebinding)."""
    for host in ("evil.example", "127.0.0.1.evil.example", "", "127.0.0.1@evil.example"):
        assert at.get("/healthz", headers={"host": host}).status_code == 400
    assert at.get("/healthz", headers={"host": "LOCALHOST:8765"}).status_code == 200


# Forms


def test_a_form_of_another_site_books_nothing(own):
    with own.signed_in("operator") as (client, key):
        data = {"member": "a", "amount": "1", "reference": "evil"}
        address = f"/f/{CLINICS}/deposit"
        assert client.post(address, data=data).status_code == 403
        assert client.post(address, data=data | {"form_key": "x"}).status_code == 403
        elsewhere = {"origin": "https://evil.example"}
        right = data | {"form_key": key}
        assert client.post(address, data=right, headers=elsewhere).status_code == 403
        with own.signed_in("operator") as (_, other):
            assert client.post(address, data=data | {"form_key": other}).status_code == 403
        kind = {"content-type": "text/plain"}
        assert (
            client.post(address, content=b"form_key=" + key.encode(), headers=kind).status_code
            == 415
        )
        assert client.post("/sign-out", data={"form_key": "x"}).status_code == 403
        with Book.open(own.path) as book:
            assert "evil" not in book.state("clinics").references
        assert client.post(address, data=right).status_code == 303


def test_another_site_cannot_sign_a_browser_in(own):
    """Whoever is signed in to somebody else's account may not notice it."""
    with own.client() as client:
        data = {"token": own.tokens["a"]}
        for origin in ("https://evil.example", "null", own.url.replace("http", "https")):
            answer = client.post("/sign-in", data=data, headers={"origin": origin})
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers
        assert client.post("/sign-in", data=data, headers={"origin": own.url}).status_code == 303


def test_the_log_says_whose_token_signed_in(own):
    with own.client() as client:
        client.post("/sign-in", data={"token": own.tokens["b"]})
    with own.client() as client:
        client.post("/sign-in", data={"token": own.tokens["revoked"]})
    rows = [json.loads(line) for line in own.log.splitlines() if "/sign-in" in line]
    assert [(row["who"], row["status"]) for row in rows[-2:]] == [("b #3", 303), ("", 401)]


def test_a_session_that_somebody_chose_is_not_taken_over(own):
    """Session fixation: the cookie after the sign-in is a new one, whatever was sent before."""
    with own.client(cookies={calls.COOKIE: "chosen-by-the-attacker"}) as client:
        answer = client.post("/sign-in", data={"token": own.tokens["operator"]})
        cookie = answer.headers["set-cookie"]
    assert "chosen-by-the-attacker" not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie  # the test's console has no TLS
    stolen = httpx.get(own.url + "/", cookies={calls.COOKIE: "chosen-by-the-attacker"})
    assert stolen.status_code == 401


def test_under_tls_the_cookie_is_secure_and_the_browser_stays_there(tmp_path, filled):
    with served(filled, tmp_path / "console", secure=True) as at:
        make_tokens(at)
        with at.client() as client:
            answer = client.post("/sign-in", data={"token": at.tokens["a"]})
        assert "Secure" in answer.headers["set-cookie"]
        assert "max-age" in answer.headers["strict-transport-security"]


def test_a_token_in_an_address_opens_nothing_and_is_not_logged(own):
    token = own.tokens["operator"]
    for query in (f"?token={token}", f"?access_token={token}", f"?authorization=Bearer%20{token}"):
        assert own.get(f"/f/{CLINICS}{query}").status_code == 401
    own.get("/sign-in?token=" + token)
    with own.client() as client:
        client.post("/sign-in", data={"token": token})
    assert token not in own.log
    assert token[3:] not in own.log
    assert token not in (own.folder / "access.db").read_bytes().decode("latin1")


def test_guessing_tokens_is_slowed_down(own):
    with own.client() as client:
        for _ in range(limits.MOST_FAILURES):
            assert client.post("/sign-in", data={"token": "vx_guess"}).status_code == 401
        refused = client.post("/sign-in", data={"token": own.tokens["operator"]})
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert "verax_session" not in refused.headers.get("set-cookie", "")


# Sizes and times


def test_oversized_requests_are_refused(at):
    with at.client() as client:
        body = b"token=" + b"x" * (calls.MOST_BYTES + 1)
        kind = {"content-type": "application/x-www-form-urlencoded"}
        assert client.post("/sign-in", content=body, headers=kind).status_code == 413
        many = "&".join(f"a{i}=1" for i in range(50)).encode()
        assert client.post("/sign-in", content=many, headers=kind).status_code == 400
        assert client.post("/sign-in", content=b"a=\xff", headers=kind).status_code in (400, 401)
    head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 300_000
    assert raw(at, head).startswith(b"HTTP/1.1 400")  # at once: the head never ends


def test_a_form_that_arrives_too_slowly_is_refused(own, monkeypatch):
    monkeypatch.setattr(calls, "FORM_SECONDS", 0.2)
    head = b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
    answer = raw(own, head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken=")
    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("begin", ["", "GET / HTTP/1.1\r\nX: a"])
def test_a_connection_that_is_kept_does_not_hold_a_half_request(
    filled, tmp_path, monkeypatch, begin
):
    """The head of a second request, or the body of a first one that nobody reads, byte by byte."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with served(filled, tmp_path / "console") as at:
        host, port = at.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            length = "" if begin else "Content-Length: 100000\r\n"
            first = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n"
            connection.sendall(first.encode())
            assert b"200 OK" in connection.recv(65536)
            connection.settimeout(0.05)
            connection.sendall(begin.encode() or b"x")
            deadline = time.monotonic() + 60
            closed = False
            while not closed and time.monotonic() < deadline:
                try:
                    connection.sendall(b"x")
                    closed = connection.recv(65536) == b""
                except TimeoutError:
                    continue
                except OSError:
                    closed = True
            assert closed
        assert '"status": 408, "note": "the request did not arrive in time"' in at.log


def test_what_is_no_request_is_in_the_log(own):
    assert raw(own, b"\0\1\2\r\n\r\n").startswith(b"HTTP/1.1 400")
    row = json.loads(own.log.splitlines()[-1])
    assert (row["status"], row["address"]) == (400, "127.0.0.1")


def test_more_connections_than_the_limit_are_refused_and_logged(own, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    host, port = own.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as first:
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in first.recv(65536)
        assert raw(own, b"").startswith(b"HTTP/1.1 503")
    assert '"status": 503, "note": "too many connections"' in own.log


@pytest.mark.parametrize("digits", [10, 5000])
def test_an_account_number_of_many_digits_is_no_account(at, digits):
    for who in ("", "operator"):
        assert at.get(f"/f/x/members/{'9' * digits}", who).status_code == 404


def test_a_connection_that_says_nothing_is_closed(filled, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    with served(filled, tmp_path / "console") as at:
        assert raw(at, b"GET /healthz HTTP/1.1\r\nHost: ") == b""
        with at.client() as client:  # one that speaks is kept
            for _ in range(3):
                assert client.get("/healthz").status_code == 200
                time.sleep(0.15)


def test_live_streams_are_limited(own):
    own.console.streams.each = 3
    address = f"/f/{CLINICS}/events"
    with own.client(own.tokens["a"]) as client:
        streams = [client.stream("GET", address) for _ in range(3)]
        opened = [stream.__enter__().iter_lines() for stream in streams]
        for lines in opened:  # kept: a stream that nobody reads any more is closed
            assert next(lines).startswith("retry")
        assert client.get(address).status_code == 429
        assert own.get("/healthz").status_code == 200
        with own.client(own.tokens["b"]) as other, other.stream("GET", address) as stream:
            assert stream.status_code == 200
        for each in streams:
            each.__exit__(None, None, None)
    deadline = time.monotonic() + 30
    while own.console.streams.taken(2) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert own.console.streams.taken(2) == 0


def test_a_stream_ends_when_its_token_is_revoked(own, monkeypatch):
    from verax.console import live

    monkeypatch.setattr(live, "_HEARTBEAT", 0.1)
    with own.client(own.tokens["a"]) as client, client.stream("GET", f"/f/{CLINICS}/events") as one:
        lines = one.iter_lines()
        next(lines)
        own.access.revoke(2)
        assert all("book" not in line for line in lines)  # until the server ends it


# Search


def test_wildcards_find_nothing_but_themselves(at):
    address = f"/api/v1/federations/{CLINICS}/balances"

    def found(text):
        return [row["label"] for row in at.get(address, "operator", params={"search": text}).json()]

    assert found("sOUt") == ["South"]
    assert len(found("")) == 3
    for text in ("%", "_", "S%", "*", ".", "' OR 1=1 --", "\\", "[a-z]"):
        assert found(text) == []


@pytest.mark.parametrize("number", ["-1", "0", "x", "1e3", "٣", "9" * 30, "1.5", "%00"])
def test_numbers_of_a_query_are_checked(at, number):
    for path in (f"/f/{BANKS}/members/1?page=", f"/api/v1/federations/{BANKS}/rounds?limit="):
        assert at.get(path + number, "operator").status_code == 400
