"""Checkpoints, witnesses, split views; signatures against C2SP's example and `cryptography`."""

import random
import shutil
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from books import norms, rewritten
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verax.ledger import Book, BookError, Transfer
from verax.ledger.export import export_book, import_book
from verax.ledger.notes import OPERATOR, WITNESS, Note, PublicKey, cosign, public_key
from verax.ledger.witness import (
    check_presence,
    compare,
    growth_proof,
    make_checkpoint,
    presence_proof,
    read_growth,
    read_log,
    witness,
)
from verax.mechanism import Changes, Price, Terms
from verax.verifier import signatures, verify, verify_ed25519

# The example of the C2SP document on cosignatures.
EXAMPLE = (
    "example.com/behind-the-sofa\n"
    "20852163\n"
    "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    "\n"
    "— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4U"
    "RYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    "— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZ"
    "CB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
)


def key(seed):
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


OPERATOR_KEY = key(1)
WITNESSES = {"north": key(2), "south": key(3), "west": key(4)}
KEYS = tuple(str(public_key(k, name, WITNESS)) for name, k in WITNESSES.items())


def test_the_example_of_the_document_is_read_and_written():
    note = Note.parse(EXAMPLE)
    assert str(note) == EXAMPLE
    assert note.checkpoint.size == 20852163
    assert int.from_bytes(note.signatures[1][1][4:12], "big") == 1679315147
    theirs = signatures.parse_note(EXAMPLE)
    assert (theirs.origin, theirs.size, theirs.root) == (
        note.checkpoint.origin,
        note.checkpoint.size,
        note.checkpoint.root,
    )


@pytest.mark.parametrize("change", [
    lambda x: x[:-1], lambda x: x.replace("\n\n", "\n"), lambda x: x.replace("2085", "02085"),
    lambda x: x.replace("— w", "- w"), lambda x: x.replace("CsUY", "CsU"), lambda x: "",
    lambda x: x.split("—")[0], lambda x: x.replace("example.com/behind", "exam\tple", 1),
    lambda x: x.replace("20852163", "-1"), lambda x: x + "\n",
])  # fmt: skip
def test_what_is_no_note_is_refused_by_both(change):
    with pytest.raises(BookError):
        Note.parse(change(EXAMPLE))
    with pytest.raises(signatures.WrongRecordError):
        signatures.parse_note(change(EXAMPLE))


def test_signatures_in_plain_python_are_those_of_cryptography():
    rng = random.Random(0)
    for _ in range(20):
        private = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
        public = private.public_key().public_bytes_raw()
        message = rng.randbytes(rng.randrange(200))
        signature = private.sign(message)
        assert verify_ed25519(public, message, signature)
        for changed in (
            (public, message + b"x", signature),
            (public, message, bytes([signature[0] ^ 1]) + signature[1:]),
            (public, message, signature[:40] + bytes([signature[40] ^ 4]) + signature[41:]),
            (key(9).public_key().public_bytes_raw(), message, signature),
            (public, message, signature[:-1]),
        ):
            assert not verify_ed25519(*changed)


def test_signatures_that_can_be_written_in_two_ways_are_refused():
    """s + ℓ would be valid for the same message: malleability, which RFC 8032 forbids."""
    order = 2**252 + 27742317777372353535851937790883648493
    signature = OPERATOR_KEY.sign(b"m")
    s = int.from_bytes(signature[32:], "little") + order
    again = signature[:32] + s.to_bytes(32, "little")
    assert not verify_ed25519(OPERATOR_KEY.public_key().public_bytes_raw(), b"m", again)
    assert not verify_ed25519(b"\xff" * 32, b"m", signature)


def test_keys_are_read_as_they_are_written():
    for text in KEYS:
        assert str(PublicKey.parse(text, WITNESS)) == text
        assert signatures.parse_key(text, WITNESS)
        assert not signatures.parse_key(text, OPERATOR)
        with pytest.raises(BookError, match="not the public key of an operator"):
            PublicKey.parse(text, OPERATOR)
    for odd in ("", "north", KEYS[0][:-3], KEYS[0].replace("north", "south"), "a b+00000000+AA=="):
        assert not signatures.parse_key(odd, WITNESS)
        with pytest.raises(BookError):
            PublicKey.parse(odd, WITNESS)


