"""Spot checks in books: draws, reports and fines, and what the operator cannot forge."""

import hashlib
import json
from base64 import b64decode

import forgeries
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from signed_book import STRANGER, digest
from spot_book import (
    AUDITOR,
    BEACON,
    FORGERIES,
    NORMS,
    VALUE,
    report_of,
    run_of,
    spot_book,
    spot_terms,
    still,
)

from verax.ledger import Book, BookError
from verax.ledger.export import import_book
from verax.ledger.notes import WITNESS, Note, cosign, public_key
from verax.ledger.witness import make_checkpoint, read_log
from verax.mechanism import Changes, EvidenceTerms, effective_weights
from verax.mechanism.spot_checks import draw_rounds
from verax.verifier import verify


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spot")
    spot_book(folder / "book.db")
    return forgeries.contents(folder / "book.db", "clinics", folder)


@pytest.fixture
def book(tmp_path):
    with Book.create(tmp_path / "book.db", clock=still) as opened:
        run_of(opened)
        yield opened


def export(records, path):
    path.write_bytes(forgeries.export_bytes(forgeries.chained(json.loads(json.dumps(records)))))
    return path


def test_a_book_with_spot_checks_verifies_lists_what_was_decided_and_can_be_imported(
    original, tmp_path
):
    path = export(original, tmp_path / "book.jsonl")
    found = verify(path)
    assert found.ok, found.findings
    words = "\n".join(each.message for each in found.decisions)
    for part in (BEACON, VALUE, "reports checked on 'a'", "reports missing on 'c': no commitment"):
        assert part in words
    with Book.create(tmp_path / "copy.db") as book:
        assert import_book(book, path) == ("clinics", len(original))


def test_the_fine_is_the_one_of_the_terms_by_hand(original):
    """f = c W/k Σ w² d: 10 · 2.2/3 · 0.25 · Σ w², shared by two; fees as the terms say."""
    drawn = original[13]["drawn"]["1"]
    counts = {"a": 10, "b": 30, "c": 20}
    squares = 0.0
    for t in drawn:
        weights = effective_weights([counts[name] for name in NORMS[t - 1]])
        squares += float(weights[0]) ** 2
    levy = 10 * (0.1 + 0.1 + 1 + 1) / 3 * squares * 0.25
    assert original[14]["payments"] == pytest.approx([levy, -levy / 2, -levy / 2])
    assert original[15]["amounts"] == [0, 0, 0]
    assert original[16]["amounts"] == [-350, -350, 700]


def test_the_draw_is_the_one_that_everybody_can_recompute(original):
    closing = hashlib.sha256(forgeries.chained(original)[12]).hexdigest()
    text = f"verax/closing/v1\n{closing}\n{VALUE}\n"
    seed = hashlib.sha256(text.encode()).hexdigest()
    prices = {1: [0.1, 0.1, 1.0, 1.0], 3: [0.1, 0.1, 1.0]}  # c was missing in round 3
    rounds = {1: [1, 2, 3, 4], 3: [1, 2, 4]}
    for account in (1, 3):
        places = draw_rounds(seed, account, prices[account], 3)
        assert original[13]["drawn"][str(account)] == [rounds[account][i] for i in places]


def test_the_signed_text_is_what_the_documentation_says(original):
    """Rebuilt by hand from a record, and verified by the cryptography library alone."""
    draw = hashlib.sha256(forgeries.chained(original)[13]).hexdigest()
    lines = [f"draw {draw}", "account 1", "outcome checked", "reason "]
    lines += [f"data {digest('data a')}", f"app {digest('app')}"]
    lines += [f"round {t} {distance} {norm}" for t, distance, norm in original[14]["found"]]
    text = "".join(f"{line}\n" for line in ["verax-spot-check/v1", *lines])
    AUDITOR.public_key().verify(b64decode(original[14]["signature"]), text.encode())


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_spot_check_is_found_and_not_imported(original, tmp_path, kind):
    records = json.loads(json.dumps(original))
    forge, called = FORGERIES[kind]
    forge(records)
    path = export(records, tmp_path / "forged.jsonl")
    found = verify(path)
    assert called in {each.kind for each in found.findings}, found.findings
    with Book.create(tmp_path / "copy.db") as book, pytest.raises(BookError):
        import_book(book, path)


def test_a_forgery_from_which_a_new_draw_follows_fails_by_the_auditors_signature(
    original, tmp_path
):
    """The operator announces another beacon and draws again, consistently."""
    records = json.loads(json.dumps(original))
    records[12]["beacon"] = "my own dice"
    lines = forgeries.chained(records)[:13]
    with Book.create(tmp_path / "new.db") as book:
        import_book(book, _written(tmp_path / "begin.jsonl", lines))
        book.draw("clinics", "first", VALUE)
        drawn = book.state("clinics").checked["first"].drawn
    records[13]["drawn"] = {str(n): list(rounds) for n, rounds in drawn.items()}
    for r, account in ((records[14], 1), (records[15], 2)):
        known = {t: row for t, *row in r["found"]}
        row = next(iter(known.values()))
        r["found"] = [[t, *row] for t in sorted(set(drawn[account]))]
    kinds = {each.kind for each in verify(export(records, tmp_path / "forged.jsonl")).findings}
    assert "signature" in kinds
    assert "draw" not in kinds


