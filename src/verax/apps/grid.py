"""The grid of an audited run: it applies one member's misreport and measures every round.

Everything else is the app's own: its strategy decides who is asked what, its ClientApp trains and
evaluates. For a deviating member the reply to a training message becomes

    sent + reporting(reply − sent),

because every misreport on the message can be applied to an honest reply. What is measured is the
effective update of each member, (1 + E_i) w_i (reply − sent), as `PaidStrategy` would charge it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from numpy.typing import NDArray

from verax.apps.cache import ReplyCache
from verax.apps.clients import ClientError, Clients
from verax.flower.local import ImmediateGrid
from verax.flower.randomness import is_training
from verax.flower.replies import Reply, SentModel, check_reply, model_arrays
from verax.flower.weighing import ReplyWeights, reply_counts
from verax.game.reporting import Sender
from verax.learning import Behaviour
from verax.mechanism import (
    Price,
    Statistics,
    Terms,
    Weights,
    effective_weights,
    gram_of_updates,
    squared_norms,
)

#: Of more members than this, inner products are not recorded: they would take most of the time.
_GRAM_MEMBERS = 16

#: Errors of a client whose model is no longer finite.
_NUMERICAL = (ValueError, ArithmeticError, Warning)

#: How often a strategy may look for nodes between two messages before it is said to wait in vain.
_LOOKS = 10

#: An app is audited with its own weights; terms by which `verax.flower` weighs in that way.
AS_REPORTED = Terms(Price.constant(1.0), weights=Weights("reported"))


class EnoughError(Exception):
    """The first exchange is known, and the run need not go on."""


class DivergedError(Exception):
    """The model, or an update of it, is no longer finite."""


class MeasuredRound:
    """What is known of one round: statistics of all N members, and who took part."""

    def __init__(self, clients: int) -> None:
        self.norms = np.zeros(clients)
        self.misreport = np.zeros(clients)
        self.gram = np.zeros((clients, clients)) if clients <= _GRAM_MEMBERS else None
        self.present = np.zeros(clients, dtype=np.bool_)

    @property
    def statistics(self) -> Statistics[NDArray[np.float64]]:
        """Of the effective updates."""
        return Statistics(self.norms, self.gram, None, self.misreport)


class AuditGrid(ImmediateGrid):
    """The grid that an app's ServerApp is given, for one run with one behaviour.

    Args:
        clients: who answers.
        replica: seeds everything that is random.
        rounds: T, for reportings; 0 if it is not known yet and everybody is honest.
        behaviour: who deviates, and how.
        cache: of honest replies; only honest runs fill it.
    """

    def __init__(
        self, clients: Clients, replica: int, rounds: int, behaviour: Behaviour, cache: ReplyCache
    ) -> None:
        super().__init__()
        self._clients, self._replica, self._cache = clients, replica, cache
        self._places = {node.node_id: i for i, node in enumerate(clients.nodes)}
        self._senders = {
            i: Sender(behaviour.reporting_of(i), rounds, replica) for i in behaviour.deviators
        }
        self._memories: dict[int, Any] = {}
        self._looks, self._last_sent = 0, None
        # The last round's evaluations: those of the final model need not be asked again.
        self._evaluated: dict[str, tuple[RecordDict, RecordDict]] = {}
        self.calls = 0
        self.rounds: list[MeasuredRound] = []
        self.parameters = 0
        #: How the app's strategy weighs; known when it starts.
        self.weights: ReplyWeights | None = None

    def get_nodes(self) -> Iterable[NodeInfo]:
        return list(self._clients.nodes)

    def get_node_ids(self) -> Iterable[int]:
        self._looks += 1
        if self._looks > _LOOKS:
            raise ValueError(
                f"the strategy waits for more than {len(self._places)} nodes; give --clients as "
                "many as its min_available_nodes and min_train_nodes, or lower these"
            )
        return list(self._places)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        requests = sorted(messages, key=lambda m: self._places[m.metadata.dst_node_id])
        self._looks, done = 0, len(self.rounds)
        if not requests or not is_training(requests[0]):
            return self._replies(requests, done)
        sent = SentModel.of(*_model_of(requests, done + 1), AS_REPORTED.arrays)
        if self._senders and not all(np.all(np.isfinite(a)) for a in sent.arrays.values()):
            raise DivergedError
        self._evaluated.clear()
        requests = [one for one in requests if not self._is_absent(one, done + 1)]
        return self._measured(sent, requests, self._replies(requests, done + 1))

    def _is_absent(self, request: Message, round_: int) -> bool:
        """Whether a member chooses not to answer in a round; its message then never arrives."""
        sender = self._senders.get(self._places[request.metadata.dst_node_id])
        return sender is not None and sender.is_absent(round_)

    def _replies(self, requests: list[Message], round_: int) -> list[Message]:
        """The clients' own answers; from the cache where an honest run has asked the same."""
        replies: dict[int, Message] = {}
        asked: list[tuple[int, Message]] = []
        keys: dict[int, str] = {}
        for message in requests:
            member, kind = self._places[message.metadata.dst_node_id], message.metadata.message_type
            state = self._clients.state(member)
            key = self._cache.key(self._replica, member, kind, message.content, state)
            known = self._evaluated.get(key) or self._cache.load(key)
            if known is None:
                keys[member] = key
                asked.append((member, message))
            else:
                replies[member] = Message(known[0], reply_to=message)
                self._clients.restore(member, known[1])
        self.calls += len(asked)
        try:
            answers = self._clients.ask(self._replica, round_, asked)
        except ClientError as error:
            if self._senders and isinstance(error.__cause__, _NUMERICAL):
                raise DivergedError from error  # honest members cannot go on with such a model
            raise ValueError(str(error)) from error
        for (member, message), reply in zip(asked, answers, strict=True):
            replies[member] = reply
            kept = reply.content, self._clients.state(member)
            if not self._senders:
                self._cache.store(keys[member], *kept)
            if message.metadata.message_type == "evaluate":
                self._evaluated[keys[member]] = kept
        return [replies[self._places[m.metadata.dst_node_id]] for m in requests]

    def _measured(
        self, sent: SentModel, requests: list[Message], replies: list[Message]
    ) -> list[Message]:
        """Change the deviators' replies, and record what all of them measure."""
        round_, number = MeasuredRound(len(self._places)), len(self.rounds) + 1
        members = [self._places[message.metadata.dst_node_id] for message in requests]
        honest = [
            self._checked(message, sent, member, number)
            for member, message in zip(members, replies, strict=True)
        ]
        updates = [list(reply.arrays) for reply in honest]
        for k, member in enumerate(members):
            if member in self._senders:
                updates[k] = self._deviate(number, member, sent, honest[k].arrays)
                replies[k] = _with_arrays(replies[k], sent, updates[k])
        names = [(str(member), "") for member in members]
        assert self.weights is not None
        weights = effective_weights(reply_counts(self.weights, AS_REPORTED, names, honest))
        model = sent.charged
        if round_.gram is None:
            round_.norms[members] = weights**2 * squared_norms(model, updates)
        else:
            gram = np.outer(weights, weights) * gram_of_updates(model, updates)
            round_.gram[np.ix_(members, members)] = gram
            round_.norms[members] = np.diagonal(gram)
        for k, member in enumerate(members):
            if member in self._senders:
                true = list(honest[k].arrays)
                round_.misreport[member] = weights[k] ** 2 * squared_norms(true, [updates[k]])[0]
        if not np.all(np.isfinite(round_.norms)):
            raise DivergedError
        round_.present[members] = True
        self.parameters = sum(array.size for array in model)
        self._last_sent = sent
        self.rounds.append(round_)
        return replies

    def _checked(self, message: Message, sent: SentModel, member: int, round_: int) -> Reply:
        assert self.weights is not None
        checked = check_reply(message, sent, self.weights.count_key)
        if checked.status != "ok":
            raise ValueError(
                f"the reply of member {member} in round {round_} could not be charged: "
                f"{checked.reason}"
            )
        return checked

    def _deviate(
        self, round_: int, member: int, sent: SentModel, honest: tuple[NDArray[Any], ...]
    ) -> list[NDArray[Any]]:
        """What a deviating member returns: the model that was sent, moved by its message."""
        sender, model = self._senders[member], sent.charged
        moves = [a.dtype.kind == "f" for a in honest]
        update, last = _differences(honest, model, moves), None
        if self._last_sent is not None:
            last = _differences(model, self._last_sent.charged, moves)
        message, self._memories[member] = sender.send(
            round_, update, self._memories.get(member), last
        )
        changed = iter(zip(message, update, strict=True))
        result: list[NDArray[Any]] = []
        for own, server, floating in zip(honest, model, moves, strict=True):
            if not floating:
                result.append(own)
                continue
            moved, true = next(changed)
            # An honest round stays honest to the last bit.
            same = np.array_equal(moved, true)
            result.append(own if same else (server + moved).astype(own.dtype))
        return result


