"""Replies and arrays made at random: none ends the run, or costs others their update or money.

In every round of one long run a member sends something else: arrays with changed bytes, types and
shapes, metrics of any kind, other records, errors, several replies, replies of an earlier round,
or replies in another's name.
"""

import copy
from collections import Counter

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord

from tests.mutation import SECONDS, case, change_field, fuzz_seed, mutated, until
from verax.mechanism import Weights

from .grid import Honest, model, numpy_of, terms
from .hostile import MALFORMED, PIECES, array_of, good_bytes, npy
from .test_decoding import GOOD, decoded_or_refused

NAMES = ["", "arrays", "metrics", "config", "num-examples", "train_loss", "verax.counted",
         "layer.bias", "scale", "\x1b[2J", "\u202eabc", "ＡＢ", "a\0b", "x" * 3000,
         "verax.partition", "verax"]  # fmt: skip
NUMBERS = [0, -1, 1, 20, 2**63, 10**400, -0.0, 5e-324, 1e-9, 0.5, 1e308, np.inf, -np.inf, np.nan]
DTYPES = ["float32", "float64", "float16", ">f4", "int64", "uint8", "bool", "complex64", "<U3",
          "<M8[s]", "longdouble"]  # fmt: skip


class Fuzzer(Honest):
    """Honest members, but the second sends anything; equal weights keep the others' bills apart."""

    def __init__(self, rng):
        super().__init__(size=1e-3)
        self.rng = rng
        self.earlier = None

    def one_of(self, values):
        return values[int(self.rng.integers(len(values)))]

    def __call__(self, i, request):
        honest = super().__call__(i, request)
        if i != 1:
            return honest
        replies = [self.fuzzed(request, honest) for _ in range(self.one_of([0, 1, 1, 1, 1, 1, 2]))]
        replies += self.one_of([[], [], [honest]])
        if self.earlier is not None and self.one_of([True, False, False]):
            replies.append(self.earlier)
        self.earlier = honest
        self.rng.shuffle(replies)
        return replies

    def fuzzed(self, request, honest):
        """A reply with a few changes, or another one altogether."""
        if self.one_of([True] + 19 * [False]):
            return Message(
                Error(int(self.rng.integers(0, 999)), self.one_of(NAMES)), reply_to=request
            )
        content = copy.deepcopy(honest.content)
        for _ in range(self.one_of([1, 1, 2, 3])):
            change = self.one_of([self.array, self.array, self.metric, self.metric, self.record])
            change(content)
        reply = Message(content, reply_to=request)
        if self.one_of([True] + 19 * [False]):
            reply.metadata.__dict__["_src_node_id"] = self.one_of([0, 1, 11, 13, 99])
        return reply

    def array(self, content):
        records = list(content.array_records.values())
        record = self.one_of(records) if records else ArrayRecord()
        name = self.one_of([*record, *NAMES]) or "scale"
        old = numpy_of(model(size=200)).get(name, np.zeros(3, np.float32))
        kind = self.one_of(["bytes", "type", "shape", "value", "claim", "remove", "malformed"])
        if kind == "remove":
            record.pop(name, None)
        elif kind == "malformed":
            record[name] = Array(
                "float32", (37,), "numpy.ndarray", self.one_of([*MALFORMED.values()])
            )
        elif kind == "bytes":
            data = mutated(good_bytes(old), self.rng, PIECES)
            record[name] = Array(str(old.dtype), old.shape, "numpy.ndarray", data)
        elif kind == "claim":
            shape = self.one_of([(), (-1,), (10**12,), (1,) * 70, old.shape[::-1]])
            dtype, how = self.one_of([*DTYPES, *NAMES]), self.one_of(["numpy.ndarray", *NAMES])
            record[name] = Array(dtype, shape, how, good_bytes(old))
        else:
            dtype = self.one_of(DTYPES) if kind == "type" else old.dtype
            with np.errstate(all="ignore"):
                new = np.full_like(old, self.one_of(NUMBERS[6:])) if kind == "value" else old
                new = new[None] if kind == "shape" else new
                record[name] = Array(new.astype(dtype))

    def metric(self, content):
        records = list(content.metric_records.values())
        record = self.one_of(records) if records else MetricRecord()
        name = self.one_of([*record, *NAMES])
        if self.one_of([True, False, False, False]):
            record.pop(name, None)
            return
        number = self.one_of(NUMBERS)
        record[name] = self.one_of([number, number, [], [number], [number] * 1000])

    def record(self, content):
        name = self.one_of([*content, *NAMES])
        kinds = [None, ArrayRecord(), MetricRecord(), ConfigRecord({"a": b"\xff" * 9, "b": "\x1b"})]
        record = self.one_of([*kinds, *content.values()])
        if record is None:
            content.pop(name, None)
        else:
            content[name] = record


def fuzz(run, rounds, rng, name="run"):
    """Statuses of the fuzzed member, counted; the other members are ok in every round."""
    agreed = terms(weights=Weights("equal"))
    ran = run(Fuzzer(rng), rounds=rounds, arrays=model(size=200), agreed=agreed, run=name)
    statuses = {"ok": 0, "rejected": 0, "missing": 0, "error": 0}
    names = ran.labels()
    for content in (r.content for r in ran.book.records("federation")):
        if content["kind"] == "round" and content["run"] == name:
            marked = {names[int(n)]: status for n, status in content["statuses"].items()}
            assert set(marked) <= {"client-1"}, content
            statuses[marked.get("client-1", "ok")] += 1
    assert sum(statuses.values()) == rounds
    assert all(np.isfinite(array).all() for array in numpy_of(ran.result.arrays).values())
    return statuses


def test_three_hundred_replies_made_at_random(run):
    assert min(fuzz(run, 300, np.random.default_rng(0)).values()) > 0


@pytest.mark.slow
def test_replies_made_at_random_for_three_and_a_half_minutes(run, capsys):
    seed, total = fuzz_seed(capsys), Counter()
    for k in until(0.35 * SECONDS):
        with case(seed, k) as rng:
            total.update(fuzz(run, 200, rng, f"run {k}"))
    with capsys.disabled():
        print(f"\n[replies made at random: {dict(total)}]", end="")


@pytest.mark.slow
def test_arrays_made_at_random_for_a_minute(capsys):
    """Changed bytes, and headers that are well-formed but say something else than the bytes."""
    seed, read = fuzz_seed(capsys), Counter()
    for k in until(0.1 * SECONDS):
        with case(seed, k) as rng:
            if k % 2:
                data = mutated(GOOD[k % len(GOOD)], rng, PIECES)
            else:
                header = {"descr": "<f4", "fortran_order": False, "shape": [37]}
                change_field(header, rng)
                shape = tuple(header["shape"]) if isinstance(header.get("shape"), list) else 7
                text = (
                    repr(header | {"shape": shape}).encode("latin-1", "replace").decode("latin-1")
                )
                data = npy(text + "\n", bytes(37 * 4), int(rng.integers(1, 4)))
            read[decoded_or_refused(array_of(data)) is not None] += 1
    with capsys.disabled():
        print(f"\n[arrays read or not: {dict(read)}]", end="")
    assert min(read.values()) > 0
