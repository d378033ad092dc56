"""What a member's statements and receipts prove, against true books and against forged ones."""

import json
import subprocess
import sys
from base64 import b64decode, b64encode

import forgeries
import pytest
from signed_book import (
    EXAMPLES,
    MEMBERS,
    OPERATOR_KEY,
    OPERATOR_TEXT,
    STRANGER,
    models,
    signed_book,
    signed_reports,
    signed_terms,
)

from verax.ledger import Book, Report, tree
from verax.ledger.evidence import StatementSubject, evidence_key, signed_text
from verax.ledger.export import export_book
from verax.ledger.witness import Log, make_checkpoint, presence_proof
from verax.mechanism import effective_weights
from verax.verifier import verify
from verax.verifier.mine import root_from_path
from verax.verifier.pack import packed

NORMS = {1: {"a": 4.0, "b": 1.0, "c": 2.5}, 2: {"a": 3.0, "b": 2.25, "c": 1e-05}}


def receipt(path, sequence, key=OPERATOR_KEY):
    with Book.open(path, read_only=True) as book:
        log = Log(book.leaves("clinics"))
        note = make_checkpoint(log, "operator", key)
        return presence_proof(log, note, sequence, book.record("clinics", sequence).data)


def evidence(path, file, **changes):
    """North's evidence of three rounds, as its mod keeps it; `changes` replace receipts."""
    lines = []
    with Book.open(path, read_only=True) as book:
        for sequence in (5, 7, 8):
            r = book.record("clinics", sequence).body
            subject = StatementSubject("clinics", r.run, r.round, r.terms, r.model_before)
            sent, norm, examples, signature = r.statements[1]
            text = signed_text(subject, sent, norm, examples).decode()
            lines.append(
                {"run": r.run, "round": r.round, "norm": float(norm), "statement": text,
                 "signature": signature, "key": evidence_key(MEMBERS["a"])}
            )  # fmt: skip
            text = changes.get(f"receipt{r.round}", receipt(path, sequence))
            lines.append({"receipt": text})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="module")
def true_book(tmp_path_factory):
    path = tmp_path_factory.mktemp("true") / "book.db"
    signed_book(path)
    return path


def test_a_true_book_proves_what_was_sent_and_how_it_was_booked(true_book, tmp_path):
    mine = evidence(true_book, tmp_path / "north.jsonl")
    found = verify(true_book, mine=mine, member="North")
    assert found.ok, found.findings
    assert len(found.proven) == 3
    with Book.open(true_book) as book:
        amount = book.record("clinics", 5).body.amounts[0]
    assert "squared norm 4.0 from 10 examples" in found.proven[0]
    assert f"is booked as ok with the amount {amount:+d} (record 5)" in found.proven[0]
    assert verify(true_book, mine=mine, member="North", signer=OPERATOR_TEXT).ok


def forged_book(path, signed, north=2.0):
    """The operator's own history: North's norm is another one, everything follows from it."""
    with Book.create(path) as book:
        book.create_federation("clinics", signed_terms(signed))
        for name, label in (("a", "North"), ("b", "South"), ("c", "West")):
            book.join("clinics", name, label, key=evidence_key(MEMBERS[name]))
        for t, norms in NORMS.items():
            counts = list(EXAMPLES.values())
            weights = effective_weights(counts).tolist()
            reports = [
                Report(m, statistic=norm * (north if m == "a" else 1) * w**2,
                       weight=count / sum(counts) * 3, examples=count)
                for (m, norm), count, w in zip(norms.items(), counts, weights, strict=True)
            ]  # fmt: skip
            book.post("clinics", "first", t, reports, models=models(t))
        third = signed_reports(book, 3, {"a": 3.5, "b": 2.5})
        third = [*third, Report("c", "missing")] if signed != "none" else []
        if third:
            book.post("clinics", "first", 3, third, models=models(3))
    return path


@pytest.mark.parametrize("signed", ["none", "optional"])
def test_a_forged_book_is_contradicted_by_the_operators_own_signature(true_book, tmp_path, signed):
    mine = evidence(true_book, tmp_path / "north.jsonl")
    forged = forged_book(tmp_path / "forged.db", signed)
    assert verify(forged).ok, "it is consistent in itself"
    found = verify(forged, mine=mine, member="North")
    with Book.open(true_book) as book, Book.open(forged) as other:
        right = book.record("clinics", 5).body.amounts[0]
        wrong = other.record("clinics", 5).body.amounts[0]
    forks = [each.message for each in found.findings if each.kind == "fork"]
    assert right != wrong
    assert f"the operator signed that it is booked as ok with the amount {right:+d}" in forks[0]
    assert (
        f"this book is another one, in which it is booked as ok with the amount {wrong:+d}"
        in (forks[0])
    )
    own = [each.message for each in found.findings if each.kind == "mine"]
    assert "north.jsonl says 4.0" in own[0]
    assert not found.proven


