import gc
import shutil

import pytest
from flwr.serverapp.strategy import FedAvg

from verax.flower import PaidStrategy
from verax.ledger import Book
from verax.mechanism import Weights
from verax.verifier import verify

from .grid import But, Honest, LocalGrid, model, nodes, numpy_of, reply_to, terms


@pytest.fixture(scope="module", autouse=True)
def nothing_old_to_collect():
    """Flower collects garbage for every reply: what is there already is left out of that."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def empty_book(tmp_path_factory):
    """An empty book, to be copied: creating one takes a quarter of a second."""
    path = tmp_path_factory.mktemp("empty") / "book.db"
    Book.create(path).close()
    return path


@pytest.fixture
def book_path(empty_book, tmp_path):
    return shutil.copy(empty_book, tmp_path / "book.db")


@pytest.fixture
def book(book_path):
    with Book.open(book_path) as opened:
        yield opened


@pytest.fixture
def run(book, book_path):
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
        settings = {"ledger": book, "patience": 0.5} | kwargs
        paid = PaidStrategy(inner, terms=agreed or terms(), **settings)
        result = paid.start(grid, arrays or model(), rounds, timeout=1)
        verified = verify(book_path, federation=paid.federation)
        assert verified.ok, verified.findings
        assert sum(book.balances(paid.federation).values()) == 0
        return Ran(paid, result, client, book)

    return start


def jumping(request, after):
    """Honest for seven rounds, then four times the update."""
    before = numpy_of(request.content["arrays"])
    factor = 4 if request.content["config"]["server-round"] > 7 else 1
    return reply_to(request, {k: before[k] + factor * (after[k] - before[k]) for k in before})


@pytest.fixture(scope="session")
def jumping_run(empty_book, tmp_path_factory):
    """Nine rounds, in the last two of which client 1 sends four times its update; and the book."""
    path = shutil.copy(empty_book, tmp_path_factory.mktemp("jumping") / "book.db")
    agreed = terms(weights=Weights("equal"), currency="EUR")
    client = But(1, jumping, examples=(10, 10, 10))
    with Book.open(path) as opened:
        paid = PaidStrategy(FedAvg(), terms=agreed, ledger=opened, run="spring")
        result = paid.start(LocalGrid(nodes(3), client), model(), 9, timeout=1)
        yield Ran(paid, result, client, opened), path


class Ran:
    def __init__(self, paid, result, client, book):
        self.paid, self.result, self.client, self.book = paid, result, client, book

    def content(self, round_=1, run=None):
        """A round's record in the book."""
        for record in self.book.records(self.paid.federation):
            content = record.content
            if (
                content["kind"] == "round"
                and content["round"] == round_
                and run in (None, content["run"])
            ):
                return content
        raise LookupError(round_)

    def labels(self):
        return {a.number: a.label for a in self.book.members(self.paid.federation)}

    def column(self, name, round_=1):
        """A column of a round by label: statistics, amounts, payments."""
        content, labels = self.content(round_), self.labels()
        return {labels[n]: v for n, v in zip(content["accounts"], content[name], strict=True)}

    def marked(self, name, round_=1):
        """A sparse column of a round by label: statuses, weights, reasons."""
        labels = self.labels()
        return {labels[int(n)]: v for n, v in self.content(round_)[name].items()}
