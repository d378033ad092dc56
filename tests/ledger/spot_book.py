"""A book with spot checks, and what may be forged in it.

The operator is the forger: it can change every record and recompute every hash, but it has neither
a member's key nor the auditor's.
"""

from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forgeries import copy, insert, put
from signed_book import MEMBERS, OPERATOR_TEXT, STRANGER, digest, flipped, models, signed_reports

from verax.ledger import Book, Report, SpotReport
from verax.ledger.evidence import evidence_key
from verax.ledger.notes import OPERATOR, public_key
from verax.ledger.spot_booking import sign_report
from verax.mechanism import EvidenceTerms, Price, SpotChecks, Terms

AUDITOR = Ed25519PrivateKey.from_private_bytes(b"u" * 32)
AUDITOR_TEXT = str(public_key(AUDITOR, "auditor", OPERATOR))
BEACON, VALUE = "randomness of drand quicknet, round 12345678", digest("randomness")
NORMS = ({"a": 4.0, "b": 1.0, "c": 2.5}, {"a": 3.0, "b": 2.25, "c": 1.0}, {"a": 3.5, "b": 2.5},
         {"a": 1.0, "b": 2.0, "c": 3.0})  # fmt: skip
FEES = {"refused": 5.0, "mismatch": 6.0, "missing": 7.0}


def still():
    """Times are part of what is hashed, and so decide what is drawn."""
    return datetime(2026, 5, 4, tzinfo=UTC)


def spot_terms(**changes):
    """The rounds from the third on with ten times the price; three draws for each member."""
    price = Price(values=((0.1,), (1.0,)), starts=(1, 3), rounds=5)
    spot = SpotChecks(AUDITOR_TEXT, fine=10.0, rounds=3, tolerance=1e-3, **FEES)
    settings = {"evidence": EvidenceTerms("required", OPERATOR_TEXT), "spot": spot} | changes
    return Terms(price, currency="EUR", scale=2, **settings)


def run_of(book, terms=None, rounds=NORMS):
    """A run of two committed members and one that committed to nothing; 1 … 12."""
    book.create_federation("clinics", terms or spot_terms())  # 1
    for name in ("a", "b", "c"):
        own = {"data": digest(f"data {name}"), "app": digest("app")} if name != "c" else {}
        book.join("clinics", name, key=evidence_key(MEMBERS[name]), **own)  # 2 3 4
    for t, norms in enumerate(rounds, 1):
        book.open_round("clinics", "first", t, digest("config"))  # 5 7 9 11
        reports = signed_reports(book, t, norms)
        reports += [Report("c", "missing")] if "c" not in norms else []
        book.post("clinics", "first", t, reports, models=models(t))  # 6 8 10 12


def report_of(book, member, key=AUDITOR, outcome="checked", distance=0.25, reason=""):
    """An auditor's report with the same distance in every drawn round."""
    state = book.state("clinics")
    drawn = state.checked["first"].drawn[state.account(member).number]
    found = tuple((t, repr(distance), "4.0") for t in sorted(set(drawn)))
    found = found if outcome == "checked" else ()
    draft = SpotReport("clinics", "first", member, outcome, reason, found)
    return sign_report(state, draft, key)


def spot_book(path):
    """The comments number the records."""
    with Book.create(path, clock=still) as book:
        run_of(book)
        book.close_run("clinics", "first", BEACON)  # 13
        book.draw("clinics", "first", VALUE)  # 14
        book.add_report(report_of(book, "a"))  # 15
        book.add_report(report_of(book, "b", distance=0.0))  # 16
        book.add_report(report_of(book, "c", outcome="missing", reason="no commitment"))  # 17


def fined(n, factor):
    """Another fine, whose shares and amounts follow."""

    def forge(records):
        r = records[n - 1]
        r["payments"] = [factor * payment for payment in r["payments"]]
        r["amounts"] = [round(factor * amount) for amount in r["amounts"]]

    return forge


def found(n, place, column, value):
    def forge(records):
        records[n - 1]["found"][place][column] = value

    return forge


def redrawn(records):
    """Another value, with the rounds of another account in place of those that it draws."""
    drawn = records[13]["drawn"]
    drawn["1"] = [t % 4 + 1 for t in drawn["1"]]


