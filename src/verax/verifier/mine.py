"""A member's own evidence against the book: norms, signed statements, and the operator's receipts.

A file of JSON Lines. {"run", "round", "norm"} is what the member sent; with "statement" and
"signature" it is signed. {"receipt"} is a proof of C2SP (`tlog-proof`) that the operator signed: a
round's record and its path in the Merkle tree. Whoever knows the two public keys can check both.

A round may stand in the file several times: a server that was restarted has it trained again. What
was signed for another federation is left aside.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from pathlib import Path
from typing import NamedTuple

from verax.verifier.chain import Chain
from verax.verifier.evidence import booked_norm, effective_weight, is_norm_booked
from verax.verifier.forms import Record, WrongRecordError, decode
from verax.verifier.signatures import Note, is_signed, parse_note, verify_ed25519

_Round = tuple[str, int]


class _Sent(NamedTuple):
    """A line about an update: its squared norm, and what was signed for which federation."""

    norm: float
    statement: str = ""
    signature: str = ""
    federation: str | None = None  # unknown without a statement


class OwnRecord:
    """What a member kept, compared with a book."""

    def __init__(self, path: Path, member: str | None, chain: Chain) -> None:
        if member is None:
            raise ValueError("whose record is it? give the member")
        self.path, self.member, self.chain = path, member, chain
        self.sent: dict[_Round, list[_Sent]] = {}
        self.receipts: list[str] = []
        self.booked: dict[_Round, str] = {}  # what the book says of the member, in words
        self.took_part = False
        with path.open(encoding="utf-8") as file:
            for i, line in enumerate(file, 1):
                if line.strip():
                    self._read(line, i)

    def _read(self, line: str, i: int) -> None:
        try:
            row = json.loads(line)
            if "receipt" in row:
                self.receipts.append(str(row["receipt"]))
                return
            key = str(row["run"]), int(row["round"])
            sent = _Sent(float(row["norm"]))
            if "statement" in row:
                text = str(row["statement"])
                federation = _said(text).get("federation")
                sent = _Sent(sent.norm, text, str(row["signature"]), federation)
            self.sent.setdefault(key, []).append(sent)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(
                f'{self.path} line {i}: must be like {{"run": "a", "round": 1, "norm": 2.5}}'
            ) from None

    def compare(self, r: Record) -> None:
        """Compare a round of the book with what the member sent."""
        mine = [number for number in r["accounts"] if self._is_mine(number)]
        if not mine:
            return
        number, key = mine[0], (r["run"], r["round"])
        self.took_part = True
        self.booked[key] = in_words(r, number)
        if words := self._difference(r, number):
            self._wrong(key, words)

    def _is_mine(self, number: int) -> bool:
        account = self.chain.accounts.get(number)
        return account is not None and self.member in (account.member, account.label)

    def _sent_in(self, key: _Round) -> list[_Sent]:
        """What the member sent in a round of this federation."""
        here = (None, self.chain.result.federation)
        return [sent for sent in self.sent.get(key, ()) if sent.federation in here]

    def _difference(self, r: Record, number: int) -> str:
        """What differs between a round and the member's evidence; empty if nothing does."""
        status, file = r["statuses"].get(number), self.path.name
        every = self._sent_in((r["run"], r["round"]))
        if status is not None:
            return f"the book says {status}, {file} says {every[-1].norm}" if every else ""
        if not every:
            return f"in the book but not in {file}"
        statement = r["statements"].get(number)
        booked = [sent for sent in every if statement and sent.signature == statement[3]]
        try:
            if not any(is_norm_booked(r, number, sent.norm, 1e-5) for sent in booked or every):
                weight, norm = effective_weight(r, number), (booked or every)[-1].norm
                return (
                    f"the book says {booked_norm(r, number)}, {file} says {norm} (weight {weight})"
                )
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            # A round that is wrong in another way may lack what is needed.
            return f"the book cannot be compared with {file} ({error!r:.80})"
        if not booked and any(sent.signature for sent in every):
            return f"the book does not hold the statement that is signed in {file}"
        return ""

    def finish(self, signer: str | None) -> None:
        """Compare what is not in the book, and the receipts with the book as a whole.

        Args:
            signer: the operator's public key; by default those that the book's terms name.
        """
        result = self.chain.result
        if not self.took_part:
            result.add("mine", 0, f"{self.member!r} takes part in no round of the book")
        elif self.sent and not any(map(self._sent_in, self.sent)):
            message = f"{self.path.name} holds nothing of the federation {result.federation!r}"
            result.add("mine", 0, message)
        for key in self.sent if self.took_part else ():
            if key not in self.booked and self._sent_in(key):
                self._wrong(key, f"in {self.path.name} but not in the book")
        keys = [signer] if signer else [t.operator for t in self.chain.terms if t.operator]
        for i, text in enumerate(self.receipts, 1):
            try:
                self._check_receipt(text, keys)
            except WrongRecordError as wrong:
                result.add(wrong.kind, 0, f"receipt {i} of {self.path.name}: {wrong}")

    def _check_receipt(self, text: str, keys: list[str]) -> None:
        """A receipt is valid and signed, and the book is the one that the operator signed."""
        index, data, note = read_proof(text)
        r = decode(data)
        if r["federation"] != self.chain.result.federation:
            return
        if not any(is_signed(note, key) for key in keys):
            named = ", ".join(keys) or "anybody: the book names no operator, give its key"
            raise WrongRecordError("signature", f"is not signed by {named}")
        if r["kind"] != "round":
            raise WrongRecordError("checkpoint", "is not of a round")
        key = r["run"], r["round"]
        number = self._account(r)
        signed = self._statement(r, number, index + 1)
        words = f"{signed}; the operator signed that it {in_words(r, number)}"
        chain, size = self.chain, len(self.chain.leaves) // 32
        if note.origin != chain.origin or note.size > size or note.root != chain.root_at(note.size):
            here = self.booked.get(key, "does not have the round")
            raise WrongRecordError(
                "fork",
                f"round {key[1]} of run {key[0]!r}: {words} (record {index + 1}); this book is "
                f"another one, in which it {here}",
            )
        chain.result.proven.append(
            f"round {key[1]} of run {key[0]!r}: {words} (record {index + 1})"
        )

    def _account(self, r: Record) -> int:
        """The member's account: that of its own signature, or the one with its name."""
        signed = {sent.signature for sent in self._sent_in((r["run"], r["round"]))}
        for number, statement in r["statements"].items():
            if statement[3] in signed:
                return number
        for number in filter(self._is_mine, r["accounts"]):
            return number
        raise WrongRecordError("mine", f"round {r['round']} does not name {self.member!r}")

    def _statement(self, r: Record, number: int, sequence: int) -> str:
        """What the member signed for a round, in words, if its key at that record says so.

        Of several statements it is the one that the round holds, or the last one.
        """
        account = self.chain.accounts.get(number)
        key = None if account is None else account.key_at(sequence)
        booked = r["statements"].get(number, ("", "", 0, ""))[3]
        every = sorted(
            self._sent_in((r["run"], r["round"])), key=lambda sent: sent.signature == booked
        )
        for sent in reversed(every):
            if key and _is_by(key, sent.statement, sent.signature):
                said = _said(sent.statement)
                return (
                    f"{self.member} signed that it sent {said.get('sent', '')[:16]}… of squared "
                    f"norm {said.get('norm')} from {said.get('examples')} examples"
                )
        return f"{self.member} has no statement signed by its key in this book"

    def _wrong(self, key: _Round, words: str) -> None:
        result = self.chain.result
        result.add("mine", result.sequence, f"round {key[1]} of run {key[0]!r}: {words}")


