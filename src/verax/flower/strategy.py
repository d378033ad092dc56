"""`PaidStrategy`: any Flower strategy, with every round measured, charged and booked.

In each round the wrapped strategy decides what is sent to members; replies are matched with
requests, checked, measured and weighed (`verax.flower.round`); the wrapped strategy aggregates
those that count; the round is posted to the ledger, which computes the payments by
`verax.mechanism`; only then is the aggregate returned. If the post fails, the round ends with an
error and the model stays unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from verax.flower.aggregation import aggregate
from verax.flower.agreement import agreed_terms, check_chargeable
from verax.flower.alarm import Alarm, norms_of
from verax.flower.checkpoints import Checkpoints, Gram, check_run_name, resumed_model
from verax.flower.digest import record_digest
from verax.flower.evaluation import evaluations
from verax.flower.evidence import ServerEvidence, digest_before
from verax.flower.fit import check_norms, check_rounds
from verax.flower.identity import Identity, Member, Node, Roster, node_of
from verax.flower.log import log
from verax.flower.matching import Asked, Request, identified, match_replies
from verax.flower.members_only import MembersOnly
from verax.flower.outcome import log_round, round_metrics, tracked_values
from verax.flower.prescribing import common_config, with_seeds
from verax.flower.replies import SentModel
from verax.flower.round import Collected
from verax.flower.trackers import Tracker, Trackers
from verax.flower.unpaid import is_unpaid
from verax.flower.weighing import innermost, reply_weights
from verax.ledger import Book, BookError, BookUnavailableError, Receipt, Report
from verax.ledger.round import Models
from verax.mechanism import Terms

_POLL_SECONDS = 0.2


class PaidStrategy(Strategy):
    """Wraps a strategy of Flower's Message API so that its members pay by the terms.

    Args:
        strategy: FedAvg, FedMedian, Krum, FedAdam, one of Flower's differential-privacy wrappers, …
        ledger: a book, or its path or URL; the book is created if it does not exist.
        terms: the terms or the path of a `terms.toml`; may be left out for a federation that is in
            the book, and must be the newest there.
        federation: its name in the book.
        run: the name of this training run in the book; by default Flower's run id. A run with the
            same name resumes where the book ends: nothing is charged twice.
        checkpoints: a folder for the model after each round; with it and a `run`, a run that was
            killed resumes with the next round instead of the first.
        identity: `auto`: the key of nodes registered under a name, else the node id; or `key`, or
            `node`.
        patience: the seconds to wait for nodes before a round ends with an error.
        alarm: raises alarms for sudden changes of norms.
        key: the operator's private key (PEM) for receipts, if the terms name its public key.
        trackers: get norms, payments and balances after each round (`verax.flower.trackers`).

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
        key: str | Path | None = None,
        trackers: Iterable[Tracker] = (),
    ) -> None:
        super().__init__()
        self.strategy, self.federation = strategy, federation
        self._unpaid = is_unpaid()
        if self._unpaid:
            return  # an audit is running the app: no book is opened, and nobody is charged
        if run is not None:
            check_run_name(run)
        given = terms if terms is None or isinstance(terms, Terms) else Terms.load(terms)
        if given is not None:
            check_chargeable(strategy, given)  # before a book is created with them
        self.book = ledger if isinstance(ledger, Book) else Book.create(ledger)
        self.terms = agreed_terms(self.book, federation, given)
        check_chargeable(strategy, self.terms)
        self._evidence = ServerEvidence(self.book, federation, key)
        self._evidence.receipts.check_key(self.terms)
        if self.terms.audited is None:
            log.info("Verax: the terms have no [audited]: nothing says what they were audited for")
        self._run, self._folder = run, checkpoints
        self._checkpoints: Checkpoints | None = None
        self._identity: Identity = identity
        self._patience, self._alarm = patience, alarm or Alarm()
        self._trackers = Trackers(trackers)
        self._run_roster: Roster | None = None
        self._asked: dict[int, list[Asked]] = {}
        self._evaluating: dict[int, list[Request]] = {}
        self._arrays, self._before = ArrayRecord(), ""
        self._completed = 0  # rounds of the run that an earlier start completed

    def __repr__(self) -> str:
        inner = type(self.strategy).__name__
        return f"PaidStrategy({inner}, {self.terms.rule}, {self.federation!r})"

    @property
    def run(self) -> str:
        """The run's name in the book."""
        if self._run is None:
            raise ValueError("the run has no name before its first round; give `run`")
        return self._run

    @property
    def _roster(self) -> Roster:
        if self._run_roster is None:
            raise ValueError("the run has not begun; call `start` or `configure_train` first")
        return self._run_roster

    def summary(self) -> None:
        """Log the settings, then those of the wrapped strategy."""
        terms = self.terms
        log.info("\t├──> Payments (Verax):")
        log.info("\t│\t├── Rule: %s, weights: %s", terms.rule, terms.weights.kind)
        log.info("\t│\t├── Price in round 1: %s %s", terms.price.at(1).tolist(), terms.currency)
        log.info("\t│\t└── Federation: %r, run: %r", self.federation, self._run)
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
        """Run all rounds that the book does not have yet; see Flower's `Strategy.start`.

        `num_rounds` includes the rounds that an earlier start completed. If no round changed the
        model, the result's arrays are the initial ones.
        """
        if self._unpaid:
            rest = (num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
            return self.strategy.start(grid, initial_arrays, *rest)
        self._begin(grid)
        check_rounds(self.terms, num_rounds)
        arrays = self._resume(initial_arrays)
        before = self._completed
        evaluate = None if evaluate_fn is None else lambda t, a: evaluate_fn(t + before, a)
        if num_rounds <= before:
            log.info("Verax: all %d rounds of run %r are in the book", num_rounds, self.run)
            return Result(arrays=arrays)
        result = super().start(
            grid, arrays, num_rounds - before, timeout, train_config, evaluate_config, evaluate
        )
        if not result.arrays:
            result.arrays = arrays
        for name in (
            "train_metrics_clientapp",
            "evaluate_metrics_clientapp",
            "evaluate_metrics_serverapp",
        ):
            by_round = getattr(result, name)
            setattr(result, name, {t + before: metrics for t, metrics in by_round.items()})
        return result

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages to members; remembers who was asked and what was sent."""
        self._begin(grid)
        round_ = self._completed + server_round
        terms = self.book.terms(self.federation, round_, self.run)
        check_chargeable(self.strategy, terms)
        nodes = self._wait_for_nodes(grid, terms, "min_train_nodes")
        members = self._roster.members(nodes, terms, round_)
        view = MembersOnly(grid, members)
        messages = view.to_members(self.strategy.configure_train(round_, arrays, config, view))
        self._arrays = arrays
        models: dict[int, SentModel] = {}
        asked: list[Asked] = []
        for message in messages:
            member = members[message.metadata.dst_node_id]
            if any(other.member.id == member.id for other in asked):
                raise ValueError(f"{member.label!r} is asked twice in round {round_}, must be once")
            records = list(message.content.array_records.items())
            own = getattr(innermost(self.strategy), "arrayrecord_key", "arrays")
            name, record = records[0] if len(records) == 1 else (own, arrays)
            if id(record) not in models:
                models[id(record)] = SentModel.of(name, record, terms.arrays)
            asked.append(Asked(member, message.metadata, models[id(record)]))
        self._refuse_unasked(terms, round_, members, asked)
        self._before = digest_before(terms, models.values(), arrays)
        if asked:  # from now on the terms of this round are fixed
            sent = None if terms.spot is None else common_config(messages)
            self.book.open_round(self.federation, self.run, round_, sent)
            if terms.spot is not None:
                opening = self.book.opening(self.federation, self.run, round_)
                messages = with_seeds(messages, members, opening)
        self._asked = {round_: asked}
        count_key = reply_weights(self.strategy, terms).count_key
        return self._evidence.requests(messages, members, self.run, round_, count_key)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check, measure, aggregate and book; the aggregate is returned only after the post."""
        round_ = self._completed + server_round
        asked = self._asked.pop(round_, None)
        if asked is None:
            raise ValueError(f"round {round_} was not configured; call configure_train first")
        if not asked:
            return self.strategy.aggregate_train(round_, list(replies))
        terms = self.book.terms(self.federation, round_, self.run)
        match_replies(asked, replies, round_)
        asked = identified(asked, self._roster, terms, round_)
        self._evidence.receipts.delivered(one.member.id for one in asked if one.replies)
        weights = reply_weights(self.strategy, terms)
        signatures = self._evidence.signatures(self.run, round_, self._before, weights.count_key)
        collected = Collected(asked, weights, terms, round_, signatures)
        collected.receive()
        check_norms(terms, round_, collected.ok)
        arrays, metrics = aggregate(self.strategy, round_, collected)
        if arrays is None:
            collected.discard_all()
        reports, gram = collected.reports()
        receipt = self._post(round_, reports, gram, self._arrays if arrays is None else arrays)
        self._evidence.receipts.add((one.member.id for one in asked), receipt.sequence)
        balances = self.book.balances(self.federation)
        alarms = self._alarm.update({one.member.id: one.effective_norm for one in collected.ok})
        log_round(round_, asked, receipt, balances, alarms, terms)
        self._trackers.log(round_, tracked_values(asked, receipt, balances, alarms, terms))
        return arrays, round_metrics(asked, receipt, balances, alarms, metrics, terms)

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages to members, once enough of them are connected."""
        self._begin(grid)
        round_ = self._completed + server_round
        if not getattr(innermost(self.strategy), "fraction_evaluate", 1.0):
            return []
        terms = self.book.terms(self.federation, round_)
        nodes = self._wait_for_nodes(grid, terms, "min_evaluate_nodes")
        members = self._roster.listed(nodes, terms)
        view = MembersOnly(grid, members)
        messages = view.to_members(self.strategy.configure_evaluate(round_, arrays, config, view))
        self._evaluating = {
            round_: [Request(members[m.metadata.dst_node_id], m.metadata) for m in messages]
        }
        return self._evidence.requests(messages, members, self.run, round_, None)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's result, from the members' replies that can be averaged."""
        round_ = self._completed + server_round
        asked = self._evaluating.pop(round_, [])
        match_replies(asked, replies, round_)
        self._evidence.receipts.delivered(one.member.id for one in asked if one.replies)
        weights = reply_weights(self.strategy, self.terms)
        valid = evaluations(asked, weights.count_key, self.terms.weights)
        try:
            return self.strategy.aggregate_evaluate(round_, valid)
        except Exception as error:  # metrics are the members' words: they must not end a run
            log.warning("Verax: evaluation of round %d failed: %s", round_, error)
            return None

    # Before a round

    def _begin(self, grid: Grid) -> None:
        """On the first call, name the run and give the alarm the rounds that are in the book."""
        if self._run_roster is not None:
            return
        self._run = self._run or str(grid.run.run_id)
        self._run_roster = Roster(self.book, self.federation, self._run)
        if self._folder is not None:
            self._checkpoints = Checkpoints(self._folder, self._run)
        if not self.book.last_round(self.federation, self._run):
            return
        names = {account.number: account.member for account in self.book.members(self.federation)}
        last: tuple[Sequence[str], int] = ((), 0)
        for record in self.book.records(self.federation):
            content = record.content
            if content["kind"] == "round" and content["run"] == self._run:
                self._alarm.update(norms_of(content, names))
                last = [names[number] for number in content["accounts"]], record.sequence
        self._evidence.receipts.add(*last)

    def _resume(self, initial: ArrayRecord) -> ArrayRecord:
        """The model after the last round in the book, if it is stored; else the initial one."""
        self._completed = 0
        last = self.book.last_round(self.federation, self.run) or 0
        if not last:
            return initial
        if self._checkpoints is not None:
            self._checkpoints.recover(last, lambda *reported: self._is_booked(last, *reported))
        stored = resumed_model(self._checkpoints, self.run, last, initial)
        if stored is None:
            return initial
        self._completed = last
        return stored

    def _wait_for_nodes(self, grid: Grid, terms: Terms, minimum: str) -> list[Node]:
        """Wait until as many nodes are connected as the strategy and the terms need."""
        inner = innermost(self.strategy)
        fewest = max(getattr(inner, "min_available_nodes", 0), getattr(inner, minimum, 0))
        deadline = time.monotonic() + self._patience
        while True:
            nodes = [node_of(info, self._identity) for info in grid.get_nodes()]
            absent = self._roster.not_connected(nodes, terms)
            count = len(self._roster.listed(nodes, terms))
            if count >= fewest and not absent:
                return nodes
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {self._patience:g} s {count} nodes are connected, {fewest} are "
                    "needed"
                    + (f"; members not seen yet: {', '.join(absent)}" if absent else "")
                    + self._strangers(len(nodes) - count, terms)
                    + ". Start the missing SuperNodes, or `verax ledger join` members by their key"
                )
            time.sleep(min(_POLL_SECONDS, self._patience))

    def _strangers(self, count: int, terms: Terms) -> str:
        if not count:
            return ""
        return (
            f"; {count} more nodes are not members: the terms list {', '.join(terms.members)}, and "
            "the book may have them under other keys (`verax ledger balances`)"
        )

    def _refuse_unasked(
        self, terms: Terms, round_: int, members: dict[int, Member], asked: Sequence[Asked]
    ) -> None:
        """In a closed federation, refuse to charge a member as missing that was not asked."""
        if terms.members and terms.policy.missing != "excuse" and len(asked) < len(members):
            ids = {one.request.dst_node_id for one in asked}
            name = next(member.label for node, member in members.items() if node not in ids)
            raise ValueError(
                f"{name!r} is connected but not asked in round {round_}, and policy.missing = "
                f'"{terms.policy.missing}" would charge it for that; ask all members '
                '(fraction_train = 1), or excuse (policy.missing = "excuse")'
            )

    # After a round

    def _post(
        self, round_: int, reports: Sequence[Report], gram: Gram, after: ArrayRecord
    ) -> Receipt:
        """Book the round, with the model after it stored before and named after the post."""
        models = Models(self._before, record_digest(after))
        if self._checkpoints is not None:
            self._checkpoints.stage(round_, after, reports, gram, models)
        try:
            receipt = self.book.post(self.federation, self.run, round_, reports, gram, models)
        except (BookError, BookUnavailableError, ValueError) as error:
            if self._checkpoints is not None:
                self._checkpoints.discard(round_)
            raise RuntimeError(
                f"round {round_} of run {self.run!r} was not booked, so its aggregate is not used "
                f"and the model stays unchanged: {error}. A different run needs a different `run` "
                "name"
            ) from error
        if self._checkpoints is not None:
            self._checkpoints.promote(round_)
        if not receipt.posted:
            log.info("Verax: round %d was in the book already; nothing is charged again", round_)
        return receipt

    def _is_booked(self, round_: int, reports: list[Report], gram: Gram, models: Models) -> bool:
        """Whether a round that is in the book has these reports: then a post changes nothing."""
        try:
            known = self.book.post(self.federation, self.run, round_, reports, gram, models)
            return not known.posted
        except (BookError, ValueError):
            return False
