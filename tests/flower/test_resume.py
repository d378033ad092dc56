"""Restarts: nothing is lost, nothing is charged twice; a post that fails changes no model."""

import logging

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

from verax.flower import PaidStrategy
from verax.flower.checkpoints import Checkpoints
from verax.ledger import Book, BookUnavailableError
from verax.ledger.round import Models
from verax.mechanism import Terms, Weights

from .grid import Honest, LocalGrid, model, nodes, numpy_of, reply_to, step, terms


def same(a, b):
    return all((numpy_of(a)[k] == numpy_of(b)[k]).all() for k in numpy_of(a))


class Killed(BaseException):
    """As a kill: nobody catches it."""


class DyingBook(Book):
    """A book whose server dies just before or just after it posts a round."""

    when, last = "before", 0

    def post(self, federation, run, round_, *rest):
        if round_ == self.last and self.when == "before":
            raise Killed
        receipt = super().post(federation, run, round_, *rest)
        if round_ == self.last and self.when == "after":
            raise Killed
        return receipt


@pytest.fixture
def dying(book_path):
    def make(when, last):
        opened.when, opened.last = when, last
        return opened

    with DyingBook.open(book_path) as opened:
        yield make


class Fresh(Honest):
    """Clients whose batches do not repeat: every call is another update."""

    calls = 0

    def train(self, i, request):
        Fresh.calls += 1
        before = numpy_of(request.content["arrays"])
        return reply_to(request, step(i, Fresh.calls, before))


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_killed_run_resumes_where_the_book_ends(where, run, book, tmp_path, dying):
    kwargs = {"run": "spring", "checkpoints": tmp_path / "kept"}
    with pytest.raises(Killed):
        run(Fresh(), rounds=5, ledger=dying(where, 3), **kwargs)
    assert len(book.rounds("federation")) == (2 if where == "before" else 3)
    ran = run(Fresh(), rounds=5, **kwargs)
    assert [t for _, t, _, _ in book.rounds("federation")] == [1, 2, 3, 4, 5]
    assert set(ran.result.train_metrics_clientapp) == ({3, 4, 5} if where == "before" else {4, 5})
    again = run(Fresh(), rounds=5, **kwargs)
    assert len(book.rounds("federation")) == 5
    assert same(again.result.arrays, ran.result.arrays)


def test_the_resumed_model_is_the_uninterrupted_one(run, tmp_path, dying):
    whole = run(rounds=4, federation="whole")
    with pytest.raises(Killed):
        run(rounds=4, run="spring", checkpoints=tmp_path / "kept", ledger=dying("after", 2))
    ran = run(rounds=4, run="spring", checkpoints=tmp_path / "kept")
    assert same(ran.result.arrays, whole.result.arrays)
    amounts = [ran.content(t)["amounts"] for t in range(1, 5)]
    assert amounts == [whole.content(t)["amounts"] for t in range(1, 5)]


def test_a_rerun_that_repeats_exactly_is_not_charged_again(run, book, caplog):
    caplog.set_level(logging.INFO, "flwr")
    run(rounds=2, run="spring")
    before = book.balances("federation")
    run(rounds=2, run="spring")
    assert book.balances("federation") == before
    assert "nothing is charged again" in caplog.text
    assert "no checkpoint of round 2" in caplog.text


def test_a_rerun_with_other_updates_is_refused_before_the_model_changes(run, book):
    run(rounds=1, run="spring")
    before = book.balances("federation")
    with pytest.raises(RuntimeError, match=r"round 1 of run 'spring' was not booked.*model stays"):
        run(Honest(size=2e-2), rounds=1, run="spring")
    assert book.balances("federation") == before


def test_another_run_counts_its_rounds_from_one(run, book):
    client = Honest()
    run(client, grid=LocalGrid(nodes(3), client, run_id=1), rounds=2)
    run(client, grid=LocalGrid(nodes(3), client, run_id=2), rounds=2)
    assert [(r, t) for r, t, _, _ in book.rounds("federation")] == [
        ("1", 1), ("1", 2), ("2", 1), ("2", 2),
    ]  # fmt: skip


def test_a_post_that_fails_leaves_the_model(book_path):
    class Full(Book):
        def post(self, *args, **kwargs):
            raise BookUnavailableError("the disk is full")

    paid = PaidStrategy(FedAvg(), terms=terms(), ledger=Full.open(book_path))
    grid = LocalGrid(nodes(3), Honest())
    messages = paid.configure_train(1, model(), ConfigRecord(), grid)
    replies = grid.send_and_receive(messages)
    with pytest.raises(RuntimeError, match="not booked, so its aggregate is not used"):
        paid.aggregate_train(1, replies)
    paid.book.close()


