import pytest
from flwr.serverapp.strategy import FedAvg

from verax.flower import PaidStrategy
from verax.ledger import Book
from verax.ledger.verify import verify

from .grid import Honest, LocalGrid, model, nodes, terms


@pytest.fixture
def book(tmp_path):
    with Book.create(tmp_path / "book.db") as opened:
        yield opened


@pytest.fixture
def run(book, tmp_path):
    """Run a federation in this process and verify its book afterwards."""

    def start(
        client=None,
        *,
        rounds=1,
        strategy=None,
        agreed=None,
        infos=None,
        arrays=None,
        grid=None,
        **kwargs,
    ):
        infos = nodes(3) if infos is None else infos
        client = client or Honest()
        grid = grid or LocalGrid(infos, client)
        inner = strategy or FedAvg()
        paid = PaidStrategy(
            inner,
            terms=agreed or terms(),
            ledger=book,
            patience=kwargs.pop("patience", 0.5),
            **kwargs,
        )
        result = paid.start(grid, arrays or model(), rounds, timeout=1)
        verified = verify(tmp_path / "book.db", federation=paid.federation)
        assert verified.ok, verified.findings
        assert sum(book.balances(paid.federation).values()) == 0
        return Ran(paid, result, client, book)

    return start


class Ran:
    def __init__(self, paid, result, client, book):
        self.paid, self.result, self.client, self.book = paid, result, client, book

    def content(self, round_=1, run=None):
        """A round's record in the book."""
        for record in self.book.records(self.paid.federation):
            found = record.content
            if (
                found["kind"] == "round"
                and found["round"] == round_
                and run in (None, found["run"])
            ):
                return found
        raise LookupError(round_)

    def labels(self):
        return {a.number: a.label for a in self.book.members(self.paid.federation)}

    def column(self, name, round_=1):
        """A column of a round by label: statistics, amounts, payments."""
        found, labels = self.content(round_), self.labels()
        return {labels[n]: v for n, v in zip(found["accounts"], found[name], strict=True)}

    def marked(self, name, round_=1):
        """A sparse column of a round by label: statuses, weights, reasons."""
        labels = self.labels()
        return {labels[int(n)]: v for n, v in self.content(round_)[name].items()}
