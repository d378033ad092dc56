"""Tokens and sessions, in Python and by the command."""

import json
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

from verax.console.access import Access
from verax.console.server import check_address

from ..command import verax
from .conftest import Clock, fill


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def access(tmp_path, clock):
    return Access(tmp_path / "access.db", clock)


def test_a_token_is_accepted_until_it_expires(access, clock):
    text = access.create(2, federation="clinics", member="a")
    found = access.token(text)
    assert (found.role, found.federation, found.member) == ("member", "clinics", "a")
    clock.pass_(days=1, hours=23)
    assert access.token(text) == found
    clock.pass_(hours=1)
    assert access.token(text) is None


def test_two_tokens_are_never_the_same_and_none_is_stored(access, tmp_path):
    made = {access.create(1) for _ in range(20)}
    assert len(made) == 20
    stored = (tmp_path / "access.db").read_bytes().decode("latin1")
    assert not [text for text in made if text in stored or text[3:] in stored]
    assert stat.S_IMODE((tmp_path / "access.db").stat().st_mode) == 0o600


def test_revoking_ends_the_token_and_its_sessions(access):
    text = access.create(1)
    cookie = access.sign_in(text)
    assert access.session(cookie).token.is_operator
    access.revoke(1)
    assert access.token(text) is None
    assert access.session(cookie) is None
    assert access.sign_in(text) is None
    with pytest.raises(ValueError, match="no token 7"):
        access.revoke(7)


def test_sessions_end_by_themselves_and_by_signing_out(access, clock):
    text = access.create(30)
    first, second = access.sign_in(text), access.sign_in(text)
    assert first != second
    assert access.session(first).form_key != access.session(second).form_key
    access.sign_out(first)
    assert access.session(first) is None
    clock.pass_(hours=11)
    assert access.session(second) is not None
    clock.pass_(hours=1)
    assert access.session(second) is None


def test_a_session_does_not_outlive_its_token(access, clock):
    cookie = access.sign_in(access.create(1 / 24))
    clock.pass_(minutes=59)
    assert access.session(cookie) is not None
    clock.pass_(minutes=1)
    assert access.session(cookie) is None


@pytest.mark.parametrize("days", [0, -1, 4000, float("nan")])
def test_a_token_lasts_a_while_and_not_for_ever(access, days):
    with pytest.raises(ValueError, match="days is"):
        access.create(days)


@pytest.mark.parametrize(
    "text", ["", "vx_", "x" * 10**6, "vx_" + "é" * 43, "vx_" + "A" * 43 + "\n"]
)
def test_odd_texts_are_no_tokens(access, text):
    assert access.token(text) is None


def test_tokens_by_the_command(tmp_path):
    book = fill(tmp_path / "book.db")
    made = verax(["console", "token", book, "--member", "North", "--federation", "clinics"])
    assert made.returncode == 0
    folder = tmp_path / "book.db.console"
    assert Access(folder / "access.db").token(made.stdout.strip()).member == "a"
    verax(["console", "token", book, "--days", "3"])
    listed = json.loads(verax(["console", "tokens", book, "--json"]).stdout)
    assert [row["role"] for row in listed] == ["member", "operator"]
    assert "hash" not in listed[0]
    assert verax(["console", "revoke", book, "1"]).returncode == 0
    assert Access(folder / "access.db").token(made.stdout.strip()) is None
    assert "revoked" in verax(["console", "tokens", book]).stdout


def test_the_command_says_what_is_wrong(tmp_path):
    book = fill(tmp_path / "book.db")
    for words, message in (
        (["console", "token", book, "--member", "Nobody", "--federation", "clinics"], "Nobody"),
        (["console", "token", book, "--member", "North"], "which federation?"),
        (["console", "token", tmp_path / "none.db"], "does not exist"),
        (["console", book, "--host", "0.0.0.0"], "tokens would travel unencrypted"),
        (["console", book, "--certfile", "x.pem"], "both --certfile and --keyfile"),
        (["console", book, "--audit", tmp_path], "holds no audit.json"),
        (["console", "revoke", book, "9"], "no token 9"),
    ):
        done = verax(words)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "none.db.console").exists()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("localhost", True), ("::1", True), ("[::1]", True),
     ("0.0.0.0", False), ("::", False), ("192.168.1.1", False), ("example.org", False),
     ("127.0.0.1.evil", False), ("", False)],
)  # fmt: skip
def test_only_loopback_goes_without_tls(host, loopback, tmp_path):
    if loopback:
        assert check_address(host, None, None) is False
    else:
        with pytest.raises(ValueError, match="unencrypted"):
            check_address(host, None, None)
    assert check_address(host, tmp_path, tmp_path) is True


def test_the_extra_agrees_with_flower(pytestconfig):
    """Both live in one environment: what flwr needs of Starlette and uvicorn is what we need."""
    text = (pytestconfig.rootpath / "pyproject.toml").read_text()
    ours = tomllib.loads(text)["project"]["optional-dependencies"]["console"]
    theirs = " ".join(
        line for line in requires("flwr") if line.startswith(("starlette", "uvicorn"))
    )
    assert "starlette>=1.3.1,<1.4" in ours[0]
    assert "starlette>=1.3.1,<1.4.0" in theirs
    assert "uvicorn>=0.49,<0.50" in ours[1]
    assert "uvicorn[standard]>=0.49.0,<0.50.0" in theirs


@pytest.mark.parametrize(
    ("given", "begin"),
    [
        ((), "http://127.0.0.1:0/sign-in#token=vx_"),
        (("--host", "::1"), "http://[::1]:0/sign-in#token=vx_"),
        (("--behind-tls",), "https://127.0.0.1:0/sign-in#token=vx_"),
        (("--behind-tls", "--name", "c.example"), "https://c.example/sign-in#token=vx_"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_the_link_leads_to_where_browsers_reach_the_console(tmp_path, given, begin):
    book = fill(tmp_path / "book.db")
    program = Path(sys.executable).with_name("verax")
    command = [program, "console", book, "--port", "0", *given]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        line = process.stdout.readline()
        process.terminate()
        notes = process.stderr.read()
    assert line.startswith(f"Console: {begin}")
    assert "note: the terms of 'open amounts' show all amounts" in notes
    assert "open norms" not in notes
