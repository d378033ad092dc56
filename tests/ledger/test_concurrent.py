"""Two servers, one book: never two rounds with one key, never a broken chain."""

import json
import subprocess
import sys
from operator import ne

import pytest
from books import norms

from verax.ledger import Book
from verax.verifier import verify

WRITER = """
import json, random, sys, time
from verax.ledger import Book, Report
url, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(name)
posted = []
with Book.open(url) as book:
    print("ready", flush=True)
    sys.stdin.readline()
    for t in range(1, rounds + 1):
        shared = [Report(f"m{t % 5}", statistic=float(t)), Report("m9", statistic=2.0)]
        if book.post("clinics", "shared", t, shared).posted:
            posted.append(t)
        book.post("clinics", name, t, [Report(f"{name}{t % 3}", statistic=float(t))])
        if rng.random() < 0.2:
            book.deposit("clinics", "m9", 1, reference=f"{name} {t}")
        time.sleep(rng.uniform(0, 0.02))  # whoever has the lock would keep it
print(json.dumps(posted))
"""


@pytest.mark.parametrize("writers", [3])
def test_writers_share_a_book(url, terms, writers):
    rounds = 25
    with Book.open(url) as book:
        book.create_federation("clinics", terms)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, f"w{i}", str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(writers)
    ]
    for each in running:
        assert each.stdout.readline() == "ready\n"
    for each in running:
        each.stdin.write("go\n")
        each.stdin.flush()
    posted = []
    for each in running:
        out, err = each.communicate(timeout=120)
        assert each.returncode == 0, err[-2000:]
        posted.append(json.loads(out))
    # every shared round was posted by exactly one of them
    assert sorted(t for part in posted for t in part) == list(range(1, rounds + 1))
    with Book.open(url) as book:
        runs = [run for run, _, _, _ in book.rounds("clinics") if run != "shared"]
    assert sum(map(ne, runs, runs[1:])) > writers, "they did not run at the same time"
    found = verify(url)
    assert found.ok
    assert found.rounds == rounds * (writers + 1)


def test_books_and_federations_created_at_the_same_time(request, tmp_path, postgres):
    code = (
        "import sys; from verax.ledger import Book; from verax.mechanism import Price, Terms\n"
        "with Book.create(sys.argv[1]) as book:\n"
        "    print(book.create_federation('clinics', Terms(Price.constant(0.5))).posted)"
    )
    for url in (str(tmp_path / "new.db"), postgres()):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", code, url],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        said = []
        for each in running:
            out, err = each.communicate(timeout=60)
            assert each.returncode == 0, err[-2000:]
            said.append(out.strip())
        assert sorted(said) == ["False", "False", "True"]
        assert verify(url).ok


def test_threads_share_one_book(url, terms):
    from concurrent.futures import ThreadPoolExecutor

    with Book.open(url) as book:
        book.create_federation("clinics", terms)
        with ThreadPoolExecutor(4) as pool:
            done = list(
                pool.map(lambda t: book.post("clinics", "r", t // 2 + 1, norms(4, 1)), range(40))
            )
    assert sum(each.posted for each in done) == 20
    assert verify(url).ok
