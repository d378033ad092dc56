"""A federation in one process with spot checks: keys, commitments, a run, and its checks."""

import copy
import functools
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from verax.apps.app import FlowerApp, load_app
from verax.flower import PaidStrategy, misreport, prescribed, signed
from verax.flower.local import LocalGrid
from verax.flower.randomness import is_training, seeded
from verax.game import Policy, Scale
from verax.ledger import Book
from verax.ledger.evidence import evidence_key
from verax.ledger.notes import OPERATOR, new_key, public_key
from verax.mechanism import EvidenceTerms, Price, SpotChecks, Terms
from verax.spot.check import MemberFiles, check_member
from verax.spot.commitment import commit
from verax.spot.recompute import first_request

AUDITOR = Ed25519PrivateKey.from_private_bytes(b"u" * 32)
AUDITOR_TEXT = str(public_key(AUDITOR, "auditor", OPERATOR))
ROUNDS = 4
APPS = Path(__file__).parents[1] / "apps"


def terms_of(fine=10.0, draws=200, tolerance=0.0, **settings):
    """Prices that double toward the end; so many draws that all four rounds are among them."""
    price = Price(values=((1.0,), (2.0,), (4.0,)), starts=(1, 3, 4), rounds=ROUNDS)
    fees = {"refused": 50.0, "mismatch": 60.0, "missing": 70.0}
    spot = SpotChecks(AUDITOR_TEXT, fine, draws, tolerance, **fees)
    return Terms(price, evidence=EvidenceTerms("required"), spot=spot, **settings)


@dataclass(frozen=True)
class Example:
    """An app, and what its members lie with: the module whose function reads their data."""

    app: FlowerApp
    data: str
    reader: str
    node: dict[str, Any]

    def files(self, member, folder):
        node = self.node | {"partition-id": member}
        return MemberFiles(self.app, self.data, folder / "kept", node)


def numpy_example(folder=APPS / "clinics"):
    app = load_app(folder)
    return Example(app, "clinics.client_app:samples", "clinics.client_app", {"num-partitions": 3})


def torch_example():
    app = load_app(APPS / "torch_clinics", "batch=20")
    node = {"num-partitions": 3}
    return Example(app, "torch_clinics.client_app:samples", "torch_clinics.client_app", node)


def with_mods(app, mods):
    """The app's training behind mods, as `ClientApp(mods=…)` would have it."""
    client = ClientApp(mods=mods)

    @client.train()
    def train(message, context):
        return app.client(message, context)

    return client


def only(member, lie):
    """A mod that acts for one member."""

    def mod(request, context, call_next):
        if context.node_config["partition-id"] == member and is_training(request):
            return lie(request, context, call_next)
        return call_next(request, context)

    return mod


@contextmanager
def replaced(module, change):
    """The app's data as another function returns them."""
    original = sys.modules[module].patients
    sys.modules[module].patients = lambda *args: change(original, *args)
    try:
        yield
    finally:
        sys.modules[module].patients = original


def other_patients(change):
    """A lie about the data: training uses others than the member shows to the auditor."""

    def lie(example, request, context, call_next):
        with replaced(example.reader, change):
            return call_next(request, context)

    return lie


def _columns(data):
    """Inputs and labels, of arrays or of a data set of PyTorch; copies."""
    columns = getattr(data, "tensors", data)
    return [copy.deepcopy(column) for column in columns]


def _like(data, columns):
    return type(data)(*columns) if hasattr(data, "tensors") else tuple(columns)


def _flipped(original, *args):
    data = original(*args)
    x, y = _columns(data)
    return _like(data, (x, 1 - y))


def _altered(original, *args):
    data = original(*args)
    x, y = _columns(data)
    x[7, 2] += 1.0
    return _like(data, (x, y))


def _fewer(original, *args):
    data = original(*args)
    x, y = _columns(data)
    return _like(data, (x[:-5], y[:-5]))


