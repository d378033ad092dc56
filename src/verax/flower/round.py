"""The replies of one round: matched to requests, checked, measured, weighed, put into reports.

A member that was asked ends as ok, missing, rejected or error, with a reason. Those that are ok
have a squared norm ‖reply − sent‖² and a weight N·w_i, with w_i as the strategy will use it.
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
from verax.flower.measure import gram_of_updates, squared_norms
from verax.flower.replies import Reply, Sent, check_reply, odd_layouts
from verax.flower.weighing import Weighing, loss_weight, set_examples, shares
from verax.ledger import Report
from verax.mechanism import RULES, Terms

__all__ = ["Asked", "Collected", "source_of"]

_log = logging.getLogger("flwr.verax")

#: The most units that one update may cost in a round: what float64 counts exactly, and far from the
#: limit of the books, so that no member can stop a round by sending a gigantic update.
_MOST_UNITS = 2.0**53


@dataclass(eq=False)
class Asked:
    """A member that was sent the model in this round, and what came of it."""

    member: Member
    request: Any  # Flower's metadata object: its message id is filled in when it is pushed
    sent: Sent
    replies: list[Message] = field(default_factory=list[Message])
    found: Reply = field(default_factory=lambda: Reply("missing", "no reply"))
    norm: float = math.nan
    weight: float = 1.0

    @property
    def message(self) -> Message:
        """The reply that counts; whoever is ok has one."""
        return self.replies[0]


class Collected:
    """Those who were asked in a round, in the sorted order of members, and their replies."""

    def __init__(self, asked: list[Asked], how: Weighing, terms: Terms, round_: int) -> None:
        self.asked = asked
        self._how, self._terms, self._round = how, terms, round_
        self._gram: NDArray[np.float64] | None = None  # of all asked; NaN where not measured

    @property
    def ok(self) -> list[Asked]:
        """Those whose update counts."""
        return [one for one in self.asked if one.found.status == "ok"]

    def take(self, replies: Iterable[Message]) -> None:
        """Everything that can be said of the replies before they are aggregated."""
        self._match(replies)
        for one in self.asked:
            if one.replies:
                self._check(one)
        self._refuse_odd()
        self._measure()
        self._weigh()

    def fix_weights(self) -> None:
        """Where the terms fix the weights, what members report of them is overwritten."""
        kind, key = self._terms.weights.kind, self._how.count_key
        if kind == "reported" or key is None:
            return
        table = dict(zip(self._terms.members, self._terms.weights.values or [1.0], strict=False))
        for one in self.ok:
            own = 1.0
            if kind == "fixed":
                own = table.get(one.member.id) or table[one.member.label]
            set_examples(one.message, key, own)

    def nobody_counts(self) -> None:
        """No update was used: nobody moved the model, so nobody pays for it."""
        for one in self.ok:
            one.found = Reply("error", "the strategy used no update")

    def reports(self) -> tuple[list[Report], NDArray[np.float64] | None]:
        """What the book is told: a report each, and inner products where the rule reads them."""
        found: list[Report] = []
        for one in self.asked:
            if one.found.status == "ok":
                statistic = one.weight**2 * one.norm if self._gram is None else None
                found.append(Report(one.member.id, "ok", statistic, one.weight))
            else:
                found.append(Report(one.member.id, one.found.status, reason=one.found.reason))
        ok = [k for k, one in enumerate(self.asked) if one.found.status == "ok"]
        if self._gram is None or not ok:
            return found, None
        weights = np.array([self.asked[k].weight for k in ok])
        return found, self._gram[np.ix_(ok, ok)] * weights[:, None] * weights

    def _match(self, replies: Iterable[Message]) -> None:
        """Replies to their requests; what answers none of them is late, and left out."""
        by_id = {one.request.message_id: one for one in self.asked}
        for message in replies:
            one = by_id.get(message.metadata.reply_to_message_id)
            source = source_of(message)
            if one is None or (not message.has_error() and source != one.request.dst_node_id):
                _log.warning(
                    "Verax: a reply from node %d answers no request of round %d (late, or not "
                    "asked for), and is left out",
                    source,
                    self._round,
                )
                continue
            one.replies.append(message)

    def _check(self, one: Asked) -> None:
        if len(one.replies) > 1:
            if len({_content_id(message) for message in one.replies}) > 1:
                one.found = Reply("rejected", "several different replies to one request")
                return
            _log.warning("Verax: %s replied more than once, all the same", one.member.label)
        fixed = self._terms.weights.kind != "reported"
        one.found = check_reply(one.message, one.sent, None if fixed else self._how.count_key)
        if one.message.has_error():
            _log.warning("Verax: %s: %s", one.member.label, one.message.error.reason)
        elif one.found.status == "ok" and self._how.loss_key is not None:
            try:
                loss_weight(self._how, one.message.content)
            except ValueError as error:
                one.found = Reply("rejected", str(error))

    def _refuse_odd(self) -> None:
        ignored = self._how.count_key if self._terms.weights.kind != "reported" else None
        ok = self.ok
        odd = odd_layouts([one.message.content for one in ok], ignored)
        for one, reason in zip(ok, odd, strict=True):
            if reason:
                one.found = Reply("rejected", reason)

    def _measure(self) -> None:
        """Squared norms, or all inner products where the rule reads them, in one pass."""
        models = {id(one.sent): one.sent for one in self.asked}
        reads_gram = RULES[self._terms.rule].statistic == "gram"
        if reads_gram and len(models) > 1:
            raise ValueError(
                "a rule on the Gram matrix needs the same model to be sent to all members"
            )
        for sent in models.values():
            places = [
                k
                for k, one in enumerate(self.asked)
                if one.sent is sent and one.found.status == "ok"
            ]
            model = list(sent.arrays.values())
            updates = [self.asked[k].found.arrays for k in places]
            if reads_gram:
                self._gram = np.full((len(self.asked), len(self.asked)), np.nan)
                self._gram[np.ix_(places, places)] = gram_of_updates(model, updates)
                norms = np.diagonal(self._gram)[places]
            else:
                norms = squared_norms(model, updates)
            for k, norm in zip(places, norms.tolist(), strict=True):
                self.asked[k].norm = norm
                if not math.isfinite(norm):
                    reason = "holds NaN or infinity, or is too large to measure"
                    self.asked[k].found = Reply("rejected", reason)

    def _weigh(self) -> None:
        """N·w_i of all that are ok; whoever would pass what the books hold is rejected."""
        dearest = float(np.max(self._terms.price.at(self._round), initial=0.0))
        dearest *= 10.0**self._terms.scale
        limit = min(_MOST_UNITS / dearest if dearest else math.inf, 1e300)
        while ok := self.ok:
            names = [(one.member.id, one.member.label) for one in ok]
            contents = [(one.found, one.message.content) for one in ok]
            for one, weight in zip(
                ok, shares(self._how, self._terms, names, contents), strict=True
            ):
                one.weight = float(weight)
            worst = max(ok, key=lambda one: one.weight**2 * one.norm)
            if worst.weight**2 * worst.norm <= limit:
                return
            worst.found = Reply("rejected", f"its squared norm passes what is booked, {limit:.3g}")


def source_of(message: Message) -> int:
    """The node that a message came from."""
    return message.metadata.src_node_id


def _content_id(message: Message) -> str:
    return message.content.object_id if message.has_content() else str(message.error)