@pytest.mark.parametrize("dies", [False, True])
def test_of_two_servers_with_one_run_the_winner_keeps_its_model(dies, book, dying, tmp_path):
    """Both train round 1; the one that posts second must not overwrite the other's model."""
    kept = tmp_path / "kept"

    def trained(client, ledger):
        paid = PaidStrategy(FedAvg(), terms=terms(), ledger=ledger, run="spring", checkpoints=kept)
        grid = LocalGrid(nodes(3), client)
        messages = paid.configure_train(1, model(), ConfigRecord(), grid)
        return paid, grid.send_and_receive(messages)

    winner, replies = trained(Honest(), dying("after", 1) if dies else book)
    loser, others = trained(Honest(size=3e-2), book)
    if dies:  # after the post, before the model has its name
        with pytest.raises(Killed):
            winner.aggregate_train(1, replies)
    else:
        expected, _ = winner.aggregate_train(1, replies)
    with pytest.raises(RuntimeError, match="was not booked"):
        loser.aggregate_train(1, others)
    expected = FedAvg().start(LocalGrid(nodes(3), Honest()), model(), 1).arrays
    again = PaidStrategy(FedAvg(), ledger=book, run="spring", checkpoints=kept)
    result = again.start(LocalGrid(nodes(3), Honest()), model(), 1)
    for key, array in numpy_of(expected).items():
        np.testing.assert_allclose(numpy_of(result.arrays)[key], array, rtol=1e-6)
    assert [path.name for path in (kept / "spring").iterdir()] == ["round-000000001.npz"]


def test_a_loser_that_was_killed_leaves_a_model_that_nobody_uses(run, book, dying, tmp_path):
    """Its staged model is beside the winner's, whose server died as well."""
    kept = {"run": "spring", "checkpoints": tmp_path / "kept"}
    with pytest.raises(Killed):
        run(Honest(size=3e-2), ledger=dying("before", 1), **kept)
    with pytest.raises(Killed):
        run(Honest(), ledger=dying("after", 1), **kept)
    assert len(list((tmp_path / "kept" / "spring").iterdir())) == 2
    ran = run(Honest(), rounds=2, **kept)
    assert set(ran.result.train_metrics_clientapp) == {2}
    whole = run(Honest(), rounds=2, federation="whole")
    assert same(ran.result.arrays, whole.result.arrays)


def test_the_folder_of_a_model_is_synced(tmp_path, monkeypatch):
    """A name that is only in memory is lost with the power; the calls to the system are seen."""
    import os
    import stat

    synced = []
    real = os.fsync

    def watched(number):
        synced.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        real(number)

    monkeypatch.setattr(os, "fsync", watched)
    kept = Checkpoints(tmp_path, "spring")
    kept.stage(1, model(), [], None, Models())
    assert synced == ["file", "folder", "folder"]  # the model, its folder, and the one above
    kept.promote(1)
    assert synced[3:] == ["folder"]


def test_a_checkpoint_of_another_model_is_refused(run, tmp_path):
    run(rounds=1, run="spring", checkpoints=tmp_path / "kept")
    other = model()
    other["more"] = other.pop("scale")
    with pytest.raises(ValueError, match="another model"):
        run(rounds=2, run="spring", checkpoints=tmp_path / "kept", arrays=other)


def test_checkpoints_keep_order_types_and_bits(tmp_path):
    kept = Checkpoints(tmp_path, "a%2F b ü")
    record = model(np.float16)
    for t in (1, 2, 3):
        kept.stage(t, record, [], None, Models())
        assert kept.load(t) is None
        kept.promote(t)
    assert kept.load(1) is None
    found = kept.load(3)
    assert list(found) == list(record)
    assert same(found, record)
    assert found["scale"].dtype == "float16"


def test_terms_from_a_file_and_from_the_book(tmp_path, book):
    agreed = terms(weights=Weights("equal"))
    (tmp_path / "terms.toml").write_text(agreed.to_toml())
    path = str(tmp_path / "other.db")
    paid = PaidStrategy(FedAvg(), terms=tmp_path / "terms.toml", ledger=path)
    assert paid.terms == agreed
    assert PaidStrategy(FedAvg(), ledger=path).terms == agreed
    assert PaidStrategy(FedAvg(), terms=agreed, ledger=path).terms == agreed
    with pytest.raises(ValueError, match="with other terms"):
        PaidStrategy(FedAvg(), terms=terms(0.7), ledger=path)
    with pytest.raises(ValueError, match="give its `terms`"):
        PaidStrategy(FedAvg(), ledger=book)
    with pytest.raises(ValueError, match="needs recomputed updates"):
        PaidStrategy(FedAvg(), terms=terms(rule="spot-audit"), ledger=book, federation="x")


def test_new_terms_hold_from_their_round_on(run, book):
    old, new = terms(0.5, weights=Weights("equal")), terms(0.25, weights=Weights("equal"))
    book.create_federation("federation", old)
    book.change_terms("federation", Terms.from_toml(new.to_toml()), from_round=2)
    ran = run(agreed=new, rounds=2)
    assert ran.content(1)["price"] == [0.5]
    assert ran.content(2)["price"] == [0.25]


def test_new_terms_that_a_server_cannot_charge_by_are_refused_before_the_round(run, book):
    class Changing(Honest):
        """While the first round is trained, the terms change from the second on."""

        def train(self, i, request):
            if i == 0:
                book.change_terms("federation", terms(rule="spot-audit"), from_round=2)
            return super().train(i, request)

    with pytest.raises(ValueError, match="spot-audit needs recomputed updates"):
        run(Changing(), rounds=2)
    assert [t for _, t, _, _ in book.rounds("federation")] == [1]
