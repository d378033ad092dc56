"""A federation in one process, without Ray and servers, for experiments and tests.

Requests and replies are copied, as a network would do; clients are called one after the other in
the order of their partitions. It is not meant for measuring speed.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from verax.flower.randomness import is_training, message_seed, seeded

_FIRST = 100  # the first node id; 1 is the SuperLink


class ImmediateGrid(Grid):
    """A grid that has the replies to its messages at once; a subclass says who answers."""

    def __init__(self, run_id: int = 1) -> None:
        self._run = Run.create_empty(run_id)
        self._pushed: dict[str, Message] = {}
        self._ids = itertools.count(1)

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError("create a `Message` instead; Flower has deprecated this")

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        replies = list(self.send_and_receive(messages))
        ids = [f"reply {next(self._ids)}" for _ in replies]
        self._pushed |= dict(zip(ids, replies, strict=True))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._pushed.pop(id_) for id_ in message_ids if id_ in self._pushed]


class LocalGrid(ImmediateGrid):
    """A grid whose nodes run one ClientApp with different contexts.

    Args:
        app: the app of every node.
        clients: the number of nodes; node i has the `partition-id` i.
        run_config: the run's configuration.
        run_id: Flower's number of the run.
        seed: makes the run reproducible: before each call of the app the global generators are
            seeded by this number, the client, the round and the kind of message.
    """

    def __init__(
        self,
        app: ClientApp,
        clients: int,
        run_config: Mapping[str, Any] | None = None,
        run_id: int = 1,
        seed: int | None = None,
    ) -> None:
        super().__init__(run_id)
        self._app, self._seed, self._trainings = app, seed, 0
        self.contexts = {
            _FIRST + i: Context(
                run_id,
                _FIRST + i,
                {"partition-id": i, "num-partitions": clients},
                RecordDict(),
                dict(run_config or {}),
            )
            for i in range(clients)
        }
        # Flower creates messages only in a process that has a task identity.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, 1, 1

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, name=f"client-{node - _FIRST}") for node in self.contexts]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        requests = sorted(messages, key=lambda m: m.metadata.dst_node_id)
        self._trainings += any(is_training(message) for message in requests)
        return [self.call(message, self._trainings) for message in requests]

    def call(self, message: Message, round_: int) -> Message:
        """What the client answers; `round_` counts where the message does not say the round."""
        message.metadata.__dict__["_message_id"] = f"local {next(self._ids)}"
        context = self.contexts[message.metadata.dst_node_id]
        request = copy.deepcopy(message)
        if self._seed is None:
            return copy.deepcopy(self._app(request, context))
        member = message.metadata.dst_node_id - _FIRST
        with seeded(*message_seed(self._seed, member, round_, message)):
            return copy.deepcopy(self._app(request, context))


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    run_config: Mapping[str, Any] | None = None,
    run_id: int = 1,
    seed: int | None = None,
) -> None:
    """Run a ServerApp and its ClientApp in this process.

    Args:
        server_app: with a `main`.
        client_app: the app of every node.
        clients: the number of nodes.
        run_config: the run's configuration.
        run_id: Flower's number of the run.
        seed: makes the run reproducible, as an audit of the app does (`verax audit --app`).
    """
    grid = LocalGrid(client_app, clients, run_config, run_id, seed)
    context = Context(run_id, 1, {}, RecordDict(), dict(run_config or {}))
    if seed is None:
        server_app(grid, context)
        return
    with seeded(seed):
        server_app(grid, context)