FORGERIES = {
    "another commitment to the data": (put(2, data=digest("other")), "draw"),
    "another commitment to the app": (put(3, app=digest("other")), "draw"),
    "a commitment of a member that had none": (put(4, data=digest("c"), app=digest("app")), "draw"),
    "another configuration of a round": (put(5, config=digest("other")), "signature"),
    "no opening of a round": (lambda records: records.pop(4), "signature"),
    "another announced beacon": (put(13, beacon="my own dice"), "draw"),
    "no announced beacon": (put(13, beacon=""), "spot"),
    "a closing of another run": (put(13, run="second"), "spot"),
    "a closing before the last round": (
        lambda records: records.insert(10, records.pop(12)),
        "closed",
    ),
    "a second closing": (copy(13, 14), "spot"),
    "no closing": (lambda records: records.pop(12), "spot"),
    "a round after the closing": (copy(12, 14, round=5), "closed"),
    "an opening after the closing": (copy(11, 14, round=5), "closed"),
    "another value of the beacon": (put(14, value="0" * 64), "draw"),
    "the value of the beacon, written otherwise": (put(14, value=VALUE.upper()), "form"),
    "a value that is no number of the beacon": (put(14, value="3 11 17 22 40 41"), "form"),
    "other drawn rounds": (redrawn, "draw"),
    "a member left out of the draw": (
        lambda records: records[13]["drawn"].pop("2"),
        "draw",
    ),
    "a second draw": (copy(14, 15), "spot"),
    "a draw without a closing": (lambda records: records.pop(12), "spot"),
    "another distance": (found(15, 0, 1, "0.5"), "signature"),
    "the same distance, written otherwise": (found(15, 0, 1, "0.250"), "signature"),
    "another norm": (found(15, 0, 2, "400000.0"), "signature"),
    "a round left out of a report": (lambda records: records[14]["found"].pop(0), "spot"),
    "a round that was not drawn": (
        lambda records: records[14]["found"].append([9, "0.0", "1.0"]),
        "spot",
    ),
    "a report without rounds": (put(15, found=[]), "spot"),
    "a report that became a refusal": (
        put(15, found=[], outcome="refused", reason="ill"),
        "signature",
    ),
    "another outcome": (put(17, outcome="refused"), "signature"),
    "another reason": (put(17, reason="on holiday"), "signature"),
    "no reason": (put(17, reason=""), "spot"),
    "a reason of two lines": (put(17, reason="no\nfound 1"), "form"),
    "a changed signature": (put(15, signature=flipped), "signature"),
    "a report of another member": (put(16, account=1), "repeated"),
    "a report of nobody": (put(16, account=9), "spot"),
    "a second report": (copy(15, 16), "repeated"),
    "the signature of another member's report": (
        lambda records: records[14].update(signature=records[15]["signature"]),
        "signature",
    ),
    "half of the fine": (fined(15, 0.5), "payment"),
    "no fine": (fined(15, 0.0), "payment"),
    "a fine of an honest member": (
        put(16, payments=[-1.0, 2.0, -1.0], amounts=[-100, 200, -100]),
        "payment",
    ),
    "a fine that others do not receive": (put(15, amounts=[1, 0, 0]), "unbalanced"),
    "amounts that do not follow": (
        put(15, amounts=lambda old: [old[0] - 2, old[1] + 2, old[2]]),
        "amount",
    ),
    "a fine shared with one member only": (
        put(15, accounts=[1, 2], payments=[3.0, -3.0], amounts=[300, -300]),
        "spot",
    ),
    "a negative distance": (found(15, 0, 1, "-0.25"), "form"),
    "a distance that is no number": (found(15, 0, 1, "nan"), "form"),
    "an unknown outcome": (put(17, outcome="fine"), "form"),
    "a commitment after the first round": (
        insert(7, kind="join", account=3, member="c", label="c", from_round=1, run=None,
               key=evidence_key(MEMBERS["c"]), data=digest("c"), app=digest("app")),
        "draw",
    ),
}  # fmt: skip

__all__ = ["FORGERIES", "STRANGER", "report_of", "run_of", "spot_book", "spot_terms"]
