"""Signed statements in books: what the operator cannot forge, and what writer and verifier say."""

import json
from base64 import b64decode

import forgeries
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from signed_book import (
    FORGERIES,
    MEMBERS,
    STRANGER,
    models,
    signed_book,
    signed_reports,
    signed_terms,
)

from verax.ledger import Book, BookError, Report
from verax.ledger.evidence import evidence_key
from verax.ledger.export import import_book
from verax.verifier import verify


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    signed_book(folder / "book.db")
    return forgeries.contents(folder / "book.db", "clinics", folder)


def export(records, path):
    path.write_bytes(forgeries.export_bytes(forgeries.chained(json.loads(json.dumps(records)))))
    return path


def test_a_book_with_statements_verifies_and_can_be_imported(original, tmp_path):
    path = export(original, tmp_path / "book.jsonl")
    found = verify(path)
    assert found.ok, found.findings
    assert not found.decisions
    with Book.create(tmp_path / "copy.db") as book:
        assert import_book(book, path) == ("clinics", len(original))


def test_the_signed_text_is_what_the_documentation_says(original):
    """Rebuilt by hand from a record, and verified by the cryptography library alone."""
    r = original[4]
    for account, (sent, norm, examples, signature) in r["statements"].items():
        text = (
            "verax-statement/v1\n"
            f"federation {r['federation']}\n"
            f"run {r['run']}\n"
            f"round {r['round']}\n"
            f"terms {r['terms']}\n"
            f"received {r['model_before']}\n"
            f"sent {sent}\n"
            f"norm {norm}\n"
            f"examples {examples}\n"
        )
        key = b64decode(original[int(account)]["key"])
        Ed25519PublicKey.from_public_bytes(key).verify(b64decode(signature), text.encode())


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_statement_is_found_and_not_imported(original, tmp_path, kind):
    records = json.loads(json.dumps(original))
    forge, called = FORGERIES[kind]
    forge(records)
    path = export(records, tmp_path / "forged.jsonl")
    found = verify(path)
    assert called in {each.kind for each in found.findings}, found.findings
    with Book.create(tmp_path / "copy.db") as book, pytest.raises(BookError):
        import_book(book, path)


def test_a_consistent_forgery_fails_by_its_signature_alone(original, tmp_path):
    """A round with another norm, from which everything follows as the terms say."""
    records = json.loads(json.dumps(original))[:5]
    FORGERIES["another norm in a statement and in the round"][0](records)
    (finding,) = verify(export(records, tmp_path / "forged.jsonl")).findings
    assert finding.kind == "signature"
    assert "'North'" in finding.message


def test_posting_refuses_what_is_not_signed_as_the_terms_demand(tmp_path):
    with Book.create(tmp_path / "book.db") as book:
        book.create_federation("clinics", signed_terms())
        book.join("clinics", "a", key=evidence_key(MEMBERS["a"]))
        book.join("clinics", "b", key=evidence_key(MEMBERS["b"]))
        reports = signed_reports(book, 1, {"a": 4.0, "b": 1.0})
        with pytest.raises(BookError, match="signed no statement"):
            book.post("clinics", "first", 1, [Report("a", statistic=4.0), Report("b", "missing")])
        with pytest.raises(BookError, match="no valid signature"):
            book.post("clinics", "first", 1, reports, models=models(2))
        receipt = book.post("clinics", "first", 1, reports, models=models(1))
        assert receipt.posted
        assert not book.post("clinics", "first", 1, reports, models=models(1)).posted
        with pytest.raises(BookError, match="model_before differs"):
            book.post("clinics", "first", 1, reports, models=models(2))
        with pytest.raises(BookError, match="another member's"):
            book.join("clinics", "c", key=evidence_key(MEMBERS["a"]))


def test_optional_statements_may_be_left_out_and_no_terms_mean_none(tmp_path):
    for signed, refused in (("optional", False), ("none", True)):
        path = tmp_path / f"{signed}.db"
        with Book.create(path) as book:
            book.create_federation("clinics", signed_terms(signed))
            book.join("clinics", "a", key=evidence_key(MEMBERS["a"]))
            book.join("clinics", "b")
            reports = signed_reports(book, 1, {"a": 4.0, "b": 1.0})
            one = [reports[0], Report("b", statistic=reports[1].statistic, weight=1.5, examples=30)]
            if refused:
                with pytest.raises(BookError, match="exclude"):
                    book.post("clinics", "first", 1, one, models=models(1))
            else:
                book.post("clinics", "first", 1, one, models=models(1))
        assert verify(path).ok


def test_a_member_keeps_its_key_and_a_new_one_is_a_decision(tmp_path):
    path = tmp_path / "book.db"
    with Book.create(path) as book:
        book.create_federation("clinics", signed_terms("optional"))
        book.join("clinics", "a", "North", key=evidence_key(MEMBERS["a"]))
        assert not book.join("clinics", "a", "North").posted
        book.join("clinics", "a", "Nordic")
        assert book.members("clinics")[0].key == evidence_key(MEMBERS["a"])
        assert not verify(path).decisions
        book.join("clinics", "a", "Nordic", key=evidence_key(STRANGER))
    (decision,) = verify(path).decisions
    assert "another key" in decision.message
