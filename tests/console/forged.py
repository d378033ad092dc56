"""The ledger's forged books, which the console's tests use, too."""

import json
import sys
from pathlib import Path

from verax.ledger import Book
from verax.ledger.evidence import evidence_key
from verax.ledger.export import export_lines
from verax.ledger.witness import make_checkpoint, read_log
from verax.mechanism import Changes

_FOLDER = str(Path(__file__).parents[1] / "ledger")
sys.path.insert(0, _FOLDER)  # as pytest does for the ledger's own tests
try:
    import forgeries
    import signed_book
    import spot_book
    import test_mine as evidence
    from books import fill
    from test_tampering import LINES, RECORDS, forged_lines
finally:
    sys.path.remove(_FOLDER)

__all__ = ["evidence", "exports", "forgeries", "signed_book"]


def exports(folder):
    """Exports by the kind of their forgery; those that nobody forged are called clean."""
    yield from _forged_records(folder)
    yield from _forged_lines(folder)
    yield from _forged_evidence(folder, "signed", signed_book.signed_book, signed_book.FORGERIES)
    yield from _forged_evidence(folder, "spot", spot_book.spot_book, spot_book.FORGERIES)
    yield from _forged_evidence(folder, "witnessed", witnessed_book, WITNESSED)


def witnessed_book(path):
    """Spot checks that witnesses draw, who also sign before most decisions."""
    changes = Changes(
        witnesses=forgeries.KEYS, quorum=2, cosigned=("terms", "deposit", "key", "skip", "time")
    )
    with Book.create(path, clock=spot_book.still) as book:
        spot_book.run_of(book, spot_book.spot_terms(changes=changes))  # 1 … 12
        book.close_run("clinics", "first")  # 13
        book.add_checkpoint("clinics", _note(path))  # 14
        book.draw("clinics", "first")  # 15
        book.add_report(spot_book.report_of(book, "b"))  # 16
        book.add_checkpoint("clinics", _note(path))  # 17
        book.deposit("clinics", "a", 1000, "start", reference="d-1")  # 18


def _note(path):
    made = make_checkpoint(read_log(str(path), None), "operator", signed_book.OPERATOR_KEY)
    return str(forgeries.signed(made, *forgeries.WITNESSES))


def _two_witnesses(note):
    """A checkpoint without the last of its three signatures."""
    return note.rsplit("\n", 2)[0] + "\n"


def _skipped(records):
    """The fourth round becomes the fifth."""
    for record in records[10:12]:
        record["round"] = 5


WITNESSED = {  # name: (the forgery, the kind of finding)
    "a value that witnesses did not sign": (forgeries.put(15, value="0" * 64), "draw"),
    "a draw before witnesses signed": (forgeries.drop(14), "draw"),
    "a draw by two of three witnesses": (forgeries.put(14, note=_two_witnesses), "draw"),
    "a deposit without witnesses": (forgeries.drop(17), "quorum"),
    "a skipped round without witnesses": (_skipped, "quorum"),
    "a time before the last without witnesses": (
        forgeries.put(8, time="2026-05-03T00:00:00Z"),
        "quorum",
    ),
    "terms without witnesses": (forgeries.copy(1, 13, kind="terms", from_round=5), "quorum"),
    "a key without witnesses": (
        forgeries.insert(5, kind="join", account=1, member="a", label="a", from_round=1, run=None,
                         key=evidence_key(signed_book.STRANGER), data=None, app=None),
        "quorum",
    ),
}  # fmt: skip


def _forged_records(folder):
    originals = {}
    for name, federation in (("open", "clinics"), ("closed", "banks")):
        path = folder / f"{name}.db"
        getattr(forgeries, f"{name}_book")(path)
        originals[name] = (path, federation, forgeries.contents(path, federation, folder))
    for name, (_, _, contents) in originals.items():
        yield f"clean, {name}", _export(contents)
    for kind in RECORDS:
        yield kind, forgeries.export_bytes(forged_lines(originals, kind)[1])


def _forged_lines(folder):
    with Book.create(folder / "small.db") as book:
        fill(book)
        small = list(export_lines(book, "clinics"))
    for kind, (change, _) in LINES.items():
        yield kind, b"".join(change(list(small)))


def _forged_evidence(folder, name, make, table):
    """A book with signed statements, keys of receipts or spot checks, and what is forged in it."""
    make(folder / f"{name}.db")
    contents = forgeries.contents(folder / f"{name}.db", "clinics", folder)
    yield f"clean, {name}", _export(contents)
    for kind, (forge, _) in table.items():
        records = json.loads(json.dumps(contents))
        forge(records)
        yield f"{kind} ({name})", _export(records)


def _export(records):
    return forgeries.export_bytes(forgeries.chained(json.loads(json.dumps(records))))
