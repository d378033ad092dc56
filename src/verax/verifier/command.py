"""The command line of the packed file: `python verify.py BOOK [CHECKPOINT …]`."""

from __future__ import annotations

import argparse
import sys

from verax.verifier.sources import report, verify


def main() -> None:
    """Check a book; exit code 1 if anything is wrong, 2 if it cannot be read."""
    parser = argparse.ArgumentParser(
        description="Check a book of Verax, an export (JSON Lines) or a database, completely.",
        epilog="For example: python verify.py book.jsonl --mine north.jsonl --member north",
    )
    parser.add_argument("book", help="an export, a SQLite file, or a postgresql:// URL")
    parser.add_argument("checkpoint", nargs="*", help="checkpoints that you kept")
    parser.add_argument("--federation", help="which one, if the book holds several")
    parser.add_argument("--signer", help="the operator's public key, name+id+key")
    parser.add_argument("--witness", action="append", default=[], help="a witness's public key")
    parser.add_argument("--mine", help="your own evidence (JSON Lines)")
    parser.add_argument("--member", help="who you are, for --mine")
    given = parser.parse_args()
    try:
        outcome = verify(
            given.book,
            federation=given.federation,
            checkpoints=given.checkpoint,
            signer=given.signer,
            witnesses=given.witness,
            mine=given.mine,
            member=given.member,
        )
    except (OSError, ValueError) as error:
        print(f"verify: {error}", file=sys.stderr)
        sys.exit(2)
    print(report(outcome))
    sys.exit(0 if outcome.ok else 1)
