"""What pages and API say, against what the ledger's own commands say."""

import json
import math
import sqlite3
from base64 import b64encode
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verax.console.account_views import price_now, series, statement
from verax.console.follow import ALARMED, Library
from verax.console.history import thinned
from verax.console.viewer import Viewer
from verax.console.views import predicted_payments
from verax.ledger import Book, Report
from verax.ledger.export import export_book
from verax.ledger.notes import OPERATOR, public_key
from verax.ledger.statement import make_statement
from verax.ledger.witness import Log, make_checkpoint, presence_proof
from verax.mechanism import Audited, FailurePolicy, Openness, Price, Terms, Weights
from verax.verifier import verify

from ..audit.report_fixture import make_audit
from ..command import verax
from .conftest import BANKS, CLINICS, OPERATOR_KEY, fill, served
from .forged import forgeries


def library_of(path):
    return Library(Book.open(path, read_only=True))


def test_a_statement_says_what_the_command_says(filled):
    library = library_of(filled)
    viewer = Viewer(library.find(CLINICS), 2)
    found = statement(viewer, library, 2)
    with Book.open(filled, read_only=True) as book:
        right = make_statement(book, "clinics", "b")
    assert [(x["record"], x["amount"], x["balance"]) for x in reversed(found["lines"])] == [
        (x.sequence, x.amount, x.balance) for x in right.lines
    ]
    assert found["balance"] == right.balance


#: What the absent cost: nothing, as much as the largest, or a fee.
POLICIES = (
    FailurePolicy(),
    FailurePolicy(missing="largest"),
    FailurePolicy(missing="flat-fee", fee=0.3),
)


def closed_book(path, rounds=12, policy=POLICIES[0]):
    """Own prices and allowances, absent members, an audited band, and weights."""
    rng = np.random.default_rng(0)
    audited = Audited(
        "model difference", "FedAvg", "1 epoch", 20, "equal", 3, (1, 6), (0.5, 0.5), (4.0, 3.0),
        "a", "ab" * 32, "verax",
    )  # fmt: skip
    terms = Terms(
        Price(((0.1, 0.2, 0.4), (0.3, 0.2, 0.1)), starts=(1, 6), rounds=20),
        members=("n", "s", "w"),
        allowances=((0.5, -0.2, -0.3), (0.1, 0.2, -0.3)),
        weights=Weights("equal"),
        policy=policy,
        currency="EUR",
        scale=2,
        audited=audited,
    )
    with Book.create(path) as book:
        book.create_federation("clinics", terms)
        for member in ("w", "n", "s"):
            book.join("clinics", member)
        for t in range(1, rounds + 1):
            values = rng.lognormal(0, 0.4, 3)
            reports = [Report(m, statistic=float(v)) for m, v in zip("nsw", values, strict=True)]
            if t % 4 == 0:
                reports[1] = Report("s", "missing", reason="timeout")
            book.post("clinics", "r", t, reports)
    return path


def by_hand(line):
    """The arithmetic that the page shows."""
    return line["levy"] - line["others"] - line["allowance"] - line["fees"]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.missing)
def test_every_charge_can_be_recomputed_by_hand_from_its_line(tmp_path, policy):
    """price × squared norm − mean of the others − allowance − fees = payment, in every round."""
    library = library_of(closed_book(tmp_path / "book.db", policy=policy))
    followed = library.find(CLINICS)
    records = {r.sequence: r.body for r in library.book.records("clinics") if r.kind == "round"}
    checked = 0
    for account in (1, 2, 3):
        for line in statement(Viewer(followed, account), library, account)["lines"]:
            body = records[line["record"]]
            place = body.accounts.index(account)
            assert line["payment"] == body.payments[place]
            if line["status"] != "ok":
                assert line["levy"] is None
                continue
            listed = {2: 0, 3: 1, 1: 2}  # n, s, w in the order of the terms
            block = int(body.round >= 6)
            prices = ((0.1, 0.2, 0.4), (0.3, 0.2, 0.1))[block]
            known = dict(zip(body.accounts, body.statistics, strict=True))
            if policy.missing == "largest":
                largest = max(x for x in known.values() if x is not None)
                known = {n: largest if x is None else x for n, x in known.items()}
            levies = {n: prices[listed[n]] * x for n, x in known.items() if x is not None}
            others = [levy for n, levy in levies.items() if n != account]
            assert line["price"] == pytest.approx(prices[listed[account]])
            assert line["statistic"] == body.statistics[place]
            assert line["others"] == pytest.approx(sum(others) / len(others))
            kappas = ((0.5, -0.2, -0.3), (0.1, 0.2, -0.3))[block]
            centre = sum(kappas[listed[n]] for n in levies) / len(levies)
            assert line["allowance"] == pytest.approx(kappas[listed[account]] - centre)
            fined = policy.missing == "flat-fee" and body.round % 4 == 0
            assert line["fees"] == pytest.approx(0.3 / 2 if fined else 0.0)
            assert by_hand(line) == pytest.approx(line["payment"])
            checked += 1
    assert checked == 12 + 12 + 9


