"""A book with signed statements, and what may be forged in it.

The operator is the forger: it can change every record and recompute every hash, but it has no
member's key.
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forgeries import insert, put

from verax.ledger import Book, Report
from verax.ledger.evidence import StatementSubject, evidence_key, make_statement
from verax.ledger.money import to_units
from verax.ledger.notes import OPERATOR, public_key
from verax.ledger.round import Models
from verax.ledger.spot import opening_hash
from verax.mechanism import EvidenceTerms, Price, Statistics, Terms, charge, effective_weights

MEMBERS = {
    name: Ed25519PrivateKey.from_private_bytes(name.encode() * 32) for name in ("a", "b", "c")
}
STRANGER = Ed25519PrivateKey.from_private_bytes(b"x" * 32)
OPERATOR_KEY = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
OPERATOR_TEXT = str(public_key(OPERATOR_KEY, "operator", OPERATOR))
EXAMPLES = {"a": 10, "b": 30, "c": 20}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def signed_terms(signed="required", price=0.5, operator=OPERATOR_TEXT):
    evidence = EvidenceTerms(signed, operator)
    return Terms(Price.constant(price), currency="EUR", scale=2, evidence=evidence)


def signed_reports(book, t, norms, run="first"):
    """Reports of ok members with statements, as a server makes them."""
    terms = book.terms("clinics", t, run)
    version = next(v for v in book.versions("clinics") if v.terms == terms)
    opening = opening_hash(book.state("clinics"), run, t)
    subject = StatementSubject("clinics", run, t, version.hash, digest(f"model {t}"), opening)
    counts = [EXAMPLES[name] for name in norms]
    effective = effective_weights(counts).tolist()
    return [
        Report(
            name,
            statistic=norm * own**2,
            weight=count / sum(counts) * len(counts),
            examples=count,
            statement=make_statement(MEMBERS[name], subject, digest(f"{name} {t}"), norm, count),
        )
        for (name, norm), count, own in zip(norms.items(), counts, effective, strict=True)
    ]


def models(t):
    return Models(digest(f"model {t}"), digest(f"model {t + 1}"))


def signed_book(path, signed="required"):
    """The comments number the records."""
    with Book.create(path) as book:
        book.create_federation("clinics", signed_terms(signed))  # 1
        for name, label in (("a", "North"), ("b", "South"), ("c", "West")):
            book.join("clinics", name, label, key=evidence_key(MEMBERS[name]))  # 2 3 4
        first = signed_reports(book, 1, {"a": 4.0, "b": 1.0, "c": 2.5})
        book.post("clinics", "first", 1, first, models=models(1))  # 5
        book.open_round("clinics", "first", 2)  # 6
        second = signed_reports(book, 2, {"a": 3.0, "b": 2.25, "c": 1e-05})
        book.post("clinics", "first", 2, second, models=models(2))  # 7
        third = [*signed_reports(book, 3, {"a": 3.5, "b": 2.5}), Report("c", "missing")]
        book.post("clinics", "first", 3, third, models=models(3))  # 8


def at(n, account, place, value):
    """Change one part of a statement: sent, norm, examples, signature."""

    def forge(records):
        row = records[n - 1]["statements"][account]
        row[place] = value(row[place]) if callable(value) else value

    return forge


def move(n, account, from_n, from_account):
    """Put a statement of another round or of another member into a round."""

    def forge(records):
        records[n - 1]["statements"][account] = records[from_n - 1]["statements"][from_account]

    return forge


def swap(records):
    table = records[4]["statements"]
    table["1"], table["2"] = table["2"], table["1"]


def drop(records):
    del records[4]["statements"]["1"]


def signed_by(key):
    """The operator signs a statement itself, with a key that is not the member's."""

    def forge(records):
        r = records[4]
        subject = StatementSubject("clinics", r["run"], r["round"], r["terms"], r["model_before"])
        r["statements"]["1"] = list(make_statement(key, subject, digest("other"), 4.0, 10))

    return forge


