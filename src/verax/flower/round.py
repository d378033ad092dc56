"""The replies of one round: matched with requests, checked, measured, weighed and reported.

A member that was asked ends with the status ok, missing, rejected or error, and a reason. Those
that are ok have a squared norm ‖reply − sent‖², and the weight by which their update counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from verax.flower.log import log
from verax.flower.matching import Asked, same_content, with_content
from verax.flower.metrics import averageable, only
from verax.flower.replies import Reply, check_reply, rejected
from verax.flower.statements import Signatures, take_statement
from verax.flower.weighing import (
    ReplyWeights,
    fixed_weights,
    loss_weight,
    reply_counts,
    with_examples,
)
from verax.ledger import Report
from verax.mechanism import (
    Statistics,
    Terms,
    effective_weights,
    gram_of_updates,
    rule_named,
    squared_norms,
)
from verax.text import shown

#: The largest charge of one update, in minor units. float64 counts exactly up to here, and the
#: limit of the books is far away, so that no member can stop a round by sending a gigantic update.
_MAX_CHARGE = 2.0**53

#: The largest effective squared norm where the price is zero; sums of many of them are finite.
_MAX_NORM = 1e200


class Collected:
    """The members that were asked in a round, sorted by id, and their replies."""

    def __init__(
        self,
        asked: list[Asked],
        weights: ReplyWeights,
        terms: Terms,
        round_: int,
        signatures: Signatures | None = None,
    ) -> None:
        self.asked, self._signatures = asked, signatures
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
        weights = np.array([one.effective for one in self.asked])
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
        self._measure()
        if self._signatures is not None:
            for one in self.asked:
                self._signatures.compare_norm(one)
        self.weigh()

    def to_aggregate(self, chosen: Sequence[Asked], *, with_metrics: bool = True) -> list[Message]:
        """The replies of some members as the strategy may see them.

        Where the terms fix the weights, they replace the example counts that members report.

        Args:
            chosen: members that are ok.
            with_metrics: False leaves only the metrics that the strategy cannot do without.
        """
        contents = [one.content for one in chosen]
        key, required = self._weights.count_key, self._weights.required
        if self._terms.weights.kind != "reported" and key is not None:
            names = [(one.member.id, one.member.label) for one in chosen]
            fixed = fixed_weights(self._terms, names)
            contents = [with_examples(c, key, w) for c, w in zip(contents, fixed, strict=True)]
        if with_metrics:
            labels = [one.member.label for one in chosen]
            shares = [one.weight for one in chosen]
            contents = averageable(contents, labels, shares, required)
        else:
            contents = [only(content, required) for content in contents]
        return [
            with_content(one.message, content)
            for one, content in zip(chosen, contents, strict=True)
        ]

    def discard_all(self) -> None:
        """Record that the strategy used no update: the model stays, so nobody is charged."""
        for one in self.ok:
            one.reply = Reply("error", "the strategy used no update")

    def reports(self) -> tuple[list[Report], NDArray[np.float64] | None]:
        """What is posted: one report per member, and the Gram matrix of the ok updates if read."""
        statistics = self.statistics
        assert statistics.norms is not None
        by_examples = self._terms.weights.kind == "reported" and self._weights.by_count
        reports: list[Report] = []
        for one, norm in zip(self.asked, statistics.norms.tolist(), strict=True):
            id_, reply = one.member.id, one.reply
            if reply.status == "ok":
                value = norm if statistics.gram is None else None
                examples = reply.examples if by_examples else None
                report = Report(id_, "ok", value, one.weight, "", examples, one.statement)
            else:
                report = Report(id_, reply.status, reason=reply.reason, statement=one.statement)
            reports.append(report)
        if statistics.gram is None:
            return reports, None
        ok = [k for k, one in enumerate(self.asked) if one.reply.status == "ok"]
        return reports, statistics.gram[np.ix_(ok, ok)]

    def _check(self, one: Asked) -> None:
        if len(one.replies) > 1:
            if not same_content(one.replies):
                one.reply = rejected("several different replies to one request")
                return
            log.warning("Verax: %s sent the same reply more than once", one.member.label)
        reported = self._terms.weights.kind == "reported"
        key = self._weights.count_key if reported else None
        statement = take_statement(one.message)
        one.reply = check_reply(one.message, one.sent, key, self._terms.weights)
        if self._signatures is not None:
            self._signatures.check(one, statement)
        if one.reply.status == "error":
            log.warning("Verax: %s: %s", one.member.label, shown(one.message.error.reason, 500))
        elif one.reply.status == "ok" and self._weights.loss_key is not None:
            try:
                loss_weight(self._weights, one.reply.content)
            except Exception as error:
                one.reply = rejected(error)

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
        norms = np.array([self._norm(one) for one in self.asked])
        gram = None
        if reads_gram and models:
            gram = np.zeros((count, count))
            places = [k for k, one in enumerate(self.asked) if one.reply.status == "ok"]
            replies = [self.asked[k].reply.arrays for k in places]
            model = next(iter(models.values())).charged
            gram[np.ix_(places, places)] = gram_of_updates(model, replies)
        self._measured = Statistics(norms, gram)

    def _norm(self, one: Asked) -> float:
        """‖reply − sent‖², or zero for a reply that does not count or cannot be measured."""
        if one.reply.status != "ok":
            return 0.0
        try:
            one.norm = float(squared_norms(one.sent.charged, [one.reply.arrays])[0])
        except Exception as error:
            one.reply = rejected(error)
            return 0.0
        if not math.isfinite(one.norm):
            one.reply = rejected("holds NaN or infinity, or is too large to measure")
            return 0.0
        return one.norm

    def weigh(self) -> None:
        """Set the weights of all that are ok; reject updates that cost more than a book holds."""
        highest = float(np.max(self._terms.price.at(self._round), initial=0.0))
        highest *= 10.0**self._terms.scale
        limit = min(_MAX_CHARGE / highest if highest else math.inf, _MAX_NORM)
        while ok := self.ok:
            names = [(one.member.id, one.member.label) for one in ok]
            counts = reply_counts(self._weights, self._terms, names, [one.reply for one in ok])
            total, effective = math.fsum(counts), effective_weights(counts).tolist()
            for one, count, counted in zip(ok, counts, effective, strict=True):
                one.weight, one.effective = count / total * len(ok), counted
            largest = max(ok, key=lambda one: one.effective_norm)
            if largest.effective_norm <= limit:
                return
            largest.reply = rejected(
                f"its squared norm exceeds the limit of {limit:.3g} at this price"
            )