def full_batch(example, request, context, call_next):
    other = copy.deepcopy(context)
    other.run_config["batch"] = 10**6
    return call_next(request, other)


def another_seed(example, request, context, call_next):
    with seeded(1, 2, 3):
        return call_next(request, context)


def replayed(example, request, context, call_next):
    """The update of the first round again and again."""
    received = request.content["arrays"].to_numpy_ndarrays()
    names = list(request.content["arrays"])
    reply = call_next(request, context)
    if "first" not in context.state:
        after = reply.content["arrays"].to_numpy_ndarrays()
        moves = [np.asarray(a - b) for a, b in zip(after, received, strict=True)]
        context.state["first"] = ArrayRecord(moves)
    moves = context.state["first"].to_numpy_ndarrays()
    arrays = [np.asarray(b + m, dtype=b.dtype) for b, m in zip(received, moves, strict=True)]
    reply.content["arrays"] = ArrayRecord(
        {name: Array(array) for name, array in zip(names, arrays, strict=True)}
    )
    return reply


def reporting(which):
    return lambda example, request, context, call_next: misreport(which)(
        request, context, call_next
    )


LIES = {
    "scale 1.05": reporting(Scale(1.05)),
    "own momentum": reporting(Policy(memory=0.8, own=(1.0,))),
    "full batch": full_batch,
    "label flips": other_patients(_flipped),
    "another seed": another_seed,
    "fewer samples": other_patients(_fewer),
    "one altered sample": other_patients(_altered),
    "a replayed update": replayed,
}
#: The first update of these is honest: there is nothing yet to average or to replay.
FIRST_IS_HONEST = ("own momentum", "a replayed update")


class Federation:
    """A run of three members, of whom the first may lie, in a folder.

    `run_config` is what the run is started with, where that is not what members committed to.
    """

    def __init__(self, example, folder, terms=None, lie=None, rounds=ROUNDS, run_config=None):
        self.example, self.folder, self.rounds = example, folder, rounds
        self.terms = terms or terms_of()
        self.book = Book.create(folder / "book.db", clock=lambda: datetime(2026, 5, 4, tzinfo=UTC))
        self.book.create_federation("federation", self.terms)
        for i in range(3):
            self._join(i)
        lies = [] if lie is None else [only(0, functools.partial(lie, example))]
        mods = [signed(), prescribed(str(folder / "kept")), *lies]
        run_config = example.app.run_config | (run_config or {})
        grid = LocalGrid(with_mods(example.app, mods), 3, run_config)
        for i, context in enumerate(grid.contexts.values()):
            context.node_config["verax-key"] = str(folder / f"{i}.pem")
            context.node_config["commitment"] = str(folder / f"{i}.json")
        start = first_request(example.app, 3).content["arrays"]
        paid = PaidStrategy(FedAvg(fraction_evaluate=0.0), ledger=self.book, run="spring")
        self.result = paid.start(grid, start, rounds)

    def _join(self, i):
        files = self.example.files(i, self.folder)
        made = commit(files.app, files.data, files.node_config)
        (self.folder / f"{i}.json").write_text(made.to_json())
        key = new_key(self.folder / f"{i}.pem")
        own = {"data": made.data, "app": made.app, "key": evidence_key(key)}
        # Nodes of a LocalGrid have names and no keys: their ids in the book are their numbers.
        self.book.join("federation", f"node {100 + i}", f"client-{i}", **own)

    def draw(self, value="7" * 64):
        self.book.close_run("federation", "spring", "a die")
        self.book.draw("federation", "spring", value)
        return self

    @property
    def checked(self):
        return self.book.state("federation").checked["spring"]

    def check(self, member=0, **changes):
        """The signed report on a member."""
        files = MemberFiles(**(vars(self.example.files(member, self.folder)) | changes))
        book, name = self.book, f"client-{member}"
        return check_member(book, "federation", "spring", name, files, AUDITOR)
