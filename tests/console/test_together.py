"""What many do at the same moment: reading the book, live pages, downloads."""

import asyncio
import threading
import time
from contextlib import suppress

import httpx
import pytest

from verax.console import downloads, live
from verax.console.api import _export_parts
from verax.console.app import create_app
from verax.console.follow import Library
from verax.ledger import Book, Report
from verax.mechanism import Price, Terms

from .conftest import CLINICS, fill


def post(path, round_, run="spring"):
    with Book.open(path) as book:
        book.post("clinics", run, round_, [Report(m, statistic=1.0) for m in "abc"])


def test_a_record_is_added_once_however_many_read_the_book(tmp_path):
    path = fill(tmp_path / "book.db")
    with Book.open(path, read_only=True) as book:
        library = Library(book)
        followed = library.find(CLINICS)
        for t in range(4, 24):
            post(path, t)
            start = threading.Barrier(4)

            def read(start=start):
                start.wait()
                library.refresh()

            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not followed.problem
            assert len(followed.rounds) == t


def test_pages_are_told_what_a_form_has_read(tmp_path):
    """Whoever reads the book first, everybody who waits is woken."""
    path = fill(tmp_path / "book.db")

    async def told():
        with Book.open(path, read_only=True) as book:
            library, news, stop = Library(book), live.News(), asyncio.Event()
            following = asyncio.create_task(live.follow(library, news, 0.01, stop))
            await asyncio.sleep(0.05)
            upcoming = news.upcoming()
            post(path, 4)
            library.refresh()
            await asyncio.wait_for(upcoming.wait(), 60)
            stop.set()
            await following

    asyncio.run(told())


def test_an_unexpected_error_is_said_and_ends_nothing(tmp_path, monkeypatch):
    path = fill(tmp_path / "book.db")

    async def told():
        with Book.open(path, read_only=True) as book:
            library, news, stop = Library(book), live.News(), asyncio.Event()
            right = library.refresh
            monkeypatch.setattr(library, "refresh", lambda: 1 / 0)
            following = asyncio.create_task(live.follow(library, news, 0.01, stop))
            while "ZeroDivisionError" not in library.find(CLINICS).problem:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(library, "refresh", right)
            post(path, 4)
            while library.problem or len(library.find(CLINICS).rounds) < 4:
                await asyncio.sleep(0.01)
            assert not library.find(CLINICS).problem
            stop.set()
            await following

    asyncio.run(asyncio.wait_for(told(), 60))


def test_what_is_booked_while_a_line_is_sent_is_sent_at_once(own, monkeypatch):
    """Not after the next heartbeat: here there is none."""
    monkeypatch.setattr(live, "_HEARTBEAT", 3600.0)
    address = f"/f/{CLINICS}/events"
    with (
        own.client(
            own.tokens["a"],
        ) as client,
        client.stream("GET", address) as stream,
    ):
        lines = stream.iter_lines()
        for t in range(4, 14):
            post(own.path, t)
        seen = 0
        for line in lines:
            if line.startswith("id: "):
                seen = int(line.removeprefix("id: "))
            if seen == 19:
                return
    raise AssertionError(seen)


def test_a_book_that_cannot_be_read_is_told_to_live_pages(own):
    with own.client(own.tokens["a"]) as client:
        with client.stream("GET", f"/f/{CLINICS}/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            own.console.library.refresh = lambda: own.console.library.fail("no more")
            assert any(line == "id: 9!" for line in lines)
        assert "The book cannot be read any further" in client.get(f"/f/{CLINICS}/live").text


def test_requests_at_the_same_moment_do_not_get_past_the_limit_of_streams(own):
    """The place is taken before the answer begins, not when its first line is sent."""
    statuses = []

    def ask():
        address, deadline = f"/f/{CLINICS}/events", time.monotonic() + 60
        with own.client(own.tokens["a"]) as client, client.stream("GET", address) as stream:
            statuses.append(stream.status_code)
            while len(statuses) < 40 and time.monotonic() < deadline:
                time.sleep(0.01)  # kept open until everybody has an answer

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 8 + [429] * 32


class Unread:
    """A request whose answer begins and is never read."""

    def __init__(self, app, path, token):
        self.status = None
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "state": {},
            "http_version": "1.1", "scheme": "http", "server": ("localhost", 80),
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        await asyncio.Event().wait()

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["body"] and self.status == 200:
            await asyncio.Event().wait()

    async def begun(self):
        while self.status is None:
            await asyncio.sleep(0.01)
        return self.status


def test_downloads_that_nobody_reads_leave_the_console_to_the_others(own):
    app = create_app(own.console, {"localhost"})
    path = f"/api/v1/federations/{CLINICS}/export"

    async def many():
        unread = [Unread(app, path, own.tokens["operator"]) for _ in range(18)]
        statuses = sorted([await each.begun() for each in unread])
        assert statuses == [200] * 2 + [429] * 16
        assert own.console.library.book.engine.pool.checkedout() == 0
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for page in ("/healthz", f"/f/{CLINICS}/members/1"):
                headers = {"authorization": f"Bearer {own.tokens['a']}"}
                assert (await client.get(page, headers=headers)).status_code == 200
        for each in unread:
            each.task.cancel()
            with suppress(asyncio.CancelledError):
                await each.task
        assert own.console.exports.taken(1) == 0
        again = Unread(app, path, own.tokens["operator"])
        assert await again.begun() == 200
        again.task.cancel()

    asyncio.run(asyncio.wait_for(many(), 60))


def test_an_export_in_many_parts_is_the_same_file(tmp_path, monkeypatch):
    path = tmp_path / "book.db"
    with Book.create(path) as book:
        book.create_federation("clinics", Terms(Price.constant(1.0)))
        for t in range(1, 30):
            book.post("clinics", "r", t, [Report("a", statistic=t), Report("b", statistic=1.0)])
        monkeypatch.setattr(downloads, "_RECORDS_AT_ONCE", 7)
        last = book.length("clinics")
        parts = list(_export_parts(book, "clinics", last))
        assert len(parts) == -(-last // 7) + 1
        from verax.ledger.export import export_lines

        assert b"".join(parts) == b"".join(export_lines(book, "clinics"))


@pytest.mark.parametrize("who", ["a", "operator"])
def test_a_page_states_the_records_that_it_shows(own, who):
    page = own.get(f"/f/{CLINICS}", who).text
    assert 'data-version="9"' in page