class FirstExchange(AuditGrid):
    """Ends a run after its first training messages were answered; keeps their digest and models."""

    def __init__(self, clients: Clients, replica: int) -> None:
        super().__init__(clients, replica, 0, Behaviour(), ReplyCache(Path(), 0))
        self.digest = ""
        self.before: list[NDArray[Any]] = []
        self.after: list[list[NDArray[Any]]] = []

    def _measured(
        self, sent: SentModel, requests: list[Message], replies: list[Message]
    ) -> list[Message]:
        contents = [message.content for message in (*requests, *replies)]
        keys = [self._cache.key(0, 0, "", content, RecordDict()) for content in contents]
        self.digest = " ".join(keys)
        self.before = sent.charged
        answered = [reply.content for reply in replies if reply.has_content()]
        self.after = [list(model_arrays(content, sent)[0]) for content in answered]
        raise EnoughError

    def error_of(self, other: FirstExchange) -> float:
        """The largest ‖g − g'‖ / ‖g‖ of a member's update here and in the same run again."""
        ratios = [0.0]
        for one, again in zip(self.after, other.after, strict=True):
            distance = float(squared_norms(one, [again])[0])
            norm = float(squared_norms(self.before, [one])[0])
            ratios.append(math.sqrt(distance / norm) if norm else math.inf if distance else 0.0)
        return max(ratios)