def watched(path, clock=None, **changes):
    """A book whose terms name three witnesses, two of whom must have signed a settlement."""
    rules = Changes(**{"witnesses": KEYS, "quorum": 2} | changes)
    book = Book.create(path, clock=clock)
    book.create_federation("clinics", Terms(Price.constant(0.5), scale=2, changes=rules))
    for t in (1, 2):
        book.post("clinics", "first", t, norms(4, 1))
    return book


def signed_by(book_path, *names):
    note = make_checkpoint(read_log(book_path), "operator", OPERATOR_KEY)
    for name in names:
        note = cosign(note, name, WITNESSES[name], 1_700_000_000)
    return str(note)


def test_a_settlement_needs_the_quorum(tmp_path):
    path = tmp_path / "book.db"
    with watched(path) as book:

        def settle():
            sequence, _, _ = book.snapshot("clinics")
            transfer = Transfer("a", "b", 300)
            return book.settle("clinics", [transfer], sequence=sequence, reference="s")

        with pytest.raises(BookError, match="2 of 3 witnesses that signed record 5, has 0"):
            settle()
        book.add_checkpoint("clinics", signed_by(path, "north"))
        with pytest.raises(BookError, match="has 1"):
            settle()
        book.add_checkpoint("clinics", signed_by(path, "south", "north"))
        assert settle().posted
        assert not settle().posted
        export_book(book, "clinics", tmp_path / "all.jsonl")
    for source in (path, tmp_path / "all.jsonl"):
        found = verify(source)
        assert found.ok, found.findings
        assert [each.kind for each in found.decisions] == ["settlement"]


def test_checkpoints_that_are_not_of_this_book_are_refused(tmp_path):
    path, other = tmp_path / "book.db", tmp_path / "other.db"
    with watched(path) as book, watched(other) as fork:
        fork.post("clinics", "first", 3, norms(1, 2))
        for note, words in (
            (signed_by(other, "north"), "not one of"),
            (signed_by(path), "no valid signature of a witness"),
            (signed_by(path, "north").replace("— north", "— south"), "no valid signature"),
            ("nonsense", "not a signed checkpoint"),
        ):
            with pytest.raises(BookError, match=words):
                book.add_checkpoint("clinics", note)


def test_terms_and_corrections_may_need_the_quorum_and_notice(tmp_path):
    path = tmp_path / "book.db"
    kinds = ("correction", "terms")
    with watched(path, notice_rounds=3, cosigned=kinds) as book:
        new = Terms(Price.constant(0.25), scale=2)
        with pytest.raises(BookError, match=r"notice of 3 rounds, .* from round 6 on"):
            book.change_terms("clinics", new, from_round=5)
        with pytest.raises(BookError, match="kind terms needs 2 of 3"):
            book.change_terms("clinics", new, from_round=6)
        with pytest.raises(BookError, match="kind correction needs 2 of 3"):
            book.correct("clinics", {"a": 1, "b": -1}, "why", reference="c")
        book.add_checkpoint("clinics", signed_by(path, "north", "west"))
        assert book.change_terms("clinics", new, from_round=6).posted
        # The next decision needs signatures that cover this one; later terms do not lift the rule.
        with pytest.raises(BookError, match="kind correction needs 2 of 3"):
            book.correct("clinics", {"a": 1, "b": -1}, "why", reference="c")
        with pytest.raises(BookError, match="notice of 3 rounds"):
            book.change_terms("clinics", new, from_round=1)
    assert verify(path).ok


def _posted(book, round_):
    return book.post("clinics", "first", round_, norms(4, 1))


def _new_key(book):
    own = b64encode(key(9).public_key().public_bytes_raw()).decode()
    return book.join("clinics", "a", from_round=1, run="first", key=own)


