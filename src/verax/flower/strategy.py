"""`PaidStrategy`: any Flower strategy, with every round measured, priced and booked.

A round goes: the wrapped strategy says what is sent; replies are matched to requests, checked,
measured and weighed (`round`); the wrapped strategy aggregates those that count; the round is
posted to the ledger, which computes the payments through `verax.mechanism`; only then is the
aggregate handed on. If the post fails, the round ends in an error and the model stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from verax.flower.alarm import Alarm, norms_of
from verax.flower.checkpoints import Checkpoints
from verax.flower.identity import Identity, Member, Node, Roster, node_of
from verax.flower.replies import Sent, check_metrics, odd_layouts
from verax.flower.round import Asked, Collected, source_of
from verax.flower.weighing import weighing
from verax.ledger import Book, BookError, BookUnavailableError, Receipt, Report
from verax.ledger.money import format_units
from verax.mechanism import RULES, Terms

__all__ = ["PaidStrategy"]

_log = logging.getLogger("flwr.verax")


class PaidStrategy(Strategy):
    """Wraps a Message-API strategy so that its members pay by the terms.

    Args:
        strategy: FedAvg, FedMedian, Krum, FedAdam, one of Flower's differential-privacy wrappers, …
        ledger: a book, or its path or URL; made if it is not there.
        terms: the terms or the path of a `terms.toml`; may be left out for a federation that is in
            the book.
        federation: its name in the book.
        run: which training run this is in the book; default: Flower's run id. A run with the same
            name goes on where the book ends: nothing is charged twice.
        checkpoints: a folder for the model after each round; with it, and a `run`, a run that was
            killed goes on with the next round instead of the first.
        identity: `auto`: the key of nodes registered under a name, else the node id; or `key`, or
            `node`.
        patience: seconds to wait for nodes before a round ends in an error.
        alarm: what watches the norms.

    Example:
        >>> import tempfile, os
        >>> from flwr.serverapp.strategy import FedAvg
        >>> from verax.flower import PaidStrategy
        >>> from verax.mechanism import Price, Terms
        >>> book = os.path.join(tempfile.mkdtemp(), "book.db")
        >>> PaidStrategy(FedAvg(), terms=Terms(Price.constant(0.01)), ledger=book)
        PaidStrategy(FedAvg, squared-norm, 'federation')
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        ledger: Book | str | Path,
        terms: Terms | str | Path | None = None,
        federation: str = "federation",
        run: str | None = None,
        checkpoints: str | Path | None = None,
        identity: Identity = "auto",
        patience: float = 600.0,
        alarm: Alarm | None = None,
    ) -> None:
        super().__init__()
        self.strategy, self.federation = strategy, federation
        agreed = terms if terms is None or isinstance(terms, Terms) else Terms.load(terms)
        self.book = ledger if isinstance(ledger, Book) else Book.create(ledger)
        self.terms = _agree(self.book, federation, agreed)
        if RULES[self.terms.rule].statistic == "misreport":
            raise ValueError(
                f"rule {self.terms.rule} needs recomputed updates, which a server does not have; "
                "charge by squared-norm, squared-distance or groves-ledyard"
            )
        weighing(strategy, self.terms)  # refuses what cannot be weighed as the terms say
        self._run, self._folder = run, checkpoints
        self._identity: Identity = identity
        self._patience, self._alarm = patience, alarm or Alarm()
        self._roster: Roster | None = None
        self._asked: dict[int, list[Asked]] = {}
        self._arrays = ArrayRecord()
        self._done = 0  # rounds of the run that were done before this start

    def __repr__(self) -> str:
        inner = type(self.strategy).__name__
        return f"PaidStrategy({inner}, {self.terms.rule}, {self.federation!r})"

    @property
    def run(self) -> str:
        """The run's name in the book, known once a grid is."""
        if self._run is None:
            raise ValueError("the run has no name before its first round; give `run`")
        return self._run

    def summary(self) -> None:
        """Log the settings, then those of the wrapped strategy."""
        terms = self.terms
        _log.info("\t├──> Payments (Verax):")
        _log.info("\t│\t├── Rule: %s, weights: %s", terms.rule, terms.weights.kind)
        _log.info("\t│\t├── Price in round 1: %s %s", terms.price.at(1).tolist(), terms.currency)
        _log.info("\t│\t└── Federation: %r, run: %r", self.federation, self._run)
        self.strategy.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run all rounds, or those that the book does not have yet; see Flower's `Strategy.start`.

        `num_rounds` counts those done before a restart. The result's arrays are never empty: if no
        round changed the model they are the ones that it began with.
        """
        self._begin(grid)
        last = self.terms.price.rounds
        if last and num_rounds > last:
            raise ValueError(f"num_rounds is {num_rounds}, the terms have prices for {last} rounds")
        arrays = self._resume(initial_arrays)
        done = self._done
        judge = None if evaluate_fn is None else lambda t, a: evaluate_fn(t + done, a)
        if num_rounds <= done:
            _log.info("Verax: all %d rounds of run %r are in the book", num_rounds, self.run)
            return Result(arrays=arrays)
        result = super().start(
            grid, arrays, num_rounds - done, timeout, train_config, evaluate_config, judge
        )
        if not result.arrays:
            result.arrays = arrays
        for name in (
            "train_metrics_clientapp",
            "evaluate_metrics_clientapp",
            "evaluate_metrics_serverapp",
        ):
            by_round = getattr(result, name)
            setattr(result, name, {t + done: metrics for t, metrics in by_round.items()})
        return result

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What the wrapped strategy sends, to members only; who was asked what is kept."""
        self._begin(grid)
        round_ = self._done + server_round
        terms = self.book.terms(self.federation, round_)
        nodes = self._wait(grid, terms, "min_train_nodes")
        messages = list(self.strategy.configure_train(round_, arrays, config, grid))
        assert self._roster is not None
        members = self._roster.members(nodes, terms, round_)
        self._arrays = arrays
        sent: dict[int, Sent] = {}
        asked: list[Asked] = []
        kept: list[Message] = []
        for message in messages:
            member = members.get(message.metadata.dst_node_id)
            if member is None:
                continue
            if any(other.member.id == member.id for other in asked):
                raise ValueError(f"{member.label!r} is asked twice in round {round_}, must be once")
            records = list(message.content.array_records.values())
            record = records[0] if len(records) == 1 else arrays
            if id(record) not in sent:
                sent[id(record)] = Sent.of(record)
            asked.append(Asked(member, message.metadata, sent[id(record)]))
            kept.append(message)
        if messages and not asked:
            raise ValueError(
                f"none of the {len(messages)} nodes asked in round {round_} is a member; the terms "
                f"list {', '.join(terms.members)}, the book may hold them under other keys: "
                "`verax ledger balances` shows them"
            )
        self._refuse_unasked(terms, round_, members, asked)
        self._asked = {round_: sorted(asked, key=lambda one: one.member.id)}
        return kept

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check, measure, aggregate, book; then, and only then, hand the aggregate on."""
        round_ = self._done + server_round
        asked = self._asked.pop(round_, None)
        if asked is None:
            raise ValueError(f"round {round_} was not configured; call configure_train first")
        if not asked:
            return self.strategy.aggregate_train(round_, list(replies))
        terms = self.book.terms(self.federation, round_)
        collected = Collected(asked, weighing(self.strategy, terms), terms, round_)
        collected.take(replies)
        arrays, metrics = None, None
        if collected.ok:
            collected.fix_weights()
            arrays, metrics = self.strategy.aggregate_train(
                round_, [one.message for one in collected.ok]
            )
        if arrays is None:
            collected.nobody_counts()
        reports, gram = collected.reports()
        if self._folder is not None:
            after = self._arrays if arrays is None else arrays
            Checkpoints(self._folder, self.run).save(round_, after)
        receipt = self._post(round_, reports, gram)
        return arrays, self._tell(round_, asked, reports, receipt, metrics, terms)

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the wrapped strategy does, once enough nodes are there."""
        self._begin(grid)
        round_ = self._done + server_round
        if getattr(self.strategy, "fraction_evaluate", 1.0):
            self._wait(grid, self.book.terms(self.federation, round_), "min_evaluate_nodes")
        return self.strategy.configure_evaluate(round_, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's, of the replies whose metrics can be averaged at all."""
        round_ = self._done + server_round
        how = weighing(self.strategy, self.terms)
        kept: list[Message] = []
        errors: list[Message] = []
        for message in sorted(replies, key=lambda m: m.metadata.src_node_id):
            if message.has_error():
                errors.append(message)
                continue
            try:
                check_metrics(message.content, how.count_key)
                kept.append(message)
            except ValueError as error:
                _log.warning("Verax: evaluation by node %d left out: %s", source_of(message), error)
        odd = odd_layouts([message.content for message in kept])
        for message, reason in zip(kept, odd, strict=True):
            if reason:
                _log.warning(
                    "Verax: evaluation by node %d left out: %s", source_of(message), reason
                )
        fine = [message for message, reason in zip(kept, odd, strict=True) if not reason]
        return self.strategy.aggregate_evaluate(round_, [*fine, *errors])

    # Inside: before a round

    def _begin(self, grid: Grid) -> None:
        if self._roster is None:
            self._run = self._run or str(grid.run.run_id)
            self._roster = Roster(self.book, self.federation, self._run)
            for content in _rounds(self.book, self.federation, self._run):
                self._alarm.take(norms_of(content, self._names()))

    def _names(self) -> dict[int, str]:
        return {account.number: account.member for account in self.book.members(self.federation)}

    def _resume(self, initial: ArrayRecord) -> ArrayRecord:
        self._done = 0
        last = self.book.last_round(self.federation, self.run) or 0
        if not last:
            return initial
        kept = None
        if self._folder is not None:
            kept = Checkpoints(self._folder, self.run).load(last)
        if kept is None:
            _log.warning(
                "Verax: run %r has %d rounds in the book, but no checkpoint of round %d: it begins "
                "again with round 1. Rounds that repeat exactly are not charged again; a different "
                "one is refused, and needs a `run` of its own",
                self.run,
                last,
                last,
            )
            return initial
        if list(kept) != list(initial):
            raise ValueError(
                f"the checkpoint of run {self.run!r} is of another model; give the run another name"
            )
        _log.info("Verax: run %r goes on after round %d, the last in the book", self.run, last)
        self._done = last
        return kept

    def _wait(self, grid: Grid, terms: Terms, minimum: str) -> list[Node]:
        """The connected nodes, once there are as many as the strategy and the terms need."""
        assert self._roster is not None
        inner: Any = self.strategy
        while isinstance(getattr(inner, "strategy", None), Strategy):
            inner = inner.strategy
        fewest = max(getattr(inner, "min_available_nodes", 0), getattr(inner, minimum, 0))
        begin = time.monotonic()
        while True:
            nodes = [node_of(info, self._identity) for info in grid.get_nodes()]
            waiting = self._roster.waiting_for(nodes, terms)
            if len(nodes) >= fewest and not waiting:
                return nodes
            if time.monotonic() - begin > self._patience:
                raise TimeoutError(
                    f"after {self._patience:g} s {len(nodes)} nodes are connected, {fewest} are "
                    "needed"
                    + (f"; members not seen yet: {', '.join(waiting)}" if waiting else "")
                    + ". Start the missing SuperNodes, or `verax ledger join` members by their key"
                )
            time.sleep(min(0.2, self._patience))

    def _refuse_unasked(
        self, terms: Terms, round_: int, members: dict[int, Member], asked: Sequence[Asked]
    ) -> None:
        """In a closed federation the book counts whoever was not asked as missing."""
        if terms.members and terms.policy.missing != "excuse" and len(asked) < len(members):
            there = {one.member.id for one in asked}
            name = next(m.label for m in members.values() if m.id not in there)
            raise ValueError(
                f"{name!r} is connected but not asked in round {round_}, and policy.missing = "
                f'"{terms.policy.missing}" would charge it for that; ask all members '
                '(fraction_train = 1), or excuse (policy.missing = "excuse")'
            )

    # Inside: after a round

    def _post(
        self, round_: int, reports: Sequence[Report], gram: NDArray[np.float64] | None
    ) -> Receipt:
        try:
            receipt = self.book.post(self.federation, self.run, round_, reports, gram)
        except (BookError, BookUnavailableError, ValueError) as error:
            raise RuntimeError(
                f"round {round_} of run {self.run!r} was not booked, so its aggregate is not used "
                f"and the model stays: {error}. A run of its own needs a `run` name of its own"
            ) from error
        if not receipt.posted:
            _log.info("Verax: round %d was in the book already; nothing is charged again", round_)
        return receipt

    def _tell(
        self,
        round_: int,
        asked: Sequence[Asked],
        reports: Sequence[Report],
        receipt: Receipt,
        metrics: MetricRecord | None,
        terms: Terms,
    ) -> MetricRecord:
        """Norms, payments and balances as metrics and as lines of the log; alarms."""
        balances = self.book.balances(self.federation)
        charged = {one.member.id: one for one in asked}
        told = MetricRecord() if metrics is None else metrics
        by_id = {report.member: report for report in reports}
        alarms = self._alarm.take(
            {
                name: report.weight**2 * charged[name].norm
                for name, report in by_id.items()
                if report.status == "ok"
            }
        )
        _log.info("Verax: round %d in the book (record %d)", round_, receipt.sequence)
        for name, one in charged.items():
            label, unit = one.member.label, 10.0**terms.scale
            amount, balance = receipt.amounts.get(name, 0), balances.get(name, 0)
            if one.found.status == "ok":
                told[f"verax.norm.{label}"] = one.norm
            told[f"verax.payment.{label}"] = amount / unit
            told[f"verax.balance.{label}"] = balance / unit
            report = by_id.get(name)
            weight = 1.0 if report is None else report.weight
            words = f"squared norm {one.norm:.6g}" + (
                "" if weight == 1 else f", weight {weight:.4g}"
            )
            if one.found.status != "ok":
                words = f"{one.found.status}: {one.found.reason}"
            level = logging.INFO if one.found.status == "ok" else logging.WARNING
            paid = format_units(amount, terms.scale, terms.currency)
            owed = format_units(balance, terms.scale)
            _log.log(level, "\t%s: %s; pays %s, owes %s", label, words, paid, owed)
            if name in alarms:
                _log.warning("Verax ALARM: %s sent %s", label, alarms[name])
        told["verax.alarms"] = len(alarms)
        told["verax.counted"] = sum(one.found.status == "ok" for one in asked)
        return told


def _rounds(book: Book, federation: str, run: str) -> Iterable[dict[str, Any]]:
    for record in book.records(federation):
        content = record.content
        if content["kind"] == "round" and content["run"] == run:
            yield content


def _agree(book: Book, federation: str, terms: Terms | None) -> Terms:
    """The terms in the book, once they are the ones given."""
    if federation not in book.federations():
        if terms is None:
            raise ValueError(f"{federation!r} is not in the book; give its `terms`")
        book.found(federation, terms)
        return terms
    versions = [version.terms for version in book.versions(federation)]
    if terms is None:
        return versions[-1]
    if terms not in versions:
        raise ValueError(
            f"{federation!r} is in the book with other terms; `verax ledger terms` changes them "
            "from a round on, or give the federation another name"
        )
    return terms
