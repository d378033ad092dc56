"""Whoever answers the messages of an audited run: clients in this process, or a live federation."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from typing import Protocol

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from verax.flower.local import LocalGrid
from verax.flower.randomness import SEED_RECORD, message_seed

_log = logging.getLogger("flwr.verax")

#: How often a member that gave no usable answer is asked.
_TRIES = 3
_PAUSE = 1.0  # seconds before asking again


class ClientError(Exception):
    """A member failed to answer."""

    def __init__(self, member: int, round_: int, message: Message, reason: str) -> None:
        kind = message.metadata.message_type
        super().__init__(
            f"the ClientApp of member {member} failed in round {round_} ({kind}): {reason}"
        )


class Clients(Protocol):
    """The members of a federation, by their place 0 … N − 1."""

    #: The node of each member.
    nodes: list[NodeInfo]

    def ask(
        self, replica: int, round_: int, requests: Sequence[tuple[int, Message]]
    ) -> list[Message]:
        """The replies of some members; raises ClientError where one fails."""
        ...

    def state(self, member: int) -> RecordDict:
        """What a member keeps from call to call, as far as it can be known."""
        ...

    def restore(self, member: int, state: RecordDict) -> None:
        """Put a member into the state that it had after a call."""
        ...


class LocalClients:
    """The clients of a `LocalGrid`, called one after the other, with seeded generators.

    Args:
        grid: a fresh one for each run, so that no state is left of another run.
    """

    def __init__(self, grid: LocalGrid) -> None:
        self._grid, self.nodes = grid, list(grid.get_nodes())

    def ask(
        self, replica: int, round_: int, requests: Sequence[tuple[int, Message]]
    ) -> list[Message]:
        """Call the ClientApp for each request; the grid has the replica's seed."""
        replies: list[Message] = []
        for member, message in requests:
            try:
                reply = self._grid.call(message, round_)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise ClientError(member, round_, message, reason) from error
            if reply.has_error():
                raise ClientError(member, round_, message, reply.error.reason or "no reason")
            replies.append(reply)
        return replies

    def state(self, member: int) -> RecordDict:
        """The client's `Context.state`."""
        return self._grid.contexts[self.nodes[member].node_id].state

    def restore(self, member: int, state: RecordDict) -> None:
        """Replace the client's `Context.state`."""
        self._grid.contexts[self.nodes[member].node_id].state = state


class LiveClients:
    """The nodes of a live federation, which hold the data.

    Each message carries the seed of the call; the mod `verax.flower.paired` uses it. A member that
    does not answer, or answers with an error, is asked again.

    Args:
        grid: Flower's.
        clients: N; so many nodes must be connected.
        timeout: seconds to wait for replies.
    """

    def __init__(self, grid: Grid, clients: int, timeout: float = 3600.0) -> None:
        self._grid, self._timeout = grid, timeout
        nodes = list(grid.get_nodes())
        while len(nodes) < clients:
            _log.info("Verax: %d of %d nodes are connected, waiting", len(nodes), clients)
            time.sleep(_PAUSE)
            nodes = list(grid.get_nodes())
        if len(nodes) > clients:
            raise ValueError(
                f"{len(nodes)} nodes are connected, and the plan has {clients} clients; give "
                f"Plan.of(clients={len(nodes)}), or stop the other nodes"
            )
        self.nodes = sorted(nodes, key=lambda node: (node.name, node.node_id))

    def ask(
        self, replica: int, round_: int, requests: Sequence[tuple[int, Message]]
    ) -> list[Message]:
        """Send all requests at once, and those that failed again."""
        replies: dict[int, Message] = {}
        reason = "no answer"
        for _ in range(_TRIES):
            waiting = [(member, message) for member, message in requests if member not in replies]
            if not waiting:
                break
            sent = {message.metadata.dst_node_id: member for member, message in waiting}
            seeded = [_with_seed(message, replica, member, round_) for member, message in waiting]
            for reply in self._grid.send_and_receive(seeded, timeout=self._timeout):
                if reply.has_error():
                    reason = reply.error.reason or reason
                elif reply.metadata.src_node_id in sent:
                    replies[sent[reply.metadata.src_node_id]] = reply
            if len(replies) < len(requests):
                time.sleep(_PAUSE)
        for member, message in requests:
            if member not in replies:
                raise ClientError(member, round_, message, f"{reason}, asked {_TRIES} times")
        return [replies[member] for member, _ in requests]

    def state(self, member: int) -> RecordDict:
        """Nothing is known of a node's state."""
        return RecordDict()

    def restore(self, member: int, state: RecordDict) -> None:
        """A node keeps its own state."""


def _with_seed(message: Message, replica: int, member: int, round_: int) -> Message:
    """A copy of a message that brings the seed of its call; strategies share one content."""
    seed = ConfigRecord({"seed": list(message_seed(replica, member, round_, message))})
    copied = copy.copy(message)
    copied.content = RecordDict({**message.content, SEED_RECORD: seed})
    return copied
