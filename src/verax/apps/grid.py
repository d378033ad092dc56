"""The grid of an audited run: it applies one member's misreport and measures every round.

Everything else is the app's own: its strategy decides who is asked what, its ClientApp trains and
evaluates. For a deviating member the reply to a training message becomes

    sent + reporting(reply − sent),

because every misreport on the message can be applied to an honest reply. What is measured is the
effective update of each member, N·w_i·(reply − sent), as `PaidStrategy` would charge it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from verax.apps.app import FlowerApp
from verax.apps.cache import ReplyCache
from verax.flower.local import LocalGrid
from verax.flower.replies import Reply, SentModel, check_reply
from verax.flower.weighing import ReplyWeights, effective_weights
from verax.game.reporting import Sender
from verax.learning import Behaviour
from verax.mechanism import Price, Statistics, Terms, Weights, gram_of_updates, squared_norms

#: Of more members than this, inner products are not recorded: they would take most of the time.
_GRAM_MEMBERS = 16

#: How often a strategy may look for nodes between two messages before it is said to wait in vain.
_LOOKS = 3

_REPORTED = Terms(Price.constant(1.0), weights=Weights("reported"))


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


class AuditGrid(LocalGrid):
    """Runs an app's clients in this process, with one behaviour.

    Args:
        app: the app.
        clients: N.
        replica: seeds everything that is random.
        rounds: T, for reportings; 0 if it is not known yet and everybody is honest.
        behaviour: who deviates, and how.
        cache: of honest replies.
        stores: whether replies of this run are stored; only those of honest runs are needed again.
    """

    def __init__(
        self,
        app: FlowerApp,
        clients: int,
        replica: int,
        rounds: int,
        behaviour: Behaviour,
        cache: ReplyCache,
        *,
        stores: bool,
    ) -> None:
        super().__init__(app.client, clients, app.run_config, seed=replica)
        self._clients, self._replica, self._behaviour = clients, replica, behaviour
        self._senders = {
            i: Sender(behaviour.reporting, rounds, replica) for i in behaviour.deviators
        }
        self._memories: dict[int, Any] = {}
        self._cache, self._stores = cache, stores
        self._looks, self._last_sent = 0, None
        # The last round's evaluations: those of the final model need not be asked again.
        self._evaluated: dict[str, tuple[RecordDict, RecordDict]] = {}
        self.calls = 0
        self.rounds: list[MeasuredRound] = []
        self.parameters = 0
        #: How the app's strategy weighs; known when it starts.
        self.weights: ReplyWeights | None = None

    def get_node_ids(self) -> Iterable[int]:
        self._looks += 1
        if self._looks > _LOOKS:
            raise ValueError(
                f"the strategy waits for more than {self._clients} nodes; give --clients as many "
                "as its min_available_nodes and min_train_nodes, or lower these"
            )
        return super().get_node_ids()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        requests = list(messages)
        self._looks = 0
        replies = list(super().send_and_receive(requests, timeout=timeout))
        if not requests or not requests[0].metadata.message_type.startswith("train"):
            return replies
        self._evaluated.clear()
        ordered = sorted(requests, key=lambda m: m.metadata.dst_node_id)
        return self._measured(ordered, replies)

    def reply(self, message: Message) -> Message:
        """The client's own answer; from the cache if an honest run has asked the same."""
        member, kind = self.client_of(message), message.metadata.message_type
        context = self._contexts[message.metadata.dst_node_id]
        key = self._cache.key(self._replica, member, kind, message.content, context.state)
        known = self._evaluated.get(key) or self._cache.load(key)
        if known is not None:
            content, context.state = known
            return Message(content, reply_to=message)
        self.calls += 1
        try:
            reply = super().reply(message)
        except Exception as error:
            if self._senders and isinstance(error, ValueError | ArithmeticError | Warning):
                raise DivergedError from error  # honest members cannot go on with such a model
            raise ValueError(
                f"the ClientApp of member {member} failed in round {self.round_of(message)} "
                f"({kind}): {type(error).__name__}: {error}"
            ) from error
        if reply.has_error():
            raise ValueError(
                f"the ClientApp of member {member} answers with an error in round "
                f"{self.round_of(message)}: {reply.error.reason}"
            )
        if self._stores:
            self._cache.store(key, reply.content, context.state)
        if kind == "evaluate":
            self._evaluated[key] = reply.content, context.state
        return reply

    def _measured(self, requests: list[Message], replies: list[Message]) -> list[Message]:
        """The replies as they are sent, the deviators' changed; what they measure is recorded."""
        round_, number = MeasuredRound(self._clients), len(self.rounds) + 1
        sent = SentModel.of(_model_of(requests, number))
        if self._senders and not all(np.all(np.isfinite(a)) for a in sent.arrays.values()):
            raise DivergedError
        members = [self.client_of(message) for message in requests]
        honest = [self._checked(message, sent, number) for message in replies]
        updates = [list(reply.arrays) for reply in honest]
        for k, member in enumerate(members):
            if member in self._senders:
                updates[k] = self._deviate(number, member, sent, honest[k].arrays)
                replies[k] = _with_arrays(replies[k], sent, updates[k])
        names = [(str(member), "") for member in members]
        contents = [(one, reply.content) for one, reply in zip(honest, replies, strict=True)]
        assert self.weights is not None
        weights = np.array(effective_weights(self.weights, _REPORTED, names, contents))
        model = list(sent.arrays.values())
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

    def _checked(self, message: Message, sent: SentModel, round_: int) -> Reply:
        assert self.weights is not None
        checked = check_reply(message, sent, self.weights.count_key)
        if checked.status != "ok":
            member = message.metadata.src_node_id
            raise ValueError(
                f"the reply of node {member} in round {round_} could not be charged: "
                f"{checked.reason}"
            )
        return checked

    def _deviate(
        self, round_: int, member: int, sent: SentModel, honest: tuple[NDArray[Any], ...]
    ) -> list[NDArray[Any]]:
        """What a deviating member returns: the model that was sent, moved by its message."""
        sender, model = self._senders[member], list(sent.arrays.values())
        moves = [a.dtype.kind == "f" for a in honest]
        update, last = _differences(honest, model, moves), None
        if self._last_sent is not None:
            last = _differences(model, list(self._last_sent.arrays.values()), moves)
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
    """Ends a run after its first training messages were answered, and keeps their digest."""

    def __init__(self, app: FlowerApp, clients: int, replica: int) -> None:
        nothing = ReplyCache(Path(), 0)
        super().__init__(app, clients, replica, 0, Behaviour(), nothing, stores=False)
        self.digest = ""

    def _measured(self, requests: list[Message], replies: list[Message]) -> list[Message]:
        contents = [message.content for message in (*requests, *replies)]
        keys = [self._cache.key(0, 0, "", content, RecordDict()) for content in contents]
        self.digest = " ".join(keys)
        raise EnoughError


def _model_of(requests: list[Message], round_: int) -> ArrayRecord:
    """The model that the members were sent, the same for all."""
    records = [list(message.content.array_records.values()) for message in requests]
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
    """A copy of a reply with other arrays."""
    changed = copy.deepcopy(reply)
    (name,) = changed.content.array_records
    named = zip(sent.arrays, arrays, strict=True)
    changed.content[name] = ArrayRecord(
        {label: Array(np.ascontiguousarray(array)) for label, array in named}
    )
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
