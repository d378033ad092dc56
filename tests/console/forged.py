"""The ledger's forged books, which the console's tests use, too."""

import json
import sys
from pathlib import Path

from verax.ledger import Book
from verax.ledger.export import export_lines

_FOLDER = str(Path(__file__).parents[1] / "ledger")
sys.path.insert(0, _FOLDER)  # as pytest does for the ledger's own tests
try:
    import forgeries
    from books import fill
    from test_tampering import LINES, RECORDS, forged_lines
finally:
    sys.path.remove(_FOLDER)

__all__ = ["exports", "forgeries"]


def exports(folder):
    """Exports by the kind of their forgery; two that nobody forged are called clean."""
    originals = {}
    for name, federation in (("open", "clinics"), ("closed", "banks")):
        path = folder / f"{name}.db"
        getattr(forgeries, f"{name}_book")(path)
        originals[name] = (path, federation, forgeries.contents(path, federation, folder))
    for name, (_, _, contents) in originals.items():
        lines = forgeries.chained(json.loads(json.dumps(contents)))
        yield f"clean, {name}", forgeries.export_bytes(lines)
    for kind in RECORDS:
        yield kind, forgeries.export_bytes(forged_lines(originals, kind)[1])
    with Book.create(folder / "small.db") as book:
        fill(book)
        small = list(export_lines(book, "clinics"))
    for kind, (change, _) in LINES.items():
        yield kind, b"".join(change(list(small)))
