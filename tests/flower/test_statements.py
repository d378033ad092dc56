"""Statements and receipts in a federation: members sign, the server checks, both keep evidence."""

import hashlib
import json
from base64 import b64decode, b64encode

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg, FedMedian

from verax.flower import PaidStrategy, signed
from verax.flower.digest import model_digest, record_digest
from verax.flower.identity import fingerprint
from verax.ledger.evidence import evidence_key
from verax.ledger.notes import OPERATOR, load_key, new_key, public_key
from verax.ledger.witness import check_presence
from verax.mechanism import EvidenceTerms, Weights

from .grid import (
    Honest,
    LocalGrid,
    context,
    key_pem,
    model,
    nodes,
    numpy_of,
    record_of,
    round_of,
    step,
    terms,
    training,
)


class Signing(Honest):
    """Honest clients with the mod; `alter(i, request, reply)` may change a signed reply."""

    def __init__(self, folder, alter=None, agreed=(), **kwargs):
        super().__init__(**kwargs)
        self.folder, self.alter, self.agreed = folder, alter, agreed

    def __call__(self, i, request):
        mod = signed(self.folder / f"m{i}.pem", self.agreed)
        reply = mod(request, context(i), lambda inner, _: super(Signing, self).__call__(i, inner))
        return self.alter(i, request, reply) or reply if self.alter else reply


@pytest.fixture
def federation(book, tmp_path):
    """Keys of three members and the operator; the members are in the book, but for `without`."""
    operator = new_key(tmp_path / "operator.pem")
    keys = [new_key(tmp_path / f"m{i}.pem") for i in range(3)]

    def create(signed="required", without=(), receipts=True, **kwargs):
        name = str(public_key(operator, "operator", OPERATOR)) if receipts else ""
        agreed = terms(evidence=EvidenceTerms(signed, name), **kwargs)
        book.create_federation("federation", agreed)
        for i, key in enumerate(keys):
            own = None if i in without else evidence_key(key)
            book.join("federation", fingerprint(key_pem(i)), f"client-{i}", key=own)
        return {"agreed": agreed, "key": tmp_path / "operator.pem"}

    return create


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_model_has_the_digest_that_the_documentation_defines():
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3).T, "a": np.array(0.5)}
    one = hashlib.sha256(np.array(0.5).tobytes()).hexdigest()
    two = hashlib.sha256(arrays["b"].tobytes(order="C")).hexdigest()
    text = f'{one} <f8  "a"\n{two} <f4 3,2 "b"\n'
    assert model_digest(arrays) == hashlib.sha256(text.encode()).hexdigest()


def test_statements_and_receipts_go_both_ways(run, federation, tmp_path):
    client = Signing(tmp_path)
    ran = run(client, rounds=2, **federation())
    for t in (1, 2):
        content = ran.content(t)
        assert content["statuses"] == {}
        assert len(content["statements"]) == 3
        assert ran.marked("examples", t) == {"client-0": 10, "client-1": 20, "client-2": 30}
        before, _ = client.seen[0, t]
        assert content["model_before"] == model_digest(before)
        for account, (sent, norm, examples, _) in content["statements"].items():
            i = int(ran.labels()[int(account)][-1])
            assert sent == model_digest(client.seen[i, t][1])
            assert float(norm) == pytest.approx(client.norm(i, t), rel=1e-6)
            assert examples == client.examples[i]
    assert ran.content(1)["model_after"] == ran.content(2)["model_before"]
    assert ran.content(2)["model_after"] == record_digest(ran.result.arrays)
    for i in range(3):
        lines = lines_of(tmp_path / f"m{i}.jsonl")
        receipts = [check_presence(line["receipt"]) for line in lines if "receipt" in line]
        rounds = [json.loads(data)["round"] for _, data, _ in receipts]
        assert rounds == [1, 2], "the message that asks for an evaluation carries the receipt"
        own = public_key(load_key(tmp_path / "operator.pem"), "operator", OPERATOR)
        assert all(note.is_signed_by(own) for _, _, note in receipts)
        assert [line["round"] for line in lines if "statement" in line] == [1, 2]
    (copy,) = tmp_path.glob("m0-terms-*.toml")
    assert copy.read_text() == ran.paid.terms.to_toml()