def test_members_sign_the_history_up_to_the_opening_of_each_round(original, tmp_path):
    """Another commitment, which is booked before, makes the statements of all rounds invalid."""
    records = json.loads(json.dumps(original))
    records[1]["data"] = digest("other")
    found = verify(export(records, tmp_path / "forged.jsonl")).findings
    wrong = [each.sequence for each in found if each.kind == "signature"]
    assert {6, 8, 10, 12} <= set(wrong)


def _written(path, lines):
    path.write_bytes(forgeries.export_bytes(lines))
    return path


def test_every_step_may_be_repeated_and_changes_nothing(book):
    book.close_run("clinics", "first", BEACON)
    assert not book.close_run("clinics", "first", BEACON).posted
    book.draw("clinics", "first", VALUE)
    assert not book.draw("clinics", "first", VALUE).posted
    report = report_of(book, "a")
    receipt = book.add_report(report)
    assert receipt.posted
    again = book.add_report(report)
    assert not again.posted
    assert again.amounts == receipt.amounts
    with pytest.raises(BookError, match="was reported on already, by record 15"):
        book.add_report(report_of(book, "a", distance=0.5))


def test_steps_out_of_order_are_refused_with_the_remedy(book):
    with pytest.raises(BookError, match="must be closed before"):
        book.draw("clinics", "first", VALUE)
    with pytest.raises(BookError, match="has no rounds whose terms"):
        book.close_run("clinics", "second", BEACON)
    with pytest.raises(BookError, match="name no witnesses"):
        book.close_run("clinics", "first")
    book.close_run("clinics", "first", BEACON)
    with pytest.raises(BookError, match="give the value of"):
        book.draw("clinics", "first")
    with pytest.raises(BookError, match="closed by record 13"):
        book.open_round("clinics", "first", 5)
    with pytest.raises(BookError, match="no rounds of run 'first' are drawn"):
        book.add_report(report_of_undrawn())
    book.draw("clinics", "first", VALUE)
    with pytest.raises(BookError, match="not signed by the auditor"):
        book.add_report(report_of(book, "a", key=STRANGER))
    with pytest.raises(BookError, match="committed to nothing"):
        book.add_report(report_of(book, "c"))


def report_of_undrawn():
    from verax.ledger import SpotReport

    return SpotReport("clinics", "first", "a", "refused", "ill")


@pytest.fixture
def witnessed(tmp_path):
    """A closed run that three witnesses draw, whose quorum for decisions is two; their keys."""
    keys = {name: Ed25519PrivateKey.from_private_bytes(name[:1].encode() * 32) for name in "xyz"}
    texts = tuple(str(public_key(key, name, WITNESS)) for name, key in keys.items())
    changes = Changes(witnesses=texts, quorum=2, cosigned=("deposit",))
    with Book.create(tmp_path / "book.db", clock=still) as book:
        run_of(book, spot_terms(changes=changes))
        book.close_run("clinics", "first")
        yield book, keys, tmp_path / "book.db"


def closing_note(path, keys, *names):
    note = make_checkpoint(read_log(path), "operator", STRANGER)
    for time, name in enumerate(names, 1):
        note = cosign(note, name, keys[name], time)
    return note


def test_the_signatures_of_all_witnesses_under_the_closing_record_draw(witnessed):
    book, keys, path = witnessed
    with pytest.raises(BookError, match="too few witnesses"):
        book.draw("clinics", "first")
    note = closing_note(path, keys, "z", "x", "y")
    book.add_checkpoint("clinics", str(note))
    book.draw("clinics", "first")
    by_name = {name: raw[4:] for name, raw in Note.parse(str(note)).signatures}
    raw = b"".join(by_name[name] for name in "xyz")  # in the order of the terms
    value = list(book.records("clinics"))[-1].content["value"]
    assert value == hashlib.sha256(raw).hexdigest()
    # Other signatures come too late to change anything.
    book.add_checkpoint("clinics", str(cosign(note, "y", keys["y"], 9)))
    assert book.state("clinics").checked["first"].value == value
    assert verify(path).ok


@pytest.mark.parametrize("names", ["xy", "xz", "yz", "x"])
def test_fewer_witnesses_draw_nothing_so_that_the_operator_cannot_choose_among_them(
    witnessed, names
):
    """A quorum of two out of three would give it four draws to choose from."""
    book, keys, path = witnessed
    book.add_checkpoint("clinics", str(closing_note(path, keys, *names)))
    with pytest.raises(BookError, match=r"too few witnesses .* all 3 must"):
        book.draw("clinics", "first")
    assert verify(path).ok


def test_new_terms_after_the_closing_do_not_replace_the_witnesses_that_draw(witnessed):
    book, keys, path = witnessed
    note = closing_note(path, keys, "x")  # of the records up to the closing
    changes = Changes(witnesses=(str(public_key(keys["x"], "x", WITNESS)),), quorum=1)
    book.change_terms("clinics", spot_terms(changes=changes), from_round=5)
    book.add_checkpoint("clinics", str(note))
    with pytest.raises(BookError, match="too few witnesses"):
        book.draw("clinics", "first")


@pytest.mark.parametrize("value", [VALUE.upper(), f" {VALUE}", VALUE[:32], "3 11 17", "dice"])
def test_the_value_of_a_beacon_has_one_form(book, value):
    """Each way to write it would give the operator another draw to choose from."""
    book.close_run("clinics", "first", BEACON)
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        book.draw("clinics", "first", value)


def test_terms_with_spot_checks_need_signed_statements():
    with pytest.raises(ValueError, match=r"write evidence.signed = \"required\""):
        spot_terms(evidence=EvidenceTerms("none"))
    terms = spot_terms()
    assert type(terms).from_toml(terms.to_toml()) == terms
