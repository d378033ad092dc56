"""Books that every member can check: exact, durable, append-only, hash-chained, witnessed.

Needs the extra `ledger` (and `postgres` for PostgreSQL).
"""

from verax.ledger.book import Book
from verax.ledger.decisions import Transfer
from verax.ledger.engine import BookError, BookUnavailableError
from verax.ledger.queries import OverLimit
from verax.ledger.records import Record
from verax.ledger.round import Report
from verax.ledger.spot_booking import SpotReport
from verax.ledger.state import Account
from verax.ledger.store import Receipt

__all__ = [
    "Account",
    "Book",
    "BookError",
    "BookUnavailableError",
    "OverLimit",
    "Receipt",
    "Record",
    "Report",
    "SpotReport",
    "Transfer",
]