def resigned(folder, i, **changes):
    """A statement with other content and a valid signature, as a member may make it."""
    key = load_key(folder / f"m{i}.pem")
    line = [line for line in lines_of(folder / f"m{i}.jsonl") if "statement" in line][-1]
    words = dict(part.split(" ", 1) for part in line["statement"].splitlines()[1:])
    words |= changes
    text = "verax-statement/v1\n" + "".join(f"{k} {v}\n" for k, v in words.items())
    return ConfigRecord(
        {
            "sent": words["sent"],
            "norm": words["norm"],
            "examples": int(words["examples"]),
            "signature": b64encode(key.sign(text.encode())).decode(),
        }
    )


def without(i, request, reply):
    del reply.content["verax.statement"]


def garbled(i, request, reply):
    reply.content["verax.statement"] = ConfigRecord({"signature": "x"})


def stranger(i, request, reply):
    given = reply.content["verax.statement"]
    other = Ed25519PrivateKey.generate().sign(b"anything")
    given["signature"] = b64encode(other).decode()


def other_model(i, request, reply):
    """The member signs its honest update and sends ten times as much."""
    before = numpy_of(request.content["arrays"])
    after = numpy_of(reply.content["arrays"])
    reply.content["arrays"] = record_of({k: v + 9 * (v - before[k]) for k, v in after.items()})


def more_examples(i, request, reply):
    reply.content["metrics"]["num-examples"] = 50


def other_norm(i, request, reply, folder=None):
    reply.content["verax.statement"] = resigned(folder, i, norm="0.25")


def other_round(i, request, reply, folder=None):
    reply.content["verax.statement"] = resigned(folder, i, round="2")


def other_federation(i, request, reply, folder=None):
    reply.content["verax.statement"] = resigned(folder, i, federation="another")


def other_terms(i, request, reply, folder=None):
    reply.content["verax.statement"] = resigned(folder, i, terms="0" * 64)


@pytest.mark.parametrize(
    ("alter", "reason", "kept"),
    [
        (without, "has no signed statement", False),
        (garbled, "missing or unknown fields", False),
        (stranger, "not signed by its key", False),
        (other_model, "signed another model", True),
        (more_examples, "signed another example count", True),
        (other_norm, "signed the squared norm 0.25", True),
        (other_round, "not signed by its key for this round", False),
        (other_federation, "not signed by its key for this round", False),
        (other_terms, "not signed by its key for this round", False),
    ],
)
def test_a_mismatch_is_rejected_and_booked_with_its_reason(
    run, federation, tmp_path, alter, reason, kept
):
    extra = {"folder": tmp_path} if "folder" in alter.__code__.co_varnames else {}

    def change(i, request, reply):
        if i == 1 and request.metadata.message_type == "train":
            alter(i, request, reply, **extra)

    ran = run(Signing(tmp_path, change), **federation())
    assert ran.marked("statuses") == {"client-1": "rejected"}
    assert reason in ran.marked("reasons")["client-1"]
    assert ("client-1" in ran.marked("statements")) == kept, "a valid signature is evidence"
    assert ran.column("amounts")["client-1"] > 0, "policy.rejected is `largest` by default"


def test_a_replayed_reply_is_rejected(run, federation, tmp_path):
    """A member that sends its reply of round 1 again, statement and all."""
    first = {}

    def replay(i, request, reply):
        if i == 2 and request.metadata.message_type == "train":
            first.setdefault("content", reply.content)
            reply.content = first["content"].copy()

    ran = run(Signing(tmp_path, replay), rounds=2, **federation())
    assert ran.marked("statuses", 2) == {"client-2": "rejected"}


def test_members_without_a_key_are_rejected_only_where_statements_are_required(
    run, federation, tmp_path
):
    ran = run(Signing(tmp_path), **federation(without=[0]))
    assert ran.marked("statuses") == {"client-0": "rejected"}
    assert "join --key" in ran.marked("reasons")["client-0"]


def test_optional_statements_are_checked_where_they_are(run, federation, tmp_path):
    def change(i, request, reply):
        if request.metadata.message_type == "train":
            {1: without, 2: stranger}.get(i, lambda *_: None)(i, request, reply)

    ran = run(Signing(tmp_path, change), **federation("optional", without=[0]))
    assert ran.marked("statuses") == {"client-2": "rejected"}
    assert ran.marked("statements") == {}


