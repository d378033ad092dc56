"""Signed statements on the server: what members are told to sign, and how statements are checked.

A request to a member names what its statement has to contain, and carries the receipts of earlier
rounds. A reply carries the statement. An update is rejected if its statement is not signed by the
member's key, or says something else than the update itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from verax.flower.digest import record_digest
from verax.flower.log import log
from verax.flower.matching import Asked
from verax.flower.metrics import stated_examples
from verax.flower.replies import rejected
from verax.ledger.evidence import (
    SignedStatement,
    StatementSubject,
    is_near,
    is_signed,
    read_statement,
)

#: The record of a request that says what to sign, and of a reply with the statement.
REQUEST, STATEMENT = "verax.round", "verax.statement"


def what_to_sign(
    federation: str,
    run: str,
    round_: int,
    terms: str,
    count_key: str | None,
    receipts: list[str],
) -> ConfigRecord:
    """The record of a request; the member computes the digests of terms and model by itself."""
    return ConfigRecord(
        {
            "federation": federation,
            "run": run,
            "round": round_,
            "terms": terms,
            "count-key": count_key or "",
            "receipts": receipts,
        }
    )


def as_record(statement: SignedStatement) -> ConfigRecord:
    """A statement as a part of a reply."""
    return ConfigRecord(statement._asdict())


def take_statement(message: Message) -> ConfigRecord | None:
    """Remove the statement from a reply, and return it."""
    if not message.has_content():
        return None
    record = message.content.pop(STATEMENT, None)
    return record if isinstance(record, ConfigRecord) else None


@dataclass(frozen=True)
class Signatures:
    """The check of the statements of a round.

    Attributes:
        subject: what all statements of the round have to say.
        keys: public keys by member id; None where a member has none.
        required: whether an update without a statement is rejected.
        count_key: the metric that is the example count.
    """

    subject: StatementSubject
    keys: Mapping[str, str | None]
    required: bool
    count_key: str | None

    def check(self, one: Asked, given: ConfigRecord | None) -> None:
        """Check a reply's statement; one with a valid signature is booked whatever it says."""
        try:
            self._check(one, given)
        except Exception as error:  # a member decides what is in it
            if one.reply.status == "ok":
                one.reply = rejected(error)

    def compare_norm(self, one: Asked) -> None:
        """Reject an update that has another norm than its statement says."""
        if one.statement is not None and one.reply.status == "ok":
            norm = float(one.statement.norm)
            if not is_near(norm, one.norm):
                one.reply = rejected(
                    f"it signed the squared norm {norm:.6g}, its update has {one.norm:.6g}"
                )

    def _check(self, one: Asked, given: ConfigRecord | None) -> None:
        key = self.keys.get(one.member.id)
        if given is None or key is None:
            if self.required and key is None:
                raise ValueError("its key is not in the book; `verax ledger join --key` adds it")
            if self.required:
                raise ValueError("it has no signed statement, which the terms demand")
            if given is not None:
                log.warning("Verax: %s signs, but its key is not in the book", one.member.label)
            return
        statement = read_statement(dict(given))
        if not is_signed(statement, self.subject, key):
            raise ValueError("its statement is not signed by its key for this round")
        one.statement = statement
        if one.reply.status != "ok":
            return
        content: RecordDict = one.message.content
        (record,) = content.array_records.values()
        if record_digest(record) != statement.sent:
            raise ValueError("it signed another model than it sent")
        if stated_examples(content, self.count_key) != statement.examples:
            raise ValueError("it signed another example count than it sent")
