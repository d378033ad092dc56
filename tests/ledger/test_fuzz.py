"""Exports and terms with bytes changed at random: each is accepted or refused, without a crash."""

import random
from contextlib import suppress
from pathlib import Path

import forgeries
import numpy as np
import pytest

from tests.mutation import SEED, mutated
from verax.ledger import Book, BookError
from verax.ledger.export import import_book
from verax.mechanism import Terms
from verax.verifier import verify
from verax.verifier.forms import WrongRecordError
from verax.verifier.sources import report
from verax.verifier.terms import Terms as VerifiedTerms

PIECES = [
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b"-1",
    b"9" * 5000, b"1e999", b"NaN", b"null", b"true", b"-0.0", b"5e-324", b"[" * 3000, b"\\ud800",
    b'"kind"', b'"round"', b'"end"', b'"sequence":1', b'"amounts":[]', b"\xe2\x80\xae", b"inf",
    b"[price]", b"values", b" = ", b"'''", b"#", b"\r", b"1979-05-27", b"0x1f", b"starts = [2, 1]",
]  # fmt: skip


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """Contents of an open and of a closed federation's records."""
    folder = tmp_path_factory.mktemp("books")
    forgeries.open_book(folder / "open.db")
    forgeries.closed_book(folder / "closed.db")
    return [
        forgeries.contents(folder / "open.db", "clinics", folder),
        forgeries.contents(folder / "closed.db", "banks", folder),
    ]


def fuzz_exports(books, folder: Path, count: int) -> dict[bool, int]:
    """Verify changed exports and import every tenth; half have hashes that fit the change."""
    rng, choice = np.random.default_rng(SEED), random.Random(SEED)
    path, seen = folder / "export.jsonl", {True: 0, False: 0}
    mine = folder / "mine.jsonl"
    mine.write_text(
        "".join(f'{{"run": "first", "round": {t}, "norm": 3.0}}\n' for t in range(1, 9))
    )
    lines = [forgeries.chained([dict(record) for record in records]) for records in books]
    for k in range(count):
        own = list(lines[k % 2])
        if k % 4 < 2:
            path.write_bytes(mutated(forgeries.export_bytes(own), rng, PIECES))
        else:
            at = choice.randrange(len(own))
            own[at] = mutated(own[at], rng, PIECES).replace(b"\n", b" ")
            later = [dict(record) for record in books[k % 2][at + 1 :]]
            path.write_bytes(forgeries.export_bytes(forgeries.chained([*own[: at + 1], *later])))
        found = verify(path, mine=mine, member="a") if k % 5 == 0 else verify(path)
        assert all(line.isprintable() for line in report(found).splitlines())
        seen[found.ok] += 1
        if k % 10 == 0:
            for part in folder.glob("copy.db*"):
                part.unlink()
            with Book.create(folder / "copy.db") as book:
                try:
                    import_book(book, path)
                    imported = True
                except BookError:
                    imported = False
                assert imported == verify(path).ok, (found.findings, path.read_bytes())
    return seen


def fuzz_terms(books, count: int) -> dict[bool, int]:
    """Read changed terms; what the writer accepts, it writes and reads again unchanged."""
    rng, seen = np.random.default_rng(SEED), {True: 0, False: 0}
    texts = [record["terms"].encode() for book in books for record in book
             if len(record.get("terms", "")) > 64]  # fmt: skip
    for k in range(count):
        text = mutated(texts[k % len(texts)], rng, PIECES).decode("utf-8", "replace")
        try:
            terms = Terms.from_toml(text)
        except ValueError:
            seen[False] += 1
        else:
            assert Terms.from_toml(terms.to_toml()) == terms
            seen[True] += 1
        with suppress(WrongRecordError):
            VerifiedTerms(text, 1, {})
    return seen


def test_five_hundred_exports_changed_at_random(books, tmp_path):
    assert min(fuzz_exports(books, tmp_path, 500).values()) > 0


def test_two_thousand_terms_changed_at_random(books):
    assert min(fuzz_terms(books, 2000).values()) > 0


@pytest.mark.slow
def test_many_exports_and_terms_changed_at_random(books, tmp_path, capsys):
    exports, terms = fuzz_exports(books, tmp_path, 40_000), fuzz_terms(books, 100_000)
    with capsys.disabled():
        print(f"\n[accepted or not: exports {exports}, terms {terms}]", end="")