@pytest.mark.parametrize(
    ("kind", "decide"),
    [
        ("deposit", lambda book: book.deposit("clinics", "a", 100, reference="d")),
        ("key", _new_key),
        ("skip", lambda book: _posted(book, 9)),
        ("time", lambda book: _posted(book, 3)),
    ],
)
def test_every_decision_may_need_the_quorum(tmp_path, kind, decide):
    """A book that did not ask for it would be taken; under these terms both sides refuse it."""
    path, free = tmp_path / "book.db", tmp_path / "free.db"
    shown = []  # what the clock shows; the present if it is empty

    def clock():
        return shown[-1] if shown else datetime.now(UTC)

    def turn_back():
        if kind == "time":
            shown.append(datetime(2020, 1, 1, tzinfo=UTC))

    with watched(path, clock, cosigned=(kind,)) as book:
        turn_back()
        with pytest.raises(BookError, match=f"kind {kind} needs 2 of 3"):
            decide(book)
        book.add_checkpoint("clinics", signed_by(path, "north", "west"))
        assert decide(book).posted
    assert verify(path).ok
    assert [each.kind for each in verify(path).decisions if each.kind != "time"] == {
        "deposit": ["deposit"], "key": ["join"], "skip": ["skipped"], "time": []
    }[kind]  # fmt: skip
    shown.clear()
    with watched(free, clock, cosigned=()) as book:
        turn_back()
        decide(book)
        export_book(book, "clinics", tmp_path / "free.jsonl")
    asked = rewritten(tmp_path / "free.jsonl", lambda r: _demanding(r, kind))
    (tmp_path / "forged.jsonl").write_bytes(asked)
    assert "quorum" in {each.kind for each in verify(tmp_path / "forged.jsonl").findings}
    with Book.create(tmp_path / "copy.db") as book, pytest.raises(BookError):
        import_book(book, tmp_path / "forged.jsonl")


def _demanding(record, kind):
    """The record under terms that ask for the quorum."""
    rules = Changes(witnesses=KEYS, quorum=2, cosigned=(kind,))
    text = Terms(Price.constant(0.5), scale=2, changes=rules).to_toml()
    if record["kind"] == "founding":
        record["terms"] = text
    elif record["kind"] == "round":
        record["terms"] = sha256(text.encode()).hexdigest()


def test_a_witness_signs_only_what_continues(tmp_path):
    path, fork = tmp_path / "book.db", tmp_path / "fork.db"
    with watched(path) as book:
        seen = witness(
            Note.parse(signed_by(path)), None, read_log(path), "north", WITNESSES["north"], 5
        )
        book.close()
        shutil.copy(path, fork)
    with Book.open(path) as book, Book.open(fork) as other:
        book.post("clinics", "first", 3, norms(4, 1))
        other.deposit("clinics", "a", 5, reference="x")
        other.post("clinics", "first", 3, norms(4, 1))
        mine, theirs = read_log(path), read_log(fork)
        arguments = ("north", WITNESSES["north"], 6)
        newer = Note.parse(signed_by(path))
        signed = witness(newer, seen.checkpoint, mine, *arguments)
        assert signed.cosigned_at(PublicKey.parse(KEYS[0], WITNESS)) == 6
        assert signed.is_signed_by(public_key(OPERATOR_KEY, "operator", OPERATOR))
        # The same from a short proof, without the book.
        old, proof, note = read_growth(growth_proof(mine, newer, seen.checkpoint.size))
        assert old == seen.checkpoint.size
        assert witness(note, seen.checkpoint, proof, *arguments) == signed
        # The other history also continues what was seen first, but not what was signed last.
        forked = Note.parse(signed_by(fork))
        with pytest.raises(BookError, match="SPLIT VIEW"):
            witness(forked, signed.checkpoint, theirs, *arguments)
        with pytest.raises(BookError, match="SPLIT VIEW"):
            witness(forked, signed.checkpoint, proof, *arguments)
        with pytest.raises(BookError, match="not one of this book"):
            witness(forked, seen.checkpoint, mine, *arguments)
        with pytest.raises(BookError, match="you have seen 6"):
            witness(seen, signed.checkpoint, mine, *arguments)
        assert compare(mine, theirs) == 6
        assert compare(mine, mine) is None


def test_proofs_of_presence(tmp_path):
    path = tmp_path / "book.db"
    with watched(path) as book:
        note, log = Note.parse(signed_by(path)), read_log(path)
        for record in book.records("clinics"):
            text = presence_proof(log, note, record.sequence, record.data)
            assert check_presence(text) == (record.sequence, record.data, note)
            for changed in (
                text.replace("index ", "index 1", 1),
                text.replace("extra ey", "extra eX"),
                text.replace("c2sp", "C2SP"),
                "\n".join(line for i, line in enumerate(text.split("\n")) if i != 3),
                "",
            ):
                with pytest.raises(BookError):
                    check_presence(changed)
