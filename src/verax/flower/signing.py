"""The mod with which a member signs what it sends, and keeps the receipts that it is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from verax.files import write_text
from verax.flower.digest import record_digest
from verax.flower.log import log
from verax.flower.metrics import stated_examples
from verax.flower.randomness import SEED_RECORD, is_training
from verax.flower.replies import SentModel, check_reply
from verax.flower.statements import REQUEST, STATEMENT, as_record
from verax.ledger import BookError
from verax.ledger.evidence import StatementSubject, evidence_key, make_statement, signed_text
from verax.ledger.notes import OPERATOR, PublicKey, load_key
from verax.ledger.witness import check_presence
from verax.mechanism import Terms, squared_norms


def signed(key: str | Path | None = None, terms: Sequence[str | Path] = ()) -> Mod:
    """A mod that signs what this client sends; the first of the list, to sign what is really sent.

    It acts if the terms ask for statements (`[evidence]`), and changes nothing otherwise. Beside
    the key `north.pem` it keeps `north.jsonl`, the member's evidence: every statement with its
    signature, and every receipt; and a copy of the terms that it signs. `verax ledger verify BOOK
    --mine north.jsonl --member NAME` compares them with the book.

    Args:
        key: the private key (PEM) that `verax ledger key` creates; by default `verax-key` of the
            node's configuration (`flower-supernode --node-config 'verax-key="north.pem"'`). If
            empty, nothing is signed.
        terms: files of the terms that the member agreed to. If there are any, a request under
            other terms ends in an error, and nothing is trained or signed.
    """

    def mod(request: Message, context: Context, call_next: ClientAppCallable) -> Message:
        told = request.content.pop(REQUEST, None)
        path = str(key or context.node_config.get("verax-key", ""))
        if not path or not isinstance(told, ConfigRecord):
            return call_next(request, context)
        signer = _Signer(Path(path), told, _opening(request))
        signer.keep_receipts()
        if not is_training(request):
            return call_next(request, context)
        signer.check_agreed(terms)
        received = _only_arrays(request)
        reply = call_next(request, context)
        if received is not None and reply.has_content():
            signer.sign(*received, reply)
        return reply

    return mod


class _Signer:
    """One call of the mod: the member's key, its evidence, and what the server told it."""

    def __init__(self, path: Path, told: ConfigRecord, opening: str) -> None:
        self._path, self._opening = path, opening
        self._told: dict[str, Any] = dict(told)
        self._key = load_key(path)
        self._text = str(told["terms"])
        self._terms = Terms.from_toml(self._text)

    def check_agreed(self, files: Sequence[str | Path]) -> None:
        """Refuse terms that the member did not agree to; keep a copy of those it signs."""
        if files and self._terms not in [Terms.load(path) for path in files]:
            names = ", ".join(map(str, files))
            raise ValueError(f"the server charges by other terms than those of {names}")
        copy = self._path.with_name(f"{self._path.stem}-terms-{self._terms_digest[:8]}.toml")
        if not copy.exists():
            write_text(copy, self._text)

    def sign(self, name: str, record: ArrayRecord, reply: Message) -> None:
        """Add a statement to a reply that the server can accept, and keep it."""
        key = str(self._told["count-key"]) or None
        reported = key if self._terms.weights.kind == "reported" else None
        sent = SentModel.of(name, record, self._terms.arrays)
        checked = check_reply(reply, sent, reported, self._terms.weights)
        if checked.status != "ok":
            log.warning("Verax: this update will be rejected and is not signed: %s", checked.reason)
            return
        norm = float(squared_norms(sent.charged, [checked.arrays])[0])
        subject = StatementSubject(
            str(self._told["federation"]),
            str(self._told["run"]),
            int(self._told["round"]),
            self._terms_digest,
            record_digest(record),
            self._opening,
        )
        (own,) = reply.content.array_records.values()
        examples = stated_examples(reply.content, key)
        statement = make_statement(self._key, subject, record_digest(own), norm, examples)
        text = signed_text(subject, statement.sent, statement.norm, statement.examples).decode()
        self._keep(
            {
                "run": subject.run,
                "round": subject.round,
                "norm": norm,
                "statement": text,
                "signature": statement.signature,
                "key": evidence_key(self._key),
            }
        )
        reply.content[STATEMENT] = as_record(statement)

    def keep_receipts(self) -> None:
        """Keep the receipts of earlier rounds, with a warning about those that prove nothing."""
        operator = "" if self._terms.evidence is None else self._terms.evidence.operator
        for text in self._told["receipts"]:
            try:
                _, _, note = check_presence(text)
                valid = note.is_signed_by(PublicKey.parse(operator, OPERATOR))
            except BookError:
                valid = False
            if not valid:
                log.warning("Verax: the server sent a receipt that is not signed by %s", operator)
            self._keep({"receipt": text})

    @property
    def _terms_digest(self) -> str:
        return sha256(self._text.encode()).hexdigest()

    def _keep(self, line: dict[str, Any]) -> None:
        with self._path.with_suffix(".jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _opening(request: Message) -> str:
    """The hash of the record that opened the round, if the server prescribes a seed by it."""
    told = request.content.get(SEED_RECORD)
    data = told.get("opening") if isinstance(told, ConfigRecord) else None
    return sha256(data).hexdigest() if isinstance(data, bytes) else ""


def _only_arrays(message: Message) -> tuple[str, ArrayRecord] | None:
    records = list(message.content.array_records.items())
    return records[0] if len(records) == 1 else None
