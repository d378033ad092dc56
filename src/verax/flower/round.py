"""The replies of one round: matched with requests, checked, measured, weighed and reported.

A member that was asked ends with the status ok, missing, rejected or error, and a reason. Those
that are ok have a squared norm ‖reply − sent‖² and a weight N·w_i, as the strategy will use it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from verax.flower.identity import Member
from verax.flower.replies import Reply, SentModel, check_reply, differing_metrics
from verax.flower.weighing import (
    ReplyWeights,
    effective_weights,
    fixed_weights,
    loss_weight,
    set_examples,
)
from verax.ledger import Report
from verax.mechanism import Statistics, Terms, gram_of_updates, rule_named, squared_norms

_log = logging.getLogger("flwr.verax")

#: The largest charge of one update, in minor units. float64 counts exactly up to here, and the
#: limit of the books is far away, so that no member can stop a round by sending a gigantic update.
_MAX_CHARGE = 2.0**53


@dataclass(eq=False)
class Asked:
    """A member that was sent the model in this round, and its replies."""

    member: Member
    request: Any  # Flower's metadata object: its message id is set when the message is pushed
    sent: SentModel
    replies: list[Message] = field(default_factory=list[Message])
    reply: Reply = field(default_factory=lambda: Reply("missing", "no reply"))
    norm: float = math.nan
    weight: float = 1.0

    @property
    def message(self) -> Message:
        """The reply that counts; every member with the status ok has one."""
        return self.replies[0]


def match_replies(asked: Iterable[Asked], replies: Iterable[Message], round_: int) -> None:
    """Match replies with requests; a reply to no request of this round is ignored."""
    by_id = {one.request.message_id: one for one in asked}
    for message in replies:
        one = by_id.get(message.metadata.reply_to_message_id)
        source = source_of(message)
        if one is None or (not message.has_error() and source != one.request.dst_node_id):
            _log.warning(
                "Verax: a reply from node %d answers no request of round %d (it is late, or "
                "was not asked for) and is ignored",
                source,
                round_,
            )
            continue
        one.replies.append(message)


class Collected:
    """The members that were asked in a round, sorted by id, and their replies."""

    def __init__(
        self, asked: list[Asked], weights: ReplyWeights, terms: Terms, round_: int
    ) -> None:
        self.asked = asked
        self._weights, self._terms, self._round = weights, terms, round_
        # Of all asked members, before weighing; zero where nothing was measured.
        self._measured: Statistics[NDArray[np.float64]] = Statistics(np.zeros(len(asked)))

    @property
    def ok(self) -> list[Asked]:
        """The members whose update counts."""
        return [one for one in self.asked if one.reply.status == "ok"]

    @property
    def statistics(self) -> Statistics[NDArray[np.float64]]:
        """Statistics of the updates as they count, of all asked; zero where a status is not ok."""
        ok = np.array([one.reply.status == "ok" for one in self.asked], dtype=np.bool_)
        weights = np.array([one.weight for one in self.asked])
        if self._measured.gram is not None:
            both = ok[:, None] & ok
            gram = np.where(both, self._measured.gram, 0.0) * weights[:, None] * weights
            return Statistics.of_gram(gram)
        assert self._measured.norms is not None
        return Statistics(np.where(ok, self._measured.norms, 0.0) * weights**2)

    def receive(self) -> None:
        """Check, measure and weigh the replies, before they are aggregated."""
        for one in self.asked:
            if one.replies:
                self._check(one)
        self._reject_differing_metrics()
        self._measure()
        self._weigh()

    def overwrite_counts(self) -> None:
        """Where the terms fix the weights, replace the example counts that members report."""
        key = self._weights.count_key
        if self._terms.weights.kind == "reported" or key is None:
            return
        names = [(one.member.id, one.member.label) for one in self.ok]
        for one, weight in zip(self.ok, fixed_weights(self._terms, names), strict=True):
            set_examples(one.message, key, weight)

    def discard_all(self) -> None:
        """Record that the strategy used no update: the model stays, so nobody is charged."""
        for one in self.ok:
            one.reply = Reply("error", "the strategy used no update")

    def reports(self) -> tuple[list[Report], NDArray[np.float64] | None]:
        """What is posted: one report per member, and the Gram matrix of the ok updates if read."""
        statistics = self.statistics
        assert statistics.norms is not None
        reports: list[Report] = []
        for one, norm in zip(self.asked, statistics.norms.tolist(), strict=True):
            if one.reply.status == "ok":
                value = norm if statistics.gram is None else None
                reports.append(Report(one.member.id, "ok", value, one.weight))
            else:
                reports.append(Report(one.member.id, one.reply.status, reason=one.reply.reason))
        if statistics.gram is None:
            return reports, None
        ok = [k for k, one in enumerate(self.asked) if one.reply.status == "ok"]
        return reports, statistics.gram[np.ix_(ok, ok)]

    def _check(self, one: Asked) -> None:
        if len(one.replies) > 1:
            if len({_content_id(message) for message in one.replies}) > 1:
                one.reply = Reply("rejected", "several different replies to one request")
                return
            _log.warning("Verax: %s sent the same reply more than once", one.member.label)
        reported = self._terms.weights.kind == "reported"
        one.reply = check_reply(
            one.message, one.sent, self._weights.count_key if reported else None
        )
        if one.message.has_error():
            _log.warning("Verax: %s: %s", one.member.label, one.message.error.reason)
        elif one.reply.status == "ok" and self._weights.loss_key is not None:
            try:
                loss_weight(self._weights, one.message.content)
            except ValueError as error:
                one.reply = Reply("rejected", str(error))

    def _reject_differing_metrics(self) -> None:
        reported = self._terms.weights.kind == "reported"
        ignored = None if reported else self._weights.count_key
        ok = self.ok
        reasons = differing_metrics([one.message.content for one in ok], ignored)
        for one, reason in zip(ok, reasons, strict=True):
            if reason:
                one.reply = Reply("rejected", reason)

    def _measure(self) -> None:
        """Squared norms, or all inner products if the rule reads them or distances."""
        count = len(self.asked)
        models = {id(one.sent): one.sent for one in self.asked}
        reads_gram = rule_named(self._terms.rule).reads in ("gram", "distances")
        if reads_gram and len(models) > 1:
            raise ValueError(
                f"rule {self._terms.rule} compares updates with each other, so all members must be "
                "sent the same model"
            )
        norms, gram = np.zeros(count), np.zeros((count, count))
        for sent in models.values():
            places = [
                k
                for k, one in enumerate(self.asked)
                if one.sent is sent and one.reply.status == "ok"
            ]
            model = sent.charged
            replies = [self.asked[k].reply.arrays for k in places]
            if reads_gram:
                gram[np.ix_(places, places)] = gram_of_updates(model, replies)
                norms[places] = np.diagonal(gram)[places]
            else:
                norms[places] = squared_norms(model, replies)
            for k in places:
                self.asked[k].norm = float(norms[k])
                if not math.isfinite(norms[k]):
                    reason = "holds NaN or infinity, or is too large to measure"
                    self.asked[k].reply = Reply("rejected", reason)
        self._measured = Statistics(norms, gram if reads_gram else None)

    def _weigh(self) -> None:
        """Set N·w_i of all that are ok; reject updates that cost more than a book should hold."""
        highest = float(np.max(self._terms.price.at(self._round), initial=0.0))
        highest *= 10.0**self._terms.scale
        limit = min(_MAX_CHARGE / highest if highest else math.inf, 1e300)
        while ok := self.ok:
            names = [(one.member.id, one.member.label) for one in ok]
            contents = [(one.reply, one.message.content) for one in ok]
            weights = effective_weights(self._weights, self._terms, names, contents)
            for one, weight in zip(ok, weights, strict=True):
                one.weight = float(weight)
            largest = max(ok, key=lambda one: one.weight**2 * one.norm)
            if largest.weight**2 * largest.norm <= limit:
                return
            reason = f"its squared norm exceeds the limit of {limit:.3g} at this price"
            largest.reply = Reply("rejected", reason)


def source_of(message: Message) -> int:
    """The node that a message came from."""
    return message.metadata.src_node_id


def _content_id(message: Message) -> str:
    return message.content.object_id if message.has_content() else str(message.error)
