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

_FIRST = 100  # the first node id; 1 is the SuperLink


class LocalGrid(Grid):
    """A grid whose nodes run one ClientApp with different contexts.

    Args:
        app: the app of every node.
        clients: the number of nodes; node i has the `partition-id` i.
        run_config: the run's configuration.
        run_id: Flower's number of the run.
    """

    def __init__(
        self,
        app: ClientApp,
        clients: int,
        run_config: Mapping[str, Any] | None = None,
        run_id: int = 1,
    ) -> None:
        self._app, self._run = app, Run.create_empty(run_id)
        self._ids = itertools.count(1)
        self._contexts = {
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

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError("create a `Message` instead; Flower has deprecated this")

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, name=f"client-{node - _FIRST}") for node in self._contexts]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError("use send_and_receive: this grid sends and receives in one step")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError("use send_and_receive: this grid sends and receives in one step")

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies: list[Message] = []
        for message in sorted(messages, key=lambda m: m.metadata.dst_node_id):
            message.metadata.__dict__["_message_id"] = f"local {next(self._ids)}"
            request = copy.deepcopy(message)
            reply = self._app(request, self._contexts[message.metadata.dst_node_id])
            replies.append(copy.deepcopy(reply))
        return replies


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    run_config: Mapping[str, Any] | None = None,
    run_id: int = 1,
) -> None:
    """Run a ServerApp and its ClientApp in this process.

    Args:
        server_app: with a `main`.
        client_app: the app of every node.
        clients: the number of nodes.
        run_config: the run's configuration.
        run_id: Flower's number of the run.
    """
    grid = LocalGrid(client_app, clients, run_config, run_id)
    server_app(grid, Context(run_id, 1, {}, RecordDict(), dict(run_config or {})))
