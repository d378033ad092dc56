"""What the payment layer costs: 10 clients × 10 M float32 parameters.

All times are from the same run, the best of several. The layer's time is that of a round's calls
minus the time of the wrapped strategy in the same calls. The table shows

- the norms beside one pass of `np.subtract` and a dot product over the same arrays;
- everything that the layer adds to a round (checking, measuring, weighing, posting) as a share of
  the round: FedAvg's own aggregation plus decoding the replies from the bytes of the network
  (protobuf and Flower's objects). Reading every reply once is a lower limit of what any measurement
  costs.

    python benchmarks/flower_layer.py
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from page import table

from verax.flower import PaidStrategy
from verax.mechanism import Price, Terms, squared_norms

CLIENTS = 10
SHAPES = [(1000, 4000), (1000, 4000), (500, 3999), (500,)]  # ten million


def fastest(*calls: Callable[[], Any], repeats: int = 5) -> list[float]:
    best = [float("inf")] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


def subtract_and_dot(sent: list[Any], replies: list[list[Any]]) -> list[float]:
    result: list[float] = []
    for reply in replies:
        total = 0.0
        for before, after in zip(sent, reply, strict=True):
            difference = np.subtract(after, before).reshape(-1)
            total += float(np.dot(difference, difference))
        result.append(total)
    return result


class Timed(FedAvg):
    """FedAvg that measures the time of its own part of a round."""

    seconds = 0.0

    def configure_train(self, *given: Any) -> Any:
        begin = time.perf_counter()
        messages = list(super().configure_train(*given))
        self.seconds = time.perf_counter() - begin
        return messages

    def aggregate_train(self, *given: Any) -> Any:
        begin = time.perf_counter()
        aggregate = super().aggregate_train(*given)
        self.seconds = time.perf_counter() - begin
        return aggregate


class Grid:
    """The part of a grid that a strategy's two calls use."""

    run = SimpleNamespace(run_id=1)

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=2 + i, name="", public_key=b"") for i in range(CLIENTS)]

    def get_node_ids(self) -> list[int]:
        return [2 + i for i in range(CLIENTS)]


def wire(message: Message) -> tuple[str, dict[str, bytes]]:
    """A reply in the form in which the SuperLink returns it: objects by their ids."""
    with no_object_id_recompute():
        objects = get_all_nested_objects(message)
        return message.object_id, {
            key: PullObjectResponse(object_content=each.deflate()).SerializeToString()
            for key, each in objects.items()
        }


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    sent = [rng.standard_normal(shape, dtype=np.float32) for shape in SHAPES]
    replies = [
        [a + np.float32(1e-3) * rng.standard_normal(a.shape, dtype=np.float32) for a in sent]
        for _ in range(CLIENTS)
    ]
    read, plain, ours = fastest(
        lambda: [np.add.reduce(array, axis=None) for reply in replies for array in reply],
        lambda: subtract_and_dot(sent, replies),
        lambda: squared_norms(sent, replies),
    )
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    arrays = ArrayRecord({f"a{i}": Array(a) for i, a in enumerate(sent)})
    records = [ArrayRecord({f"a{i}": Array(a) for i, a in enumerate(reply)}) for reply in replies]
    book = Path(tempfile.mkdtemp()) / "book.db"
    fedavg: Any = Timed()
    paid: Any = PaidStrategy(fedavg, terms=Terms(Price.constant(1e-3)), ledger=book, run="bench")
    times: dict[str, list[float]] = {"decode": [], "aggregate": [], "layer": []}
    for t in range(1, 8):
        begin = time.perf_counter()
        requests = list(paid.configure_train(t, arrays, ConfigRecord(), Grid()))
        before = time.perf_counter() - begin - fedavg.seconds
        answers: list[Message] = []
        for i, request in enumerate(requests):
            request.metadata.__dict__["_message_id"] = f"{t} {i}"
            content = RecordDict(
                {"arrays": records[i], "metrics": MetricRecord({"num-examples": 10})}
            )
            answers.append(Message(content, reply_to=request))
        if t <= 2:
            times["decode"].append(sum(map(decoding, answers)))
        begin = time.perf_counter()
        aggregate = paid.aggregate_train(t, answers)
        after = time.perf_counter() - begin - fedavg.seconds
        del aggregate  # freeing FedAvg's arrays is not the layer's work
        times["aggregate"].append(fedavg.seconds)
        times["layer"].append(before + after)
    best = {name: min(values) for name, values in times.items()}
    whole = best["aggregate"] + best["decode"]
    rows = [
        ("reading the replies once (`np.add.reduce`)", read),
        ("`np.subtract` and `np.dot`", plain),
        (f"norms in float64: {ours / plain:.2f} of that", ours),
        ("FedAvg's aggregation", best["aggregate"]),
        ("decoding the replies", best["decode"]),
        ("**the whole layer**", best["layer"]),
    ]
    print(
        table(
            ["10 clients × 10 M float32", "ms", "of aggregating and decoding"],
            [[what, f"{1000 * s:.0f}", f"{s / whole:.1%}"] for what, s in rows],
        )
    )


def decoding(answer: Message) -> float:
    """Seconds to decode Flower's objects from the bytes of the network."""
    name, contents = wire(answer)
    begin = time.perf_counter()
    pulled = {
        key: PullObjectResponse.FromString(each).object_content for key, each in contents.items()
    }
    inflate_object_from_contents(name, pulled)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