def test_terms_without_evidence_change_no_message(run, federation, tmp_path):
    seen = []

    def look(i, request, reply):
        seen.append(set(request.content) | set(reply.content))

    ran = run(Signing(tmp_path, look), **federation("none", receipts=False))
    assert ran.content()["statements"] == {}
    assert ran.content()["model_before"] is not None
    assert not any(name.startswith("verax") for names in seen for name in names)
    assert not (tmp_path / "m0.jsonl").exists()


def test_under_equal_weights_and_a_median_counts_are_signed_but_not_booked(
    run, federation, tmp_path
):
    settings = federation(weights=Weights("equal"))
    ran = run(Signing(tmp_path), strategy=FedMedian(), **settings)
    assert ran.content()["examples"] == {}
    assert {row[2] for row in ran.marked("statements").values()} == {10, 20, 30}


def test_a_member_signs_no_terms_but_its_own(run, federation, tmp_path):
    settings = federation()
    (tmp_path / "mine.toml").write_text(terms(price=0.1).to_toml())
    with pytest.raises(ValueError, match=r"other terms than those of .*mine\.toml"):
        run(Signing(tmp_path, agreed=[tmp_path / "mine.toml"]), **settings)
    (tmp_path / "mine.toml").write_text("# agreed in May\n" + settings["agreed"].to_toml())
    ran = run(Signing(tmp_path, agreed=[tmp_path / "mine.toml"]), **settings)
    assert ran.content()["statuses"] == {}


def test_a_member_that_was_absent_gets_its_receipts_with_its_next_message(
    run, federation, tmp_path
):
    class Absent(Signing):
        def __call__(self, i, request):
            if i == 1 and (not training(request) or round_of(request) == 2):
                return None
            return super().__call__(i, request)

    run(Absent(tmp_path), rounds=3, **federation())
    receipts = [
        json.loads(check_presence(line["receipt"])[1])["round"]
        for line in lines_of(tmp_path / "m1.jsonl")
        if "receipt" in line
    ]
    assert receipts == [1, 2]


def test_the_operator_needs_the_key_that_the_terms_name(book, federation, tmp_path):
    settings = federation()
    with pytest.raises(ValueError, match="promise receipts"):
        PaidStrategy(FedAvg(), terms=settings["agreed"], ledger=book)
    with pytest.raises(ValueError, match="the terms name operator"):
        PaidStrategy(FedAvg(), terms=settings["agreed"], ledger=book, key=tmp_path / "m0.pem")


def test_a_killed_run_resumes_with_the_same_statements(run, federation, book, tmp_path):
    """The second start finds the rounds in the book and posts nothing twice."""
    settings = federation() | {"run": "spring", "checkpoints": tmp_path / "models"}
    run(Signing(tmp_path), rounds=2, **settings)
    for path in (tmp_path / "models" / "spring").glob("round-*.npz"):
        path.rename(path.with_name(path.name.replace(".npz", ".1-ab.staged.npz")))
    size = len(book.leaves("federation"))
    run(Signing(tmp_path), rounds=2, **settings)
    assert len(book.leaves("federation")) == size


def test_strategies_that_send_different_models_cannot_ask_for_statements(
    book, federation, tmp_path
):
    class Personal(FedAvg):
        def configure_train(self, *args):
            messages = list(super().configure_train(*args))
            for i, message in enumerate(messages):
                content = message.content.copy()
                content["arrays"] = record_of(step(i, 1, numpy_of(content["arrays"])))
                message.content = content
            return messages

    settings = federation()
    paid = PaidStrategy(
        Personal(), terms=settings["agreed"], ledger=book, key=settings["key"], patience=0.5
    )
    with pytest.raises(ValueError, match="different models"):
        paid.start(LocalGrid(nodes(3), Signing(tmp_path)), model(), 1, timeout=1)


def test_signatures_are_those_of_the_cryptography_library(run, federation, tmp_path):
    ran = run(Signing(tmp_path), **federation())
    line = lines_of(tmp_path / "m0.jsonl")[0]
    load_key(tmp_path / "m0.pem").public_key().verify(
        b64decode(line["signature"]), line["statement"].encode()
    )
    assert line["signature"] in {row[3] for row in ran.marked("statements").values()}
