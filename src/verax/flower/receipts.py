"""Receipts: the operator's signed proof, for a member, that a round is in the book and how.

A receipt is a text of C2SP (`tlog-proof`): the round's record, its path in the Merkle tree, and a
checkpoint with the operator's signature. The next message to a member carries the receipts of the
rounds in which it was asked, until it replies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from verax.ledger import Book
from verax.ledger.notes import OPERATOR, load_key, public_key
from verax.ledger.witness import Log, make_checkpoint, presence_proof
from verax.mechanism import Terms

#: A member that was absent for longer gets the last receipts; `verax ledger prove` makes the rest.
_MOST = 20


class Receipts:
    """The receipts that members have not been given yet.

    Args:
        book: where the rounds are.
        federation: its name.
        key: the operator's private key (PEM).
    """

    def __init__(self, book: Book, federation: str, key: str | Path | None) -> None:
        self._book, self._federation = book, federation
        self._key = None if key is None else load_key(Path(key))
        self._owed: dict[str, deque[int]] = {}

    def check_key(self, terms: Terms) -> None:
        """Refuse to begin without the key that the terms promise receipts with."""
        operator = "" if terms.evidence is None else terms.evidence.operator
        if not operator:
            return
        if self._key is None:
            raise ValueError(
                f"the terms promise receipts signed by {operator}; give the private key as `key`"
            )
        own = public_key(self._key, operator.partition("+")[0], OPERATOR)
        if str(own) != operator:
            raise ValueError(f"`key` is the private key of {own}, the terms name {operator}")

    def add(self, members: Iterable[str], sequence: int) -> None:
        """Owe members the receipt of a round's record."""
        for member in members:
            self._owed.setdefault(member, deque(maxlen=_MOST)).append(sequence)

    def delivered(self, members: Iterable[str]) -> None:
        """Forget the receipts of members that replied to the message with them."""
        for member in members:
            self._owed.pop(member, None)

    def texts(self, members: Iterable[str], terms: Terms) -> dict[str, list[str]]:
        """The receipts of members, by member."""
        owed = {member: list(self._owed.get(member, ())) for member in members}
        if self._key is None or terms.evidence is None or not any(owed.values()):
            return {member: [] for member in owed}
        log = Log(self._book.leaves(self._federation))
        note = make_checkpoint(log, terms.evidence.operator.partition("+")[0], self._key)
        prove = partial(presence_proof, log, note)
        wanted = {sequence for sequences in owed.values() for sequence in sequences}
        proofs = {n: prove(n, self._book.record(self._federation, n).data) for n in wanted}
        return {member: [proofs[n] for n in sequences] for member, sequences in owed.items()}
