"""The evidence of a run on the server: what members are told to sign, checks, and receipts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from flwr.app import ArrayRecord, Message, RecordDict

from verax.flower.digest import model_digest, record_digest
from verax.flower.identity import Member
from verax.flower.matching import with_content
from verax.flower.receipts import Receipts
from verax.flower.replies import SentModel
from verax.flower.statements import REQUEST, Signatures, what_to_sign
from verax.ledger import Book
from verax.ledger.evidence import StatementSubject
from verax.mechanism import Terms


class ServerEvidence:
    """What the operator's side of a federation needs for statements and receipts.

    Args:
        book: with the members' keys.
        federation: its name.
        key: the operator's private key (PEM), or None.
    """

    def __init__(self, book: Book, federation: str, key: str | Path | None) -> None:
        self._book, self._federation = book, federation
        self.receipts = Receipts(book, federation, key)

    def requests(
        self,
        messages: Iterable[Message],
        members: Mapping[int, Member],
        run: str,
        round_: int,
        count_key: str | None,
    ) -> list[Message]:
        """Messages that also say what to sign, with the receipts that their members are owed."""
        version = self._book.version(self._federation, round_, run)
        if not is_asked_for(version.terms):
            return list(messages)
        ids = {node: member.id for node, member in members.items()}
        receipts = self.receipts.texts(set(ids.values()), version.terms)
        result: list[Message] = []
        for message in messages:
            own = receipts[ids[message.metadata.dst_node_id]]
            told = what_to_sign(self._federation, run, round_, version.text, count_key, own)
            result.append(with_content(message, RecordDict({**message.content, REQUEST: told})))
        return result

    def signatures(
        self, run: str, round_: int, before: str, count_key: str | None
    ) -> Signatures | None:
        """The check of a round's statements; None if its terms ask for none."""
        version = self._book.version(self._federation, round_, run)
        evidence = version.terms.evidence
        if evidence is None or evidence.signed == "none":
            return None
        opening = ""
        if version.terms.spot is not None:
            opening = self._book.opening(self._federation, run, round_).hash
        subject = StatementSubject(self._federation, run, round_, version.hash, before, opening)
        keys = {account.member: account.key for account in self._book.members(self._federation)}
        return Signatures(subject, keys, evidence.signed == "required", count_key)


def is_asked_for(terms: Terms) -> bool:
    """Whether members sign under these terms."""
    return terms.evidence is not None and terms.evidence.signed != "none"


def digest_before(terms: Terms, sent: Iterable[SentModel], arrays: ArrayRecord) -> str:
    """The digest of the model before a round: the one that was sent, or that of the strategy.

    Args:
        terms: of the round.
        sent: the models that members are sent.
        arrays: the strategy's model, which counts if members are sent different ones.
    """
    digests = {model_digest(model.arrays) for model in sent}
    if len(digests) == 1:
        return digests.pop()
    if digests and is_asked_for(terms):
        raise ValueError(
            "the strategy sends different models to members, who could not sign what they all "
            'received; write evidence.signed = "none"'
        )
    return record_digest(arrays)