def test_an_overcharge_does_not_add_up_on_the_page(tmp_path, monkeypatch):
    """What the others are levied is computed from their statistics, not from the payment."""
    library = library_of(closed_book(tmp_path / "book.db"))
    right = library.record

    def overcharged(name, sequence):
        record = right(name, sequence)
        if record.kind != "round":
            return record
        payments = tuple(payment + 1 for payment in record.body.payments)
        return replace(record, body=replace(record.body, payments=payments))

    monkeypatch.setattr(library, "record", overcharged)
    line = statement(Viewer(library.find(CLINICS), 1), library, 1)["lines"][0]
    assert by_hand(line) == pytest.approx(line["payment"] - 1)


def test_a_round_that_nobody_is_charged_for_has_no_arithmetic(tmp_path):
    with Book.create(tmp_path / "book.db") as book:
        terms = Terms(Price.constant(1.0), members=("a", "b"), allowances=((0.5, -0.5),))
        book.create_federation("clinics", terms)
        for member in "ab":
            book.join("clinics", member)
        book.post("clinics", "r", 1, [Report("a", statistic=4.0), Report("b", "missing")])
    library = library_of(tmp_path / "book.db")
    (line,) = statement(Viewer(library.find(CLINICS), 1), library, 1)["lines"]
    assert (line["payment"], line["levy"], line["allowance"]) == (0.0, None, 0.0)
    assert library.find(CLINICS).series[1].promised == 0


def test_promises_are_the_allowances_of_the_rounds_one_took_part_in(tmp_path):
    library = library_of(closed_book(tmp_path / "book.db"))
    followed = library.find(CLINICS)
    # Without s, the allowances of n and w are centred again: 0.4 and -0.4, then 0.2 and -0.2.
    assert followed.series[2].promised == pytest.approx(4 * 0.5 + 0.4 + 5 * 0.1 + 2 * 0.2)
    assert followed.series[3].promised == pytest.approx(4 * -0.2 + 5 * 0.2)
    unit = 100
    paid = sum(b.payments[b.accounts.index(2)] for b in
               (r.body for r in library.book.records("clinics") if r.kind == "round"))  # fmt: skip
    assert followed.series[2].charged / unit == pytest.approx(paid, abs=1 / unit)
    now = price_now(Viewer(followed, 1))
    expected = {"rounds": 20, "allowance_whole": pytest.approx(5 * -0.3 + 15 * -0.3)}
    assert now == {"round": 13, "price": 0.1, "allowance": -0.3} | expected
    north = price_now(Viewer(followed, 2))
    assert north["allowance_whole"] == pytest.approx(5 * 0.5 + 15 * 0.1)


def test_norms_outside_the_audited_band_are_marked(tmp_path):
    followed = library_of(closed_book(tmp_path / "book.db")).find(CLINICS)
    for row in followed.rounds:
        low, high = (0.5, 4.0) if row.round < 6 else (0.5, 3.0)
        for number in (1, 2, 3):
            own = followed.series[number]
            norm = own.norms[list(own.sequences).index(row.sequence)]
            assert (number in row.outside) == (not math.isnan(norm) and not low <= norm <= high)
    assert any(row.outside for row in followed.rounds)


