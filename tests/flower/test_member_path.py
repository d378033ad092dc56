"""A member's path on a real SuperLink: signed statements, receipts, proof, and a forged book."""

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from verax.ledger import Book, Report
from verax.ledger.evidence import evidence_key
from verax.ledger.export import export_book
from verax.ledger.notes import OPERATOR, new_key, public_key
from verax.mechanism import EvidenceTerms, Terms
from verax.verifier import verify
from verax.verifier.pack import packed

from .engines import APP, Federation


def fingerprint(public):
    digest = hashlib.sha256(base64.b64decode(public.read_text().split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def alone(folder, *rest):
    """The packed file with Python's standard library, in an empty environment."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "verify.py", *rest],
        capture_output=True, text=True, check=False, cwd=folder, env={},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def forged(book, path):
    """The operator's rewritten history: the first member's norms are doubled, nothing is signed."""
    with Book.open(book, read_only=True) as old, Book.create(path) as new:
        terms = replace(old.terms("digits"), evidence=None)
        new.create_federation("digits", terms)
        for account in old.members("digits"):
            new.join("digits", account.member, account.label)
        names = {account.number: account.member for account in old.members("digits")}
        for record in old.records("digits"):
            r = record.body
            if r.kind != "round":
                continue
            norms = [2 * norm if norm == r.statistics[0] else norm for norm in r.statistics]
            reports = [
                Report(names[number], statistic=norm, weight=r.weights.get(number, 1.0))
                for number, norm in zip(r.accounts, norms, strict=True)
            ]
            new.post("digits", r.run, r.round, reports)
    return path


@pytest.mark.slow
def test_a_member_proves_what_it_sent_and_how_it_was_booked(tmp_path):
    folder = tmp_path / "fed"
    folder.mkdir()
    operator = new_key(folder / "operator.pem")
    keys = [new_key(folder / f"member{i}.pem") for i in range(3)]
    named = EvidenceTerms("required", str(public_key(operator, "operator", OPERATOR)))
    terms = replace(Terms.load(APP / "terms.toml"), evidence=named)
    (folder / "terms.toml").write_text(terms.to_toml())
    with Federation(folder) as federation:
        with Book.create(folder / "book.db") as book:
            book.create_federation("digits", terms)
            for i, key in enumerate(keys):
                id_ = fingerprint(folder / f"node{i}.pub")
                book.join("digits", id_, f"client-{i}", key=evidence_key(key))
        said = federation.run(
            num_server_rounds=2,
            terms=folder / "terms.toml",
            operator_key=folder / "operator.pem",
            run_name="spring",
        )
        assert "rejected" not in said
        labels, contents = federation.contents()
        federation.verified()
    assert [len(content["statements"]) for content in contents] == [3, 3]
    with Book.open(folder / "book.db") as book:
        export_book(book, "digits", folder / "book.jsonl")
        amounts = book.record("digits", contents[0]["sequence"]).body.amounts
    (folder / "verify.py").write_text(packed())
    for i in range(3):
        kept = (folder / f"member{i}.jsonl").read_text().splitlines()
        lines = [json.loads(line) for line in kept]
        assert sum("receipt" in line for line in lines) == 2
        code, said = alone(
            folder, "book.jsonl", "--mine", f"member{i}.jsonl", "--member", f"client-{i}"
        )
        assert (code, said.count("PROVEN")) == (0, 2), said

    forged_path = forged(folder / "book.db", folder / "forged.db")
    assert verify(forged_path).ok, "it is consistent in itself"
    with Book.open(forged_path) as book:
        export_book(book, "digits", folder / "forged.jsonl")
        wrong = next(r.body for r in book.records("digits") if r.kind == "round").amounts
    signer = ("--signer", named.operator)
    mine = ("--mine", "member0.jsonl", "--member", "client-0")
    code, said = alone(folder, "forged.jsonl", *mine, *signer)
    assert labels[contents[0]["accounts"][0]] == "client-0"
    assert code == 1
    assert said.count("WRONG (fork)") == 2
    assert f"operator signed that it is booked as ok with the amount {amounts[0]:+d}" in said
    assert f"another one, in which it is booked as ok with the amount {wrong[0]:+d}" in said
    assert amounts[0] != wrong[0]