def in_words(r: Record, number: int) -> str:
    """How a round books a member."""
    status = r["statuses"].get(number, "ok")
    amount = r["amounts"][r["accounts"].index(number)]
    return f"is booked as {status} with the amount {amount:+d}"


def read_proof(text: str) -> tuple[int, bytes, Note]:
    """The index, the record and the checkpoint of a proof that the record is in the tree."""
    try:
        head, _, rest = text.partition("\n\n")
        title, extra, index, *path = head.split("\n")
        if title != "c2sp.org/tlog-proof@v1" or (extra[:6], index[:6]) != ("extra ", "index "):
            raise ValueError
        data, place = b64decode(extra[6:], validate=True), int(index[6:])
        hashes = [b64decode(line, validate=True) for line in path]
    except ValueError:
        raise WrongRecordError("checkpoint", "is not a proof") from None
    note = parse_note(rest)
    if (
        root_from_path(hashlib.sha256(b"\x00" + data).digest(), place, note.size, hashes)
        != note.root
    ):
        raise WrongRecordError("checkpoint", "does not lead to its checkpoint")
    return place, data, note


def root_from_path(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """The root that an inclusion proof leads to (RFC 9162, 2.1.3.2); empty if it leads nowhere."""
    node, last, root = index, size - 1, leaf
    if not 0 <= index < size:
        return b""
    for other in path:
        if not last:
            return b""
        if node & 1 or node == last:
            root = hashlib.sha256(b"\x01" + other + root).digest()
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            root = hashlib.sha256(b"\x01" + root + other).digest()
        node, last = node >> 1, last >> 1
    return b"" if last else root


def _said(statement: str) -> dict[str, str]:
    """The lines of a statement by their first words."""
    return {
        name: value for name, _, value in (line.partition(" ") for line in statement.splitlines())
    }


def _is_by(key: str, text: str, signature: str) -> bool:
    try:
        return verify_ed25519(b64decode(key), text.encode(), b64decode(signature, validate=True))
    except ValueError:
        return False