def test_alarms_are_those_that_watch_prints(tmp_path):
    path = tmp_path / "book.db"
    rng = np.random.default_rng(3)
    with Book.create(path) as book:
        book.create_federation("clinics", Terms(Price.constant(1.0)))
        for t in range(1, 40):
            values = rng.lognormal(0, 0.1, 4) * [1, 1, 9 if t in (20, 31) else 1, 1]
            reports = [Report(m, statistic=float(v)) for m, v in zip("abcd", values, strict=True)]
            book.post("clinics", "r", t, reports)
    said = [
        json.loads(line)
        for line in verax(["watch", path, "--once", "--json"]).stdout.split("\n")
        if line
    ]
    right = [(row["round"], m["member"]) for row in said for m in row["members"] if m["alarm"]]
    followed = library_of(path).find(CLINICS)
    names = {a.number: a.label for a in followed.members}
    assert [(row.round, names[n]) for row in followed.rounds for n in row.alarms] == right
    assert (20, "c") in right
    assert len(followed.rounds) < ALARMED


def test_thinning_keeps_the_ends_and_every_extreme():
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.standard_normal(100_000))
    values[[71_234, 12]] = [9_999.0, -9_999.0]
    kept = thinned(values.tolist(), 400)
    assert len(kept) <= 400
    assert {0, 12, 71_234, 99_999} <= set(kept)
    assert kept == sorted(set(kept))
    # Between two kept points nothing lies beyond what its bucket kept.
    assert max(values) == max(values[kept])
    assert min(values) == min(values[kept])
    for first in range(0, 100_000, 10_000):
        part = values[first : first + 10_000]
        inside = [values[k] for k in kept if first <= k < first + 10_000]
        assert max(inside) >= np.quantile(part, 0.999)


def test_a_series_of_gaps_is_thinned_too():
    assert thinned([math.nan] * 1000, 10) == [0, 999]
    assert thinned([], 10) == []


def test_the_export_is_that_of_the_command(at, tmp_path):
    answer = at.get(f"/api/v1/federations/{CLINICS}/export", "operator")
    with Book.open(at.path, read_only=True) as book:
        assert export_book(book, "clinics", tmp_path / "export.jsonl") == 9
    assert answer.content == (tmp_path / "export.jsonl").read_bytes()
    assert answer.headers["content-disposition"] == 'attachment; filename="clinics.jsonl"'
    (tmp_path / "downloaded.jsonl").write_bytes(answer.content)
    assert verify(tmp_path / "downloaded.jsonl").ok


def test_a_checkpoint_is_signed_with_the_operators_key(filled, tmp_path):
    key = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
    with served(filled, tmp_path / "console", signer=("north.example", key)) as at:
        token = at.access.create(1)
        (tmp_path / "now.note").write_text(
            at.get(f"/api/v1/federations/{CLINICS}/checkpoint", token).text
        )
    signer = str(public_key(key, "north.example", OPERATOR))
    found = verify(filled, federation="clinics", checkpoints=[tmp_path / "now.note"], signer=signer)
    assert found.ok, found.findings
    assert found.checkpoints == 1


def test_receipts_hold_the_hash_of_each_record(at):
    found = at.get(f"/api/v1/federations/{CLINICS}/members/1/receipts", "a").json()
    with Book.open(at.path, read_only=True) as book:
        leaves = book.state("clinics").leaves
        assert found["root"] == b64encode(book.state("clinics").root_at(9)).decode()
    assert [row["record"] for row in found["receipts"]] == [5, 6, 7]
    for row in found["receipts"]:
        assert row["leaf"] == b64encode(leaves[row["record"] - 1]).decode()
    assert found["receipts"][-1]["balance"] == sum(row["amount"] for row in found["receipts"])


