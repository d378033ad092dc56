"""A console on a real socket, with two federations and a token of every kind."""

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verax.console.access import Access
from verax.console.app import Console, create_app
from verax.console.follow import Library, key_of
from verax.console.log import AccessLog
from verax.console.server import make_server
from verax.ledger import Book, Report
from verax.mechanism import Openness, Price, Terms

#: Federations that open one thing to all members and keep the other to each.
MIXED = {"open amounts": Openness("all", "own"), "open norms": Openness("own", "all")}
OPERATOR_KEY = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Clock:
    """A time that passes only when a test says so."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now

    def pass_(self, **duration):
        self.now += timedelta(**duration)


def fill(path, **given):
    """`clinics` keeps everything to each member; `banks` is open to all its members."""
    with Book.create(path, clock=lambda: NOW) as book:
        book.create_federation(
            "clinics", Terms(Price.constant(0.5), currency="EUR", scale=2, **given)
        )
        for member, label in (("a", "North"), ("b", "South"), ("c", "West")):
            book.join("clinics", member, label)
        for t in range(1, 4):
            values = {"a": 41.31 + t, "b": 77.123 + t, "c": 15.519 + t}
            reports = [Report(member, statistic=value) for member, value in values.items()]
            book.post("clinics", "spring", t, reports)
        book.deposit("clinics", "b", 98_765, "an advance of South", reference="d-1")
        book.set_limit("clinics", 54_321, "b")
        both = Openness("all", "all")
        book.create_federation("banks", Terms(Price.constant(1.0), openness=both))
        book.post("banks", "r", 1, [Report("x", statistic=2.0), Report("y", statistic=1.0)])
        for name, openness in MIXED.items():
            book.create_federation(name, Terms(Price.constant(1.0), openness=openness))
            reports = [Report("u", statistic=7.125), Report("v", statistic=3.0625)]
            reports.append(Report("w", "rejected", reason="a shape of Vs"))
            book.post(name, "r", 1, reports)
    return path


@dataclass
class Served:
    """A console that answers, and what a test needs to know of it."""

    url: str
    path: Path
    folder: Path
    access: Access
    console: Console
    clock: Clock
    tokens: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str | None] = field(default_factory=dict)

    @property
    def log(self):
        return (self.folder / "access.log").read_text()

    def client(self, token="", **kwargs):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=False, **kwargs)

    def get(self, path, who="", **kwargs):
        with self.client(self.tokens.get(who, who)) as client:
            return client.get(path, **kwargs)

    @contextmanager
    def signed_in(self, who):
        """A client with a session, and the key of its forms."""
        with self.client() as client:
            done = client.post("/sign-in", data={"token": self.tokens[who]})
            assert done.status_code == 303, done.text
            page = client.get("/", follow_redirects=True).text
            yield client, page.split('name="form_key" value="')[1].split('"')[0]


@contextmanager
def served(path, folder, *, behind_proxy=False, **kwargs):
    folder.mkdir(exist_ok=True)
    clock = Clock()
    access = Access(folder / "access.db", clock)
    log = AccessLog(folder / "access.log", clock)
    with Book.open(path, read_only=True) as book:
        console = Console(Library(book), path, access, log, every=0.05, **kwargs)
        app = create_app(console, {"127.0.0.1", "localhost"})
        server = make_server(app, log, "127.0.0.1", 0, behind_proxy=behind_proxy)
        ready = threading.Event()
        startup = server.startup

        async def started(*args, **kwargs):
            await startup(*args, **kwargs)
            ready.set()

        server.startup = started
        thread = threading.Thread(target=server.run)
        thread.start()
        assert ready.wait(60)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield Served(f"http://127.0.0.1:{port}", path, folder, access, console, clock)
        finally:
            server.should_exit = True
            thread.join(60)
            log.close()


def make_tokens(at):
    """A token of every kind, and a session that began with it."""
    access = at.access
    at.tokens |= {
        "operator": access.create(30),
        "a": access.create(30, federation="clinics", member="a"),
        "b": access.create(30, federation="clinics", member="b"),
        "x": access.create(30, federation="banks", member="x"),
        "of nobody": access.create(30, federation="clinics", member="nobody"),
        "of escrow": access.create(30, federation="clinics", member="escrow"),
        "unknown": "vx_" + "A" * 43,
        "no token": "hello",
    }
    at.tokens["revoked"] = access.create(30)
    at.cookies = {who: access.sign_in(text) for who, text in at.tokens.items()}
    access.revoke(access.tokens()[-1].id)
    at.clock.now -= timedelta(days=10)
    at.tokens["expired"] = access.create(5)
    at.cookies["expired"] = access.sign_in(at.tokens["expired"])
    at.clock.now = NOW
    at.cookies["signed out"] = access.sign_in(at.tokens["operator"])
    access.sign_out(at.cookies["signed out"])


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("filled") / "book.db")


@pytest.fixture(scope="session")
def at(filled, tmp_path_factory):
    """A console that no test changes."""
    folder, signer = tmp_path_factory.mktemp("console"), ("north.example", OPERATOR_KEY)
    with served(filled, folder, signer=signer) as found:
        make_tokens(found)
        yield found


@pytest.fixture
def own(tmp_path):
    """A console of one test alone."""
    with served(fill(tmp_path / "book.db"), tmp_path / "console") as found:
        make_tokens(found)
        yield found


CLINICS, BANKS = key_of("clinics"), key_of("banks")
