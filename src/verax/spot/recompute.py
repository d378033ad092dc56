"""A member's update, computed again: the app is called in this process with what was kept.

The app gets the request that the member received, the prescribed seed, and an empty state: an app
that keeps something from round to round cannot be recomputed, and the self-test refuses it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from verax.apps.app import FlowerApp
from verax.flower.local import ImmediateGrid
from verax.flower.randomness import SEED_RECORD, is_training, seeded
from verax.flower.replies import SentModel, model_arrays
from verax.flower.unpaid import unpaid
from verax.mechanism import Arrays, squared_norms

#: The relative error of recomputation above which an app counts as random, whatever the terms say.
LARGEST_ERROR = 1e-3

_NODE = 100
#: Settings of this package's mods under which an app leaves no traces and sends its true update.
_HONEST = {
    "record-updates": "",
    "keep-rounds": "",
    "misreport": "",
    "misreport-scale": 1.0,
    "misreport-noise": 0.0,
}


class UnrepeatableError(ValueError):
    """An app whose updates cannot be recomputed."""


def context_of(app: FlowerApp, node_config: Mapping[str, Any]) -> Context:
    """What a member's app is called with, in a state as before its first call."""
    run_config = app.run_config | {k: v for k, v in _HONEST.items() if k in app.run_config}
    return Context(1, _NODE, dict(node_config), RecordDict(), run_config)


def update_of(
    app: FlowerApp, context: Context, request: RecordDict, kind: str, seed: Sequence[int]
) -> ArrayRecord:
    """The model that the app returns to a request.

    Args:
        app: the app.
        context: of the member.
        request: the content of the request.
        kind: the type of the message.
        seed: the prescribed one.
    """
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, _NODE, 1
    content = {name: one for name, one in request.items() if name != SEED_RECORD}
    message = Message(copy.deepcopy(RecordDict(content)), dst_node_id=_NODE, message_type=kind)
    message.metadata.__dict__["_message_id"] = "recomputed"
    with seeded(*seed):
        reply = app.client(message, context)
    if not reply.has_content() or len(reply.content.array_records) != 1:
        raise ValueError("the app did not answer with one array record")
    return next(iter(reply.content.array_records.values()))


def charged_arrays(
    request: RecordDict, model: ArrayRecord, charged: Arrays
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """The arrays that are charged: as they were received, and as they came back."""
    ((name, record),) = request.array_records.items()
    sent = SentModel.of(name, record, charged)
    arrays, _ = model_arrays(RecordDict({name: model}), sent)
    return sent.charged, list(arrays)


def relative_error(
    request: RecordDict, one: ArrayRecord, other: ArrayRecord, charged: Arrays
) -> float:
    """‖g − g'‖ / ‖g‖ of two updates of one model."""
    received, first = charged_arrays(request, one, charged)
    _, second = charged_arrays(request, other, charged)
    distance = float(squared_norms(first, [second])[0])
    norm = float(squared_norms(received, [first])[0])
    return math.sqrt(distance / norm) if norm else math.inf if distance else 0.0


def self_test(
    app: FlowerApp,
    node_config: Mapping[str, Any],
    charged: Arrays | None = None,
    limit: float = LARGEST_ERROR,
) -> float:
    """How well an app's first update can be recomputed here: its relative error, 0 if exactly.

    Raises UnrepeatableError where it cannot: the app draws from a generator that nobody seeds,
    keeps something from call to call, or is less exact than `limit`.
    """
    arrays = charged or Arrays()
    request = first_request(app, int(node_config.get("num-partitions", 2)))
    content, kind = request.content, request.metadata.message_type
    seed, other = (1, 2, 3, 4, 5, 6, 7, 8), (8, 7, 6, 5, 4, 3, 2, 1)
    used = context_of(app, node_config)
    first = update_of(app, used, content, kind, seed)
    update_of(app, used, content, kind, other)
    again = update_of(app, context_of(app, node_config), content, kind, seed)
    error = relative_error(content, first, again, arrays)
    if error > limit:
        raise UnrepeatableError(
            f"two updates from the same model, data and seed differ by {error:.2g} of their norm, "
            f"more than {limit:g}: the app draws from a generator that nobody seeds, or computes "
            "in an order that changes; seed its own generators from the global ones, and use "
            "deterministic algorithms, or agree on a larger spot.tolerance"
        )
    late = update_of(app, used, content, kind, seed)
    if relative_error(content, first, late, arrays) > limit:
        raise UnrepeatableError(
            "the update depends on earlier calls: the app keeps a state from round to round, and a "
            "single round cannot be recomputed; begin each round from the model that is received"
        )
    return max(error, relative_error(content, first, late, arrays))


class _EnoughError(Exception):
    """The first request is known."""


class _FirstRequest(ImmediateGrid):
    """A grid that keeps the first request for training, and ends the run."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = range(_NODE, _NODE + nodes)
        self.request: Message | None = None

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, name=f"client-{node - _NODE}") for node in self._nodes]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        for message in messages:
            if is_training(message):
                self.request = message
                raise _EnoughError
        return []


def first_request(app: FlowerApp, nodes: int) -> Message:
    """What the app's ServerApp sends to a member first; nobody is charged."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    grid = _FirstRequest(nodes)
    context = Context(1, 1, {}, RecordDict(), dict(app.run_config))
    with unpaid(), seeded(0), suppress(_EnoughError):
        app.server(grid, context)
    if grid.request is None:
        raise ValueError(f"the ServerApp of {app.folder} asked nobody to train")
    return grid.request
