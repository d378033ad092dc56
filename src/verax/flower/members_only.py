"""A view of the grid that shows a strategy the nodes of members, and no others.

So a strategy samples among members, waits for members, and sends the model to nobody else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run


class MembersOnly(Grid):
    """The grid as members' nodes alone would make it.

    Args:
        grid: the whole one.
        nodes: the ids of members' nodes.
    """

    def __init__(self, grid: Grid, nodes: Collection[int]) -> None:
        self._grid, self._nodes = grid, frozenset(nodes)

    def set_run(self, run: Run) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self._grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self._grid.get_node_ids() if node in self._nodes]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [info for info in self._grid.get_nodes() if info.node_id in self._nodes]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(self.to_members(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self._grid.send_and_receive(self.to_members(messages), timeout=timeout)

    def to_members(self, messages: Iterable[Message]) -> list[Message]:
        """The messages that go to members."""
        return [message for message in messages if message.metadata.dst_node_id in self._nodes]
