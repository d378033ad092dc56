"""Spot checks: what was drawn, what an auditor reported, and its fine, computed again."""

from __future__ import annotations

import hashlib
import math
from base64 import b64decode
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any

from verax.verifier.evidence import effective_weight
from verax.verifier.forms import Account, Record, WrongRecordError
from verax.verifier.payments import listed_order
from verax.verifier.signatures import Note, cosignature, verify_ed25519
from verax.verifier.terms import Terms

_MAX_FINE = 2.0**53  # minor units


@dataclass
class CheckedRun:
    """What the book says about the spot checks of one run, up to a record."""

    terms: dict[str, Any] | None = None  # the section [spot] of its last round
    rounds: dict[int, dict[int, tuple[float, float]]] = field(
        default_factory=dict[int, dict[int, tuple[float, float]]]
    )  # by account and round: price and weight of updates that counted
    commitments: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    openings: dict[int, str] = field(default_factory=dict[int, str])  # hash by round
    closing: tuple[int, str] | None = None  # its place and hash
    beacon: str = ""
    witnesses: tuple[str, ...] = ()  # whose signatures draw without a beacon
    value: str | None = None  # of the witnesses' signatures
    draw: str = ""  # its hash
    drawn: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    reported: set[int] = field(default_factory=set[int])

    def commit(self, accounts: dict[int, Account]) -> None:
        """What members committed to when the run first saw them cannot change for it."""
        for number, account in accounts.items():
            if account.commitment is not None:
                self.commitments.setdefault(number, account.commitment)

    def add_round(self, r: Record, terms: Terms, accounts: dict[int, Account]) -> None:
        """Remember which updates of a round can be drawn."""
        self.terms = terms.spot
        prices = dict.fromkeys(r["accounts"], r["price"][0] if r["price"] else 0.0)
        if len(r["price"]) > 1:
            for value, i in zip(r["price"], listed_order(terms, r, accounts), strict=True):
                prices[r["accounts"][i]] = value
        for number in r["accounts"]:
            if number not in r["statuses"]:
                own = self.rounds.setdefault(number, {})
                own[r["round"]] = (prices[number], effective_weight(r, number))

    def add_checkpoint(self, note: Note) -> None:
        """The signatures of all witnesses under the closing record become its randomness."""
        if self.closing is None or self.value is not None or note.size != self.closing[0]:
            return
        signed = [cosignature(note, key) for key in self.witnesses]
        if signed and all(signed):
            self.value = hashlib.sha256(b"".join(signed)).hexdigest()

    def expected_draw(self, value: str) -> dict[int, list[int]]:
        """The rounds that a value draws, by account."""
        assert self.terms is not None
        assert self.closing is not None
        text = f"verax/closing/v1\n{self.closing[1]}\n{value}\n"
        seed = hashlib.sha256(text.encode()).hexdigest()
        result: dict[int, list[int]] = {}
        for number in sorted(self.rounds):
            order = list(self.rounds[number])
            sums = list(accumulate(Fraction(price) for price, _ in self.rounds[number].values()))
            if sums[-1]:
                points = (_point(seed, number, k) * sums[-1] for k in range(self.terms["rounds"]))
                result[number] = [order[bisect_right(sums, point)] for point in points]
        return result

    def payments(self, r: Record, scale: int) -> list[float]:
        """What everybody of whom rounds were drawn pays for a report."""
        assert self.terms is not None
        terms, rounds = self.terms, self.rounds[r["account"]]
        if r["outcome"] != "checked":
            levy = terms[r["outcome"]]
        else:
            found = {t: (float(distance), float(norm)) for t, distance, norm in r["found"]}
            parts = [
                0.0
                if found[t][0] <= terms["tolerance"] ** 2 * found[t][1]
                else rounds[t][1] ** 2 * found[t][0]
                for t in self.drawn[r["account"]]
            ]
            total = sum(price for price, _ in rounds.values())
            levy = terms["fine"] * total / terms["rounds"] * math.fsum(parts)
        levy, members = min(levy, _MAX_FINE / 10**scale), sorted(self.drawn)
        if len(members) == 1:
            return [0.0]
        share = -levy / (len(members) - 1)
        return [levy if number == r["account"] else share for number in members]


def check_report(run: CheckedRun | None, r: Record, scale: int) -> None:
    """A report is complete, on a member of whom rounds were drawn, signed and fined as it says."""
    number = r["account"]
    if run is None or not run.draw or run.terms is None or number not in run.drawn:
        raise WrongRecordError("spot", f"no rounds of account {number} were drawn")
    if number in run.reported:
        raise WrongRecordError("repeated", f"account {number} was reported on already")
    checked = r["outcome"] == "checked"
    wanted = sorted(set(run.drawn[number])) if checked else []
    if [row[0] for row in r["found"]] != wanted or checked == bool(r["reason"].strip()):
        raise WrongRecordError("spot", "the report does not hold the rounds that were drawn")
    if checked and number not in run.commitments:
        raise WrongRecordError("spot", f"account {number} committed to nothing")
    if not verify_ed25519(run.terms["key"], _signed_text(run, r), b64decode(r["signature"])):
        raise WrongRecordError("signature", "the report is not signed by the auditor of the terms")
    if r["accounts"] != sorted(run.drawn) or len(r["payments"]) != len(r["accounts"]):
        raise WrongRecordError("spot", "the fine is not shared by those of whom rounds were drawn")
    right = run.payments(r, scale)
    difference = max(abs(a - b) for a, b in zip(right, r["payments"], strict=True))
    if not difference <= 1e-9 * max(map(abs, right)):
        raise WrongRecordError(
            "payment", f"the fine differs by {difference:.6g} from report and terms"
        )


def _signed_text(run: CheckedRun, r: Record) -> bytes:
    """The bytes that the auditor signed."""
    data, app = run.commitments.get(r["account"], ("-", "-"))
    lines = [
        "verax-spot-check/v1",
        f"draw {run.draw}",
        f"account {r['account']}",
        f"outcome {r['outcome']}",
        f"reason {r['reason']}",
        f"data {data}",
        f"app {app}",
        *(f"round {t} {distance} {norm}" for t, distance, norm in r["found"]),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _point(seed: str, number: int, k: int) -> Fraction:
    """The k-th random number of an account, at least 0 and less than 1."""
    digest = hashlib.sha256(f"verax/draw/v1\n{seed}\n{number}\n{k}\n".encode()).hexdigest()
    return Fraction(int(digest, 16), 2**256)