def test_signed_receipts_are_evidence_that_verify_reads(tmp_path):
    """All rounds of a member in a book of many sizes of its tree; and against a rewritten book."""
    path, own = tmp_path / "book.db", tmp_path / "north.jsonl"
    signer = ("north.example", OPERATOR_KEY)
    with Book.create(path) as book:
        book.create_federation("banks", Terms(Price.constant(1.0), openness=Openness("all", "all")))
        for t in range(1, 24):
            reports = [Report(m, statistic=t + i) for i, m in enumerate("abc") if (t + i) % 3]
            book.post("banks", "r", t, reports)
    with served(path, tmp_path / "console", signer=signer) as at:
        token = at.access.create(1, federation="banks", member="a")
        answer = at.get(f"/api/v1/federations/{BANKS}/members/1/receipts.jsonl", token)
        page = at.get(f"/f/{BANKS}/members/1", token)
        assert "Download signed receipts" in page.text
    assert answer.headers["content-disposition"].endswith('filename="banks-receipts.jsonl"')
    kept = [{"run": "r", "round": t, "norm": float(t)} for t in range(1, 24) if t % 3]
    own.write_text("".join(json.dumps(line) + "\n" for line in kept) + answer.text)
    with Book.open(path) as book:
        log = Log(book.leaves("banks"))
        note = make_checkpoint(log, *signer)
        numbers = [s for _, t, s, _ in book.rounds("banks") if t % 3]
        proofs = [presence_proof(log, note, n, book.record("banks", n).data) for n in numbers]
    assert [json.loads(line)["receipt"] for line in answer.text.splitlines()] == proofs
    key = str(public_key(OPERATOR_KEY, "north.example", OPERATOR))
    found = verify(path, mine=own, member="a", signer=key)
    assert found.ok, found.findings
    assert len(found.proven) == len(numbers) == 16
    forged = tmp_path / "forged.db"
    with Book.create(forged) as book:
        book.create_federation("banks", Terms(Price.constant(1.0), openness=Openness("all", "all")))
        book.post("banks", "r", 1, [Report("a", statistic=9.0), Report("b", statistic=2.0)])
    assert "fork" in {
        each.kind for each in verify(forged, mine=own, member="a", signer=key).findings
    }


def test_metrics_are_those_of_the_book(at):
    text = at.get("/metrics", "operator").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['verax_rounds_total{federation="clinics"}'] == "3"
    with Book.open(at.path, read_only=True) as book:
        owed = book.balances("clinics")
    labels = {"a": "North", "b": "South", "c": "West"}
    for member, label in labels.items():
        found = values[f'verax_balance{{federation="clinics",member="{label}"}}']
        assert float(found) == owed[member] / 100
    assert float(values['verax_norm{federation="clinics",member="South"}']) == 80.123


def test_statements_have_pages(tmp_path):
    with Book.create(tmp_path / "book.db") as book:
        book.create_federation("clinics", Terms(Price.constant(1.0), scale=2))
        for t in range(1, 121):
            book.post("clinics", "r", t, [Report("a", statistic=t), Report("b", statistic=1.0)])
    library = library_of(tmp_path / "book.db")
    viewer = Viewer(library.find(CLINICS), 1)
    pages = [statement(viewer, library, 1, page=page) for page in (1, 2, 3, 99)]
    assert [len(page["lines"]) for page in pages] == [50, 50, 20, 20]
    assert [line["round"] for page in pages[:3] for line in page["lines"]] == list(
        range(120, 0, -1)
    )
    assert pages[3]["page"] == 3
    assert len(series(viewer, 1)["balance"]) == 120


def test_predictions_stand_beside_charges_of_the_same_rounds_of_one_run(tmp_path):
    audit = make_audit()
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "audit.json").write_text(json.dumps(audit))
    (folder / "report.html").write_text("<!DOCTYPE html><title>the report</title>")
    path = fill(tmp_path / "book.db")
    with Book.open(path) as book:
        for t in range(1, 9):
            book.post("clinics", "summer", t, [Report(m, statistic=t) for m in "abc"])
        book.post("clinics", "summer", 9, [Report("a", statistic=5.0), Report("b", statistic=1.0)])
    with served(path, tmp_path / "console", audit=folder) as at:
        token = at.access.create(1)
        rows = at.get(f"/api/v1/federations/{CLINICS}/comparison", token).json()
        table, price = audit["payments"]["schedules"]["profile"], audit["proposed"]["price"]
        assert audit["payments"]["rounds"][1:3] == [6, 11]
        sixth, eleventh = table[1], table[2]
        so_far = [price * (x + (y - x) * 3 / 5) for x, y in zip(sixth, eleventh, strict=True)]
        assert [row["predicted"] for row in rows] == pytest.approx(so_far)
        whole = [price * x for x in table[-1]]
        assert [row["predicted_whole"] for row in rows] == pytest.approx(whole)
        assert {(row["run"], row["round"]) for row in rows} == {("summer", 9)}
        # Equal norms cancel; in round 9 A pays half of 5 − 1. Nothing of the run before counts.
        assert [row["charged"] for row in rows] == [200, -200, 0]
        assert [row["rounds"] for row in rows] == [9, 9, 8]
        page = at.get(f"/f/{CLINICS}/audit", token).text
        assert audit["title"] in page
        assert "Run summer up to round 9" in page
        report = at.get(f"/f/{CLINICS}/audit/report", token)
        assert "the report" in report.text
        assert "sandbox" in report.headers["content-security-policy"]


