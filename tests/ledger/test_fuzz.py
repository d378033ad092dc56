"""Exports and terms changed at random: each is accepted or refused, without a crash.

Writer and verifier are held to the same verdict. Half of the changes are of bytes; the others are
of one field of a record or of terms and leave the document well-formed, so that they get far.
"""

import json
import tomllib
from contextlib import suppress
from pathlib import Path

import forgeries
import pytest
import tomli_w
from signed_book import signed_book
from spot_book import spot_book
from test_mine import evidence

from tests.mutation import SECONDS, case, change_field, fuzz_seed, mutated, until
from verax.ledger import Book, BookError
from verax.ledger.checks import check_terms
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
    """Records of four books, and a member's evidence about each of them."""
    folder = tmp_path_factory.mktemp("books")
    makers = {
        "open": forgeries.open_book, "closed": forgeries.closed_book,
        "signed": signed_book, "spot": spot_book,
    }  # fmt: skip
    made = []
    norms = "".join(f'{{"run": "first", "round": {t}, "norm": 3.0}}\n' for t in range(1, 9))
    for name, make in makers.items():
        make(folder / f"{name}.db")
        federation = "banks" if name == "closed" else "clinics"
        own = norms.encode()
        if name == "signed":
            own = evidence(folder / "signed.db", folder / "north.jsonl").read_bytes()
        made.append((forgeries.contents(folder / f"{name}.db", federation, folder), own))
    return made


def changed_export(records, rng):
    """An export with a few bytes changed, or one record (also its hashes, then), or one field."""
    kind = int(rng.integers(4))
    records = json.loads(json.dumps(records))
    if kind == 0:
        return mutated(forgeries.export_bytes(forgeries.chained(records)), rng, PIECES)
    at = int(rng.integers(len(records)))
    if kind == 1:
        line = mutated(forgeries.chained(records)[at], rng, PIECES).replace(b"\n", b" ")
        records[at] = line
    elif isinstance(text := records[at].get("terms"), str) and len(text) > 64 and kind == 2:
        records[at]["terms"] = changed_terms(text, rng)
    else:
        change_field(records[at], rng)
    return forgeries.export_bytes(forgeries.chained(records))


def changed_terms(text, rng):
    """Terms with one setting changed."""
    table = tomllib.loads(text)
    change_field(table, rng)
    return tomli_w.dumps(table)


def fuzz_exports(books, folder: Path, seed, cases) -> dict[bool, int]:
    """Verify changed exports with evidence, which is changed at times, and import every fourth."""
    path, mine, seen = folder / "export.jsonl", folder / "mine.jsonl", {True: 0, False: 0}
    for k in cases:
        with case(seed, k) as rng:
            records, own = books[k % len(books)]
            try:
                path.write_bytes(changed_export(records, rng))
            except (BookError, AttributeError, TypeError, ValueError):
                continue  # a note that cannot be signed again, or terms that TOML cannot hold
            found = verify(path)
            assert all(line.isprintable() for line in report(found).splitlines())
            seen[found.ok] += 1
            if k % 3 == 0:
                mine.write_bytes(mutated(own, rng, PIECES) if k % 2 else own)
                with suppress(ValueError):  # evidence that is no JSON Lines
                    verify(path, mine=mine, member="North" if b"statement" in own else "a")
            if k % 4 == 0 or found.ok:
                assert imported(path, folder) == found.ok, (found.findings, path.read_bytes())
    return seen


def imported(path, folder):
    """Whether the writer accepts an export."""
    for part in folder.glob("copy.db*"):
        part.unlink()
    with Book.create(folder / "copy.db") as book:
        try:
            import_book(book, path)
        except BookError:
            return False
    return True


def fuzz_terms(books, seed, cases) -> dict[bool, int]:
    """Read changed terms; what the writer accepts, it writes and reads again unchanged."""
    seen = {True: 0, False: 0}
    texts = [record["terms"] for records, _ in books for record in records
             if len(record.get("terms", "")) > 64]  # fmt: skip
    for k in cases:
        with case(seed, k) as rng:
            text = texts[k % len(texts)]
            if k % 2:
                text = mutated(text.encode(), rng, PIECES).decode("utf-8", "replace")
            else:
                try:
                    text = changed_terms(text, rng)
                    text.encode()
                except (TypeError, ValueError):
                    continue  # no TOML can hold it
            accepted, verified = True, True
            try:
                terms = Terms.from_toml(text)
                check_terms(terms)
            except ValueError:
                accepted = False
            else:
                assert Terms.from_toml(terms.to_toml()) == terms
            try:
                VerifiedTerms(text, 1, {})
            except WrongRecordError:
                verified = False
            assert accepted == verified, text
            seen[accepted] += 1
    return seen


def test_five_hundred_exports_changed_at_random(books, tmp_path):
    assert min(fuzz_exports(books, tmp_path, 0, range(500)).values()) > 0


def test_two_thousand_terms_changed_at_random(books):
    assert min(fuzz_terms(books, 0, range(2000)).values()) > 0


@pytest.mark.slow
def test_exports_changed_at_random_for_four_minutes(books, tmp_path, capsys):
    seen = fuzz_exports(books, tmp_path, fuzz_seed(capsys), until(0.4 * SECONDS))
    with capsys.disabled():
        print(f"\n[exports accepted or not: {seen}]", end="")
    assert min(seen.values()) > 0


@pytest.mark.slow
def test_terms_changed_at_random_for_a_minute_and_a_half(books, capsys):
    seen = fuzz_terms(books, fuzz_seed(capsys), until(0.15 * SECONDS))
    with capsys.disabled():
        print(f"\n[terms accepted or not: {seen}]", end="")
    assert min(seen.values()) > 0
