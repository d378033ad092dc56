"""Checks of members in federations of one process: who pays what, and what is found."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from verax.flower.prescribing import _check_committed, kept_file, read_kept
from verax.spot.recompute import charged_arrays
from verax.verifier import verify

from . import by_hand
from .federation import (
    FIRST_IS_HONEST,
    LIES,
    ROUNDS,
    Federation,
    numpy_example,
    replaced,
    terms_of,
    torch_example,
)


@pytest.fixture(scope="module")
def example():
    return numpy_example()


@pytest.fixture(scope="module")
def honest(example, tmp_path_factory):
    return Federation(example, tmp_path_factory.mktemp("honest")).draw()


def distances_by_hand(federation, member=0):
    files = federation.example.files(member, federation.folder)
    return by_hand.distances(federation.book, files, f"node {100 + member}", federation.rounds)


def test_honest_members_pay_nothing_and_the_book_verifies(honest):
    for member in range(3):
        report = honest.check(member)
        assert report.outcome == "checked"
        assert {float(distance) for _, distance, _ in report.found} == {0.0}
        assert set(honest.book.add_report(report).amounts.values()) == {0}
    assert verify(honest.folder / "book.db").ok


@pytest.mark.parametrize("lie", LIES)
def test_every_lie_is_found_when_its_round_is_drawn_with_the_predicted_fine(example, lie, tmp_path):
    federation = Federation(example, tmp_path, lie=LIES[lie]).draw()
    report = federation.check()
    assert report.outcome == "checked"
    assert [t for t, _, _ in report.found] == list(range(1, ROUNDS + 1))
    found = {t: float(distance) for t, distance, _ in report.found}
    plain = distances_by_hand(federation)
    for t, distance in found.items():
        assert distance == pytest.approx(plain[t][0], rel=1e-6)
        assert (distance > 1e-12) == (t > 1 or lie not in FIRST_IS_HONEST)
    receipt = federation.book.add_report(report)
    fine = by_hand.fine(federation.book, plain, 1)
    assert receipt.amounts["node 100"] == pytest.approx(1e6 * fine, abs=1)
    assert sum(receipt.amounts.values()) == 0
    assert verify(tmp_path / "book.db").ok
    for other in (1, 2):
        assert set(federation.book.add_report(federation.check(other)).amounts.values()) == {0}


def test_the_fine_of_a_scale_is_the_one_that_an_audit_predicts(example, tmp_path):
    """An audit takes ‖m − g‖² to be (a − 1)² ‖g‖²."""
    federation = Federation(example, tmp_path, lie=LIES["scale 1.05"]).draw()
    for _, distance, norm in federation.check().found:
        assert float(distance) == pytest.approx(0.05**2 * float(norm), rel=1e-4)


def test_a_lie_within_the_tolerance_of_the_terms_costs_nothing(example, tmp_path):
    terms = terms_of(tolerance=0.06)
    federation = Federation(example, tmp_path, terms, LIES["scale 1.05"]).draw()
    report = federation.check()
    assert min(float(distance) for _, distance, _ in report.found) > 0
    assert federation.book.add_report(report).amounts["node 100"] == 0


def test_a_round_is_drawn_with_its_share_of_the_price(honest):
    """4,000 values of the beacon, by a chi-squared test that fails by chance once in 10,000."""
    checked = honest.checked
    checked.terms = replace(checked.terms, rounds=1)
    drawn = [checked.expected_draw(f"value {i}")[1][0] for i in range(4_000)]
    counts = np.bincount(drawn, minlength=ROUNDS + 1)[1:]
    assert chisquare(counts, 4_000 * np.array([1, 1, 2, 4]) / 8).pvalue > 1e-4


def test_data_that_are_not_the_committed_ones_are_a_mismatch(honest, example):
    def other(original, context, part):
        x, y = original(context, part)
        x = x.copy()
        x[0, 0] += 1e-9
        return x, y

    with replaced(example.reader, other):
        report = honest.check(1)
    assert (report.outcome, report.found) == ("mismatch", ())
    assert "data are not those" in report.reason


def test_another_app_is_a_mismatch(honest, example):
    slower = replace(example.app, run_config=example.app.run_config | {"lr": 0.1})
    report = honest.check(1, app=slower)
    assert report.outcome == "mismatch"
    assert "its app or its configuration" in report.reason


@pytest.mark.parametrize("part", ["nothing", "another round", "an explanation", "broken"])
def test_what_was_not_kept_as_it_was_signed_is_missing(honest, tmp_path, part):
    """Also a message that the member replaces afterwards by the honest one."""
    folder = tmp_path / "kept"
    shutil.copytree(honest.folder / "kept", folder)
    path = kept_file(folder, "node 100", "spring", 2)
    if part == "nothing":
        path.unlink()
    elif part == "another round":
        path.write_bytes(kept_file(folder, "node 100", "spring", 3).read_bytes())
    elif part == "broken":
        path.write_bytes(path.read_bytes()[:100])
    else:
        data = path.read_bytes()
        assert data.count(b"server-round") == 1
        path.write_bytes(data.replace(b"server-round", b"server-ROUND"))
    report = honest.check(0, kept=folder)
    assert report.outcome == "missing"
    assert "round 2" in report.reason


def test_a_member_that_committed_to_nothing_is_missing_and_pays_its_fee(example, tmp_path):
    class Uncommitted(Federation):
        def _join(self, i):
            if i:
                super()._join(i)
            else:
                from verax.ledger.evidence import evidence_key
                from verax.ledger.notes import new_key

                key = evidence_key(new_key(self.folder / "0.pem"))
                self.book.join("federation", "node 100", "client-0", key=key)
                config = {"run_config": self.example.app.run_config}
                (self.folder / "0.json").write_text(json.dumps(config))

    federation = Uncommitted(example, tmp_path).draw()
    report = federation.check()
    assert report.outcome == "missing"
    receipt = federation.book.add_report(report)
    assert receipt.amounts == {
        "node 100": 70_000_000,
        "node 101": -35_000_000,
        "node 102": -35_000_000,
    }


def test_a_run_with_another_configuration_than_the_committed_one_is_refused_by_members(
    example, tmp_path
):
    """Otherwise honest members would be fined for a setting that the operator changed."""
    with pytest.raises(ValueError, match=r"lr is 1.0, committed to 0.5"):
        Federation(example, tmp_path, rounds=1, run_config={"lr": 1.0})
    assert not list(tmp_path.glob("kept/**/*.kept"))


def test_a_node_without_its_members_commitment_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match="put the file of `verax commit --out`"):
        _check_committed("", {})
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ValueError, match="is no commitment"):
        _check_committed(str(tmp_path / "x.json"), {})


def test_a_configuration_with_more_or_fewer_settings_is_another_one(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"run_config": {"lr": 1.0, "nesterov": True}}))
    _check_committed(str(path), {"nesterov": True, "lr": 1.0})
    for other in ({"lr": 1.0}, {"lr": 1, "nesterov": True}, {"lr": 1.0, "nesterov": True, "k": 2}):
        with pytest.raises(ValueError, match="another configuration than this member"):
            _check_committed(str(path), other)


def test_a_request_with_another_seed_or_configuration_is_refused_by_the_member(honest):
    from flwr.app import Context, Message, MessageType, RecordDict

    from verax.flower import prescribed
    from verax.flower.randomness import SEED_RECORD

    path = kept_file(honest.folder / "kept", "node 100", "spring", 1)
    calls = []

    def train(request, context):
        calls.append(request)
        return Message(RecordDict(), reply_to=request)

    def ask(change):
        content, _, _ = read_kept(path)
        change(content)
        request = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
        request.metadata.__dict__["_message_id"] = "1"
        config = honest.example.app.run_config
        own = prescribed(commitment=str(honest.folder / "0.json"))
        own(request, Context(1, 1, {}, RecordDict(), config), train)

    ask(lambda content: None)
    assert len(calls) == 1
    changes = [
        lambda content: content[SEED_RECORD].update(seed=[1] * 8),
        lambda content: content[SEED_RECORD].update(member="node 101"),
        lambda content: content["config"].update(lr=5.0),
    ]
    for change in changes:
        with pytest.raises(ValueError, match="another seed or configuration"):
            ask(change)
    assert len(calls) == 1


def test_a_pytorch_app_is_checked_like_any_other(tmp_path):
    """BatchNorm, momentum and a shuffling DataLoader; the counters of BatchNorm cost nothing."""
    pytest.importorskip("torch")
    example = torch_example()
    for lie in (None, "another seed"):
        folder = tmp_path / str(lie)
        folder.mkdir()
        federation = Federation(
            example, folder, terms_of(tolerance=1e-5), lie and LIES[lie], rounds=2
        ).draw()
        report = federation.check()
        distances = [float(distance) for _, distance, _ in report.found]
        plain = distances_by_hand(federation)
        assert distances == pytest.approx([plain[t][0] for t, _, _ in report.found], rel=1e-5)
        fine = federation.book.add_report(report).amounts["node 100"]
        assert (fine > 0) == (lie is not None), (lie, distances)
        assert fine == pytest.approx(1e6 * by_hand.fine(federation.book, plain, 1), abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_every_lie_of_a_pytorch_app_is_found(tmp_path, lie):
    pytest.importorskip("torch")
    federation = Federation(torch_example(), tmp_path, terms_of(tolerance=1e-5), LIES[lie]).draw()
    plain = distances_by_hand(federation)
    fine = federation.book.add_report(federation.check()).amounts["node 100"]
    assert fine > 0
    # PyTorch computes in float32: a squared distance repeats to about five digits.
    assert fine == pytest.approx(1e6 * by_hand.fine(federation.book, plain, 1), rel=1e-4, abs=1)
    for other in (1, 2):
        assert set(federation.book.add_report(federation.check(other)).amounts.values()) == {0}


def test_charged_arrays_leave_out_what_is_not_charged():
    from flwr.app import ArrayRecord, RecordDict

    from verax.mechanism import Arrays

    record = ArrayRecord({"w": array(1.0), "num_batches_tracked": array(3.0)})
    model = ArrayRecord({"w": array(2.0), "num_batches_tracked": array(9.0)})
    received, after = charged_arrays(
        RecordDict({"arrays": record}), model, Arrays(("*num_batches_tracked",))
    )
    assert [a.tolist() for a in (*received, *after)] == [[1.0], [2.0]]


def array(value):
    from flwr.app import Array

    return Array(np.array([value]))
