"""The layer on PostgreSQL: the same charges as on SQLite, and a restart resumes."""

from flwr.serverapp.strategy import FedAvg

from verax.flower import PaidStrategy
from verax.ledger import Book
from verax.verifier import verify

from .grid import Honest, LocalGrid, model, nodes, terms


def train(ledger, rounds, **kwargs):
    paid = PaidStrategy(FedAvg(), terms=terms(), ledger=ledger, run="spring", **kwargs)
    paid.start(LocalGrid(nodes(3), Honest()), model(), rounds, timeout=1)
    paid.book.close()


def charges(url):
    with Book.open(url, read_only=True) as book:
        found = [r.content for r in book.records("federation") if r.content["kind"] == "round"]
        return [(c["round"], c["accounts"], c["amounts"]) for c in found]


def test_postgresql_holds_what_sqlite_holds(postgres, tmp_path):
    url, kept = postgres(), tmp_path / "kept"
    train(url, 2, checkpoints=kept)
    train(url, 3, checkpoints=kept)  # another server process resumes after round 2
    train(tmp_path / "book.db", 3)
    assert [number for number, _, _ in charges(url)] == [1, 2, 3]
    assert charges(url) == charges(tmp_path / "book.db")
    assert any(amount for _, _, amounts in charges(url) for amount in amounts)
    found = verify(url)
    assert found.ok, found.findings
    assert sum(found.balances.values()) == 0
