"""What members signed about their updates."""

from __future__ import annotations

import math
from base64 import b64decode
from typing import Any

from verax.verifier.forms import Account, Record, WrongRecordError
from verax.verifier.signatures import verify_ed25519
from verax.verifier.terms import Terms


def signed_text(r: Record, statement: list[Any], opening: str) -> bytes:
    """The bytes that a member signed about its update in a round."""
    sent, norm, examples, _ = statement
    lines = [
        "verax-statement/v1",
        f"federation {r['federation']}",
        f"run {r['run']}",
        f"round {r['round']}",
        f"terms {r['terms']}",
        f"received {r['model_before']}",
        f"sent {sent}",
        f"norm {norm}",
        f"examples {examples}",
        *([f"opening {opening}"] if opening else []),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def check_statements(terms: Terms, r: Record, accounts: dict[int, Account], opening: str) -> None:
    """Statements are by members who sent something, signed, and agree with the round."""
    statements, statuses = r["statements"], r["statuses"]
    if statements and (terms.signed == "none" or r["model_before"] is None):
        raise WrongRecordError("statement", "the terms or a missing model exclude statements")
    if terms.signed == "required" and {*r["accounts"]} - statuses.keys() - statements.keys():
        raise WrongRecordError("statement", "a member that is ok signed no statement")
    for number, statement in statements.items():
        if number not in r["accounts"] or statuses.get(number) == "missing":
            raise WrongRecordError("statement", f"account {number} sent nothing to sign")
        _, norm, examples, signature = statement
        name = repr(accounts[number].label)
        if number not in statuses and not is_norm_booked(r, number, float(norm), 1e-6):
            raise WrongRecordError(
                "statement", f"{name} signed the norm {norm}, not the booked one"
            )
        if r["examples"].get(number, examples) != examples:
            raise WrongRecordError("statement", f"{name} signed {examples} examples")
        key = accounts[number].key
        message = signed_text(r, statement, opening)
        if key is None or not verify_ed25519(b64decode(key), message, b64decode(signature)):
            raise WrongRecordError("signature", f"the statement of {name} is not signed by its key")


def is_norm_booked(r: Record, number: int, norm: float, tolerance: float) -> bool:
    """Whether the round charges an update of this squared norm, as far as its record says it."""
    if r["reads"] == "misreport":
        return True  # the book holds a distance that others computed
    weight, booked = effective_weight(r, number), booked_norm(r, number)
    return not weight or math.isclose(norm, booked / weight**2, rel_tol=tolerance)


def effective_weight(r: Record, number: int) -> float:
    """(1 + E) w: by how much an update counts; E is the others' number, counted by their weight."""
    others = [
        r["weights"].get(n, 1.0) for n in r["accounts"] if n != number and n not in r["statuses"]
    ]
    if not others:
        return 1.0
    own, largest = r["weights"].get(number, 1.0), max(others)
    parts = [other / largest for other in others]
    count = math.fsum(parts) ** 2 / math.fsum(part * part for part in parts)
    return (1 + count) * own / math.fsum([own, *others])


def booked_norm(r: Record, number: int) -> Any:
    """The squared norm of a member's update as it was charged."""
    if r["reads"] == "norms":
        return r["statistics"][r["accounts"].index(number)]
    k = [n for n in r["accounts"] if n not in r["statuses"]].index(number)
    return r["gram"][k][k]
