"""The verifier: it reads a book or an export and trusts nothing in it.

It shares no code with the writer and imports nothing else of Verax; `python -m verax.verifier.pack`
makes one file of it, `verify.py`, that needs only Python (and psycopg for PostgreSQL). Records are
checked one after the other; memory grows by 32 bytes for each of them.

The book itself reveals records that were changed, removed, added or reordered; payments that do not
follow from inputs and terms; amounts that do not follow from payments; and entries, accounts or
balances that differ from the records. A history that was rewritten from some record on, with all
hashes recomputed, is consistent in itself: only a checkpoint that a member kept reveals it.
"""

from verax.verifier.chain import Finding, Verification
from verax.verifier.signatures import verify_ed25519
from verax.verifier.sources import federations, report, verify
from verax.verifier.terms import Measure

__all__ = [
    "Finding",
    "Measure",
    "Verification",
    "federations",
    "report",
    "verify",
    "verify_ed25519",
]