def test_a_shortened_book_is_contradicted(true_book, tmp_path):
    mine = evidence(true_book, tmp_path / "north.jsonl")
    records = forgeries.contents(true_book, "clinics", tmp_path)[:7]
    export = tmp_path / "short.jsonl"
    export.write_bytes(forgeries.export_bytes(forgeries.chained(records)))
    kinds = {each.kind for each in verify(export, mine=mine, member="North").findings}
    assert kinds == {"fork", "mine"}


def test_a_statement_that_is_left_out_of_an_optional_book_is_missed(tmp_path):
    """The norm is right, so that only the member's statement shows that something was removed."""
    path = tmp_path / "book.db"
    signed_book(path, "optional")
    mine = evidence(path, tmp_path / "north.jsonl")
    records = forgeries.contents(path, "clinics", tmp_path)
    del records[4]["statements"]["1"]
    export = tmp_path / "without.jsonl"
    export.write_bytes(forgeries.export_bytes(forgeries.chained(records)))
    assert verify(export).ok
    messages = [each.message for each in verify(export, mine=mine, member="North").findings]
    assert any("does not hold the statement that is signed" in message for message in messages)


def with_record(text, sequence_text):
    """A proof whose record is another one."""
    lines = text.split("\n")
    data = b64decode(lines[1][6:]).replace(b'"round":1', sequence_text)
    lines[1] = "extra " + b64encode(data).decode()
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda t, _: "", "checkpoint", "is not a proof"),
        (lambda t, _: t.replace("extra ", "extra!"), "checkpoint", "is not a proof"),
        (lambda t, _: t.replace("\nindex 4\n", "\nindex 5\n"), "checkpoint", "does not lead"),
        (lambda t, _: t.replace("\nindex 4\n", "\nindex -1\n"), "checkpoint", "does not lead"),
        (lambda t, _: t.replace("\nindex 4\n", "\nindex x\n"), "checkpoint", "is not a proof"),
        (lambda t, _: with_record(t, b'"round":3'), "checkpoint", "does not lead"),
        (lambda t, p: receipt(p, 5, STRANGER), "signature", "is not signed by operator+"),
        (lambda t, _: t.split("\n\n")[0] + "\n\n", "checkpoint", "not a signed checkpoint"),
        (lambda t, p: receipt(p, 6), "checkpoint", "is not of a round"),
    ],
)
def test_a_receipt_that_proves_nothing_is_named(true_book, tmp_path, change, kind, words):
    text = change(receipt(true_book, 5), true_book)
    mine = evidence(true_book, tmp_path / "north.jsonl", receipt1=text)
    found = verify(true_book, mine=mine, member="North")
    (finding,) = found.findings
    assert finding.kind == kind
    assert words in finding.message
    assert len(found.proven) == 2


def test_without_the_operators_key_in_the_terms_it_has_to_be_given(tmp_path, true_book):
    mine = evidence(true_book, tmp_path / "north.jsonl")
    forged = tmp_path / "silent.db"
    with Book.create(forged) as book:
        book.create_federation("clinics", signed_terms("none", operator=""))
    found = verify(forged, mine=mine, member="North")
    assert "give its key" in found.findings[-1].message
    found = verify(forged, mine=mine, member="North", signer=OPERATOR_TEXT)
    assert found.findings[-1].kind == "fork"


def test_paths_lead_to_the_root_as_the_writer_computes_it():
    """Another algorithm than the writer's recursion, for all trees of up to 20 records."""
    leaves = [tree.leaf_hash(bytes([i])) for i in range(20)]
    for size in range(1, 21):
        for index in range(size):
            path = tree.inclusion_proof(leaves[:size], index)
            assert root_from_path(leaves[index], index, size, path) == tree.root(leaves[:size])
            assert root_from_path(leaves[index], index, size, [*path, b"x" * 32]) == b""
            assert root_from_path(leaves[index], index, 2 * size, path) == b""


def test_the_packed_file_needs_nothing_but_python(true_book, tmp_path):
    mine = evidence(true_book, tmp_path / "north.jsonl")
    (tmp_path / "verify.py").write_text(packed())
    with Book.open(true_book) as book:
        export_book(book, "clinics", tmp_path / "book.jsonl")
    with Book.open(forged_book(tmp_path / "forged.db", "none")) as book:
        export_book(book, "clinics", tmp_path / "forged.jsonl")

    def alone(*rest):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "verify.py", *rest],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    code, said = alone("book.jsonl", "--mine", mine.name, "--member", "North")
    assert (code, said.count("PROVEN")) == (0, 3), said
    code, said = alone("forged.jsonl", "--mine", mine.name, "--member", "North")
    assert (code, said.count("WRONG (fork)")) == (1, 3), said
    code, said = alone("nothing.jsonl")
    assert code == 2
    assert "nothing.jsonl" in said


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def trained_again(line, key, norm):
    """The same round once more, signed by a key, as after a restart of the server."""
    text = line["statement"].replace(f"norm {line['norm']}", f"norm {norm}")
    signature = b64encode(key.sign(text.encode())).decode()
    return line | {"norm": norm, "statement": text, "signature": signature}