def test_predictions_are_those_of_the_audited_clients():
    audit = make_audit(2)
    audit["clients"][0]["client"], audit["clients"][1]["client"] = 4, 1
    table, price = audit["payments"]["schedules"]["profile"], audit["proposed"]["price"]
    found = predicted_payments(audit, math.inf)
    assert found == {4: pytest.approx(table[-1][0] * price), 1: pytest.approx(table[-1][1] * price)}
    assert predicted_payments(audit, 0) == {4: 0.0, 1: 0.0}
    assert predicted_payments({}, 3) == {}


def test_a_book_that_was_tampered_with_is_said_to_be(tmp_path):
    path = fill(tmp_path / "book.db")
    with served(path, tmp_path / "console") as at:
        token = at.access.create(1)
        assert at.get("/healthz").json() == {"ok": True}
        with Book.open(path) as book:
            book.post("clinics", "spring", 4, [Report(m, statistic=1.0) for m in "abc"])
        at.console.library.refresh()
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("DELETE FROM record WHERE sequence > 3")
            raw.execute("UPDATE federation SET sequence = 3")
        at.console.library.refresh()
        assert "records were removed" in at.get(f"/f/{CLINICS}/balances", token).text
        refused = at.get(f"/f/{CLINICS}", token)
        assert refused.status_code == 503
        assert "has no record 10" in refused.text
        member = at.access.create(1, federation="clinics", member="a")
        assert "has no record" not in at.get(f"/f/{CLINICS}", member).text
        assert "records were removed" not in at.get(f"/f/{CLINICS}/balances", member).text
        assert at.get("/healthz").status_code == 503


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.replace(b"42.31", b"12.31"), "is not the one that was there"),
        (lambda content: content[:-1], "cannot be used"),
    ],
)
def test_a_record_that_changed_after_it_was_read_is_not_shown(tmp_path, change, words):
    path = fill(tmp_path / "book.db")
    with served(path, tmp_path / "console") as at:
        token = at.access.create(1)
        with closing(sqlite3.connect(path)) as raw, raw:
            for place, content in raw.execute("SELECT rowid, content FROM record").fetchall():
                if b'"statistics":[42.31' in content:
                    raw.execute("UPDATE record SET content = ? WHERE rowid = ?",
                                (change(content), place))  # fmt: skip
        refused = at.get(f"/f/{CLINICS}/members/1", token)
        assert refused.status_code == 503
        assert words in refused.text


def test_witnesses_signatures_are_shown(tmp_path):
    forgeries.open_book(tmp_path / "book.db")
    with served(tmp_path / "book.db", tmp_path / "console") as at:
        token = at.access.create(1)
        found = at.get(f"/api/v1/federations/{CLINICS}/tree", token).json()
    assert found["witnesses"] == [{"record": 17, "size": 16, "signed": ["north", "south"]}]


@pytest.mark.parametrize("who", ["operator", "a"])
def test_a_federation_without_rounds_has_pages(tmp_path, who):
    with Book.create(tmp_path / "book.db") as book:
        book.create_federation("clinics", Terms(Price.constant(1.0)))
        book.join("clinics", "a")
    with served(tmp_path / "book.db", tmp_path / "console") as at:
        member = {"federation": "clinics", "member": "a"} if who == "a" else {}
        token = at.access.create(1, **member)
        base = f"/f/{CLINICS}"
        for path in ("", "/live", "/rounds", "/balances", "/terms", "/book", "/members/1"):
            assert at.get(base + path, token).status_code == 200
        for path in ("/norms", "/alarms", "/rounds", "/members/1/series", "/members/1/receipts"):
            assert at.get(f"/api/v1/federations/{CLINICS}{path}", token).status_code == 200


def test_an_empty_book_says_what_to_do(tmp_path):
    Book.create(tmp_path / "book.db").close()
    with served(tmp_path / "book.db", tmp_path / "console") as at:
        assert "No federation yet" in at.get("/", at.access.create(1)).text