def _model_of(requests: list[Message], round_: int) -> tuple[str, ArrayRecord]:
    """The model that the members were sent, the same for all, and the name of its record."""
    records = [list(message.content.array_records.items()) for message in requests]
    if any(len(own) != 1 for own in records):
        raise ValueError(
            f"a message of round {round_} has {max(map(len, records))} array records, must be 1: "
            "what members change is measured against the model that they were sent"
        )
    first = records[0][0]
    if any(own[0] is not first and own[0] != first for own in records):
        raise ValueError(
            f"the strategy sends different models to members in round {round_}, must be one for "
            "all: what they change is measured against it"
        )
    return first


def _differences(
    after: Sequence[NDArray[Any]], before: Sequence[NDArray[Any]], which: list[bool]
) -> list[NDArray[np.float64]]:
    """By how much some of the arrays changed."""
    pairs = zip(after, before, which, strict=True)
    return [a.astype(np.float64) - b for a, b, chosen in pairs if chosen]


def _with_arrays(reply: Message, sent: SentModel, arrays: list[NDArray[Any]]) -> Message:
    """A copy of a reply with other charged arrays."""
    changed = copy.deepcopy(reply)
    ((name, record),) = changed.content.array_records.items()
    labels = [label for label in sent.arrays if label not in sent.uncharged]
    own = {
        label: Array(np.ascontiguousarray(array))
        for label, array in zip(labels, arrays, strict=True)
    }
    changed.content[name] = ArrayRecord({**record, **own})
    return changed


def metrics_of(reply: Message) -> dict[str, float]:
    """All numbers in the metric records of a reply."""
    records: list[MetricRecord] = list(reply.content.metric_records.values())
    return {
        name: float(value)
        for record in records
        for name, value in record.items()
        if isinstance(value, int | float)
    }
