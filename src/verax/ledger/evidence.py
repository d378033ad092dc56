r"""Statements: what a member signs about the update that it sends in a round.

The signed text has these lines, each ended by a line feed:

    verax-statement/v1
    federation clinics
    run first
    round 3
    terms 6c0d…          SHA-256 of the text of the terms, 64 hexadecimal digits
    received 9f2a…       digest of the model that the member received
    sent 41b7…           digest of the model that it sends
    norm 4.25            ‖sent − received‖² of the arrays that are charged
    examples 120         how many examples it trained on; 0 if it does not say
    opening 08d3…        only if the terms have spot checks: the hash of the record that opened the
                         round, from which seed and configuration follow

No name in a book contains a line feed. The signature is Ed25519 (RFC 8032) of the UTF-8 bytes, by
the key that the member's `join` record holds. A round's record contains everything that stands in
its statements: federation, run, round, terms, the model before the round, and the rest as the
member wrote it. So nobody has to print a number a second time.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from verax.ledger import forms
from verax.ledger.engine import BookError
from verax.ledger.forms import SignedStatement
from verax.ledger.notes import is_valid, unbase64
from verax.ledger.records import RoundRecord
from verax.mechanism import Terms, effective_weights

#: By how much a norm that a member signed may differ from the one that is booked, relatively.
TOLERANCE = 1e-6


class StatementSubject(NamedTuple):
    """What all statements of a round share; `received` is the digest of the model before it.

    `opening` is the hash of the record that opened the round; empty without spot checks.
    """

    federation: str
    run: str
    round: int
    terms: str
    received: str
    opening: str = ""


def signed_text(subject: StatementSubject, sent: str, norm: str, examples: int) -> bytes:
    """The bytes that a member signs."""
    lines = (
        "verax-statement/v1",
        f"federation {subject.federation}",
        f"run {subject.run}",
        f"round {subject.round}",
        f"terms {subject.terms}",
        f"received {subject.received}",
        f"sent {sent}",
        f"norm {norm}",
        f"examples {examples}",
        *([f"opening {subject.opening}"] if subject.opening else []),
    )
    return "".join(f"{line}\n" for line in lines).encode()


def make_statement(
    key: Ed25519PrivateKey, subject: StatementSubject, sent: str, norm: float, examples: int
) -> SignedStatement:
    """A member's signed statement."""
    text = signed_text(subject, sent, repr(norm), examples)
    return SignedStatement(sent, repr(norm), examples, b64encode(key.sign(text)).decode())


def read_statement(table: Mapping[str, Any]) -> SignedStatement:
    """A statement from a table of its fields; raises ValueError if it is none."""
    if set(table) != set(SignedStatement._fields):
        raise ValueError("its statement has missing or unknown fields")
    return forms.statement([table[name] for name in SignedStatement._fields])


def is_signed(statement: SignedStatement, subject: StatementSubject, key: str) -> bool:
    """Whether the member with this public key, in base64, signed the statement."""
    sent, norm, examples, signature = statement
    text = signed_text(subject, sent, norm, examples)
    return is_valid(unbase64(key), unbase64(signature), text)


def evidence_key(private: Ed25519PrivateKey) -> str:
    """The public half of a member's key, in base64, as its `join` record holds it."""
    return b64encode(private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def is_near(norm: float, booked: float) -> bool:
    """Whether a norm that a member signed is the booked one, up to rounding."""
    return math.isclose(norm, booked, rel_tol=TOLERANCE)


def check_statements(
    federation: str,
    keys: Mapping[int, str | None],
    terms: Terms,
    record: RoundRecord,
    opening: str,
    *,
    signatures: bool,
) -> None:
    """Refuse a round whose statements are missing, forged, or say something else than the round.

    Args:
        federation: its name.
        keys: public keys by account.
        terms: of the round.
        record: the round.
        opening: the hash of the record that opened it; empty without spot checks.
        signatures: whether the signatures are verified, which takes most of the time.
    """
    name = f"round {record.round} of run {record.run!r}"
    demanded = "none" if terms.evidence is None else terms.evidence.signed
    ok = [number for number in record.accounts if number not in record.statuses]
    statements = record.statements
    if statements and (demanded == "none" or record.model_before is None):
        raise BookError(f"{name} holds statements, which its terms or its missing model exclude")
    if demanded == "required" and (unsigned := [n for n in ok if n not in statements]):
        raise BookError(f"{name}: account {unsigned[0]} signed no statement, as its terms demand")
    booked = _booked_norms(record, ok)
    for number, statement in statements.items():
        if number not in record.accounts or record.statuses.get(number) == "missing":
            raise BookError(f"{name}: account {number} sent nothing that it could have signed")
        if number not in record.statuses and not (
            number not in booked or is_near(float(statement.norm), booked[number])
        ):
            raise BookError(f"{name}: account {number} signed another norm than the booked one")
        if record.examples.get(number, statement.examples) != statement.examples:
            raise BookError(f"{name}: account {number} signed another example count")
        key = keys.get(number)
        before = record.model_before or ""
        subject = StatementSubject(
            federation, record.run, record.round, record.terms, before, opening
        )
        if key is None or (signatures and not is_signed(statement, subject, key)):
            raise BookError(f"{name}: the statement of account {number} has no valid signature")


def _booked_norms(record: RoundRecord, ok: list[int]) -> dict[int, float]:
    """The squared norms of updates before weighing, as far as the record says them."""
    if record.reads == "misreport" or not record.statements:
        return {}
    weights = effective_weights([record.weights.get(number, 1.0) for number in ok]).tolist()
    if record.gram is not None:
        values = [row[i] for i, row in enumerate(record.gram)]
    else:
        values = [value for value in record.statistics or () if value is not None]
    return {
        number: value / weight**2
        for number, value, weight in zip(ok, values, weights, strict=True)
        if weight
    }