def larger_norm(records):
    """Twice the norm of one member, in the statement, too; payments and amounts follow from it."""
    r = records[4]
    r["statistics"][0] *= 2
    r["statements"]["1"][1] = "8.0"
    statistics = Statistics(np.array(r["statistics"]))
    payments = charge(signed_terms(), r["round"], statistics, ["ok"] * 3).amounts
    r["payments"], r["amounts"] = payments.tolist(), to_units(payments, 2, [0, 0, 0])[0]


def flipped(signature):
    return ("B" if signature[0] == "A" else "A") + signature[1:]


FORGERIES = {
    "a statement of another round": (move(7, "1", 5, "1"), "statement"),
    "a statement of the same norm of another round": (move(8, "2", 7, "2"), "statement"),
    "another member's statement": (move(5, "1", 5, "2"), "statement"),
    "two statements exchanged": (swap, "statement"),
    "no statement where the terms demand one": (drop, "statement"),
    "no statements at all": (put(5, statements={}), "statement"),
    "a statement by the operator's key": (signed_by(OPERATOR_KEY), "signature"),
    "a statement by a stranger's key": (signed_by(STRANGER), "signature"),
    "a changed signature": (at(5, "1", 3, flipped), "signature"),
    "another digest of what was sent": (at(5, "1", 0, digest("other")), "signature"),
    "another norm in a statement": (at(5, "1", 1, "4.5"), "statement"),
    "the same norm, written otherwise": (at(5, "1", 1, "4.00"), "signature"),
    "another example count in a statement": (at(5, "1", 2, 11), "statement"),
    "another norm in a statement and in the round": (larger_norm, "signature"),
    "another model before the round": (put(5, model_before=digest("other")), "signature"),
    "no model before the round": (put(5, model_before=None), "statement"),
    "a statement of a member that is missing": (
        lambda records: records[7]["statements"].update({"3": records[6]["statements"]["3"]}),
        "statement",
    ),
    "a statement of nobody in the round": (
        lambda records: records[7]["statements"].update({"9": records[6]["statements"]["3"]}),
        "statement",
    ),
    "another example count": (put(5, examples={"1": 11, "2": 30, "3": 20}), "weight"),
    "the example count of one member": (put(5, examples={"1": 10}), "weight"),
    "no example counts, and other weights": (
        put(5, examples={}, weights={"1": 0.6, "2": 1.4}),
        "statement",
    ),
    "weights that do not follow from the examples": (put(5, weights={}), "weight"),
    "another key of a member": (put(2, key=evidence_key(STRANGER)), "signature"),
    "no key of a member": (put(2, key=None), "signature"),
    "the key of another member": (put(3, key=evidence_key(MEMBERS["a"])), "account"),
    "a key that is none": (put(2, key="A" * 44), "form"),
    "a key that is no point": (put(2, key="/" * 42 + "8="), "form"),
    "a key changed before a round": (
        insert(5, kind="join", account=1, member="a", label="North", from_round=1, run=None,
               key=evidence_key(STRANGER), data=None, app=None),
        "signature",
    ),
    "another run": (put(5, run="second"), "signature"),
    "another round": (put(5, round=9), "signature"),
    "a norm that is no number": (at(5, "1", 1, "nan"), "form"),
    "a norm with a sign": (at(5, "1", 1, "-4.0"), "form"),
    "an infinite norm": (at(5, "1", 1, "1e999"), "form"),
    "a negative example count": (at(5, "1", 2, -1), "form"),
    "a signature that is cut off": (at(5, "1", 3, lambda text: text[:-4]), "form"),
    "a statement of five parts": (
        lambda records: records[4]["statements"]["1"].append(0),
        "form",
    ),
    "a model that is no digest": (put(5, model_after="0" * 63), "form"),
}  # fmt: skip