def round_trained_twice(path, file):
    """North's evidence, in which the booked statement of round 1 is followed by another one."""
    lines = lines_of(evidence(path, file))
    again = trained_again(lines[0], MEMBERS["a"], 9.0)
    write_lines(file, [lines[0], again, *lines[1:]])
    return file


def test_a_round_that_was_trained_again_after_a_restart_is_no_difference(true_book, tmp_path):
    mine = round_trained_twice(true_book, tmp_path / "north.jsonl")
    found = verify(true_book, mine=mine, member="North")
    assert found.ok, found.findings
    assert "squared norm 4.0" in found.proven[0], "the statement that is booked, not the last one"


def test_a_round_that_was_trained_again_is_compared_without_statements(true_book, tmp_path):
    mine = tmp_path / "north.jsonl"
    lines = [line for line in lines_of(evidence(true_book, mine)) if "norm" in line]
    plain = [{name: line[name] for name in ("run", "round", "norm")} for line in lines]
    write_lines(mine, [*plain, plain[0] | {"norm": 9.0}])
    assert verify(true_book, mine=mine, member="North").ok
    write_lines(mine, [plain[0] | {"norm": 8.0}, plain[0] | {"norm": 9.0}, *plain[1:]])
    (finding,) = verify(true_book, mine=mine, member="North").findings
    assert "north.jsonl says 9.0" in finding.message


def test_another_training_of_a_round_than_the_booked_one_is_missed(true_book, tmp_path):
    mine = tmp_path / "north.jsonl"
    lines = lines_of(evidence(true_book, mine))
    write_lines(mine, [trained_again(lines[0], MEMBERS["a"], 9.0), *lines[1:]])
    (finding,) = verify(true_book, mine=mine, member="North").findings
    assert "north.jsonl says 9.0" in finding.message


def evidence_of_two_federations(path, file):
    """North's evidence, with what it signed and was given in another federation as well."""
    lines = lines_of(evidence(path, file))
    elsewhere = []
    for line in lines[:2]:
        if "receipt" in line:
            elsewhere.append({"receipt": of_another_federation(line["receipt"])})
        else:
            text = line["statement"].replace("federation clinics", "federation banks")
            signature = b64encode(MEMBERS["a"].sign(text.encode())).decode()
            other = line | {"norm": 77.0, "statement": text, "signature": signature}
            elsewhere += [other, other | {"round": 50}]
    write_lines(file, [*lines, *elsewhere])
    return file


def of_another_federation(receipt):
    """A receipt of a book with one record, of the federation "banks"; another operator's."""
    data = b64decode(receipt.split("\n")[1][6:]).replace(b'"clinics"', b'"banks"')
    log = Log([tree.leaf_hash(data)])
    return presence_proof(log, make_checkpoint(log, "other", STRANGER), 1, data)


def test_a_key_may_sign_in_two_federations(true_book, tmp_path):
    mine = evidence_of_two_federations(true_book, tmp_path / "north.jsonl")
    found = verify(true_book, mine=mine, member="North")
    assert found.ok, found.findings
    assert len(found.proven) == 3


def test_a_book_under_another_name_does_not_pass_for_lack_of_evidence(true_book, tmp_path):
    """All of North's evidence is of another federation, and the book marks it missing."""
    mine = evidence(true_book, tmp_path / "north.jsonl")
    with Book.create(tmp_path / "renamed.db") as book:
        book.create_federation("clinics-2", signed_terms("none"))
        for name, label in (("a", "North"), ("b", "South"), ("c", "West")):
            book.join("clinics-2", name, label)
        reports = [Report("a", "missing"), Report("b", statistic=1.0), Report("c", statistic=1.0)]
        book.post("clinics-2", "first", 1, reports)
    (finding,) = verify(tmp_path / "renamed.db", mine=mine, member="North").findings
    assert "holds nothing of the federation 'clinics-2'" in finding.message


def test_what_was_signed_before_a_new_key_remains_proven(tmp_path):
    path = tmp_path / "book.db"
    signed_book(path)
    mine = evidence(path, tmp_path / "north.jsonl")
    with Book.open(path) as book:
        book.join("clinics", "a", "North", key=evidence_key(STRANGER))
    found = verify(path, mine=mine, member="North")
    assert found.ok, found.findings
    assert "squared norm 4.0 from 10 examples" in found.proven[0]
    assert not any("no statement signed by its key" in words for words in found.proven)


def test_the_new_key_does_not_sign_for_earlier_rounds(tmp_path):
    path = tmp_path / "book.db"
    signed_book(path, "optional")
    mine = evidence(path, tmp_path / "north.jsonl")
    lines = lines_of(mine)
    write_lines(mine, [trained_again(lines[0], STRANGER, 4.0), *lines[1:]])
    with Book.open(path) as book:
        book.join("clinics", "a", "North", key=evidence_key(STRANGER))
    found = verify(path, mine=mine, member="North")
    assert "no statement signed by its key" in found.proven[0]
