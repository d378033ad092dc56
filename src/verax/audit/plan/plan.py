"""The plan of an audit: everything that decides its numbers, as one value and one TOML file.

Each setting is declared once, below, with its type, default, meaning and check; command line, TOML
and keyword arguments follow from the declaration. Three sets of seeds are used: one sets the
prices, one chooses among them, one judges. What is tried stands in `deviations.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from verax import documents
from verax.audit.plan.deviations import DeviationPlan
from verax.documents import option
from verax.game import Reporting, Reward, Valued, reward_of
from verax.mechanism import Blocks, Rule, refined_blocks, rule_named
from verax.mechanism.profile import FLOOR
from verax.mechanism.rules import rule_text

if TYPE_CHECKING:
    from verax.learning import Aggregator, Protocol

#: No audit runs longer; more is a slip of the keyboard.
MOST_ROUNDS = 1_000_000
MOST_CLIENTS = 100_000

#: Rounds and steps that a protocol has unless others are given. FedAvg with local epochs is what
#: federations do; FedSGD is the paper's setting. On the embedded digits training is then nearly
#: finished.
_ROUNDS = {"fedavg": 30, "fedsgd": 1000}
_STEPS = {"fedavg": 0.3, "fedsgd": 0.06}


#: Rules that are judged unless others are given. Under FedSGD with a few clients smoothed norms are
#: added; they take memory for a message of every client.
_RULES = ("squared-norm", "squared-distance", "groves-ledyard", "spot-audit")
_SMOOTHED = 10


def _words(own: dict[str, Any]) -> str:
    return ", ".join(f"{value:g} for {kind}" for kind, value in own.items())


@dataclass(frozen=True)
class TaskPlan:
    """Data and model."""

    name: str = option(
        "digits", "The task: digits, cancer, femnist, shakespeare, sent140 or module:name.", "task"
    )
    data: str = option("", "LEAF's folder with train/ and test/.")
    encoder: str = option("", "A text encoder's folder, for sent140.")
    clients: int = option(3, "N, the number of clients.")
    model: str = option("", "mlp or softmax; cnn or cnn-grey; … Empty: the task's own.")
    split: str = option(
        "",
        "How data are split: dirichlet, iid, by-size, by-label; for LEAF's users shuffled, "
        "by-order, by-similarity, users. Empty: the task's own.",
    )
    alpha: float = option(1.0, "Of the Dirichlet split.")
    partition_seed: int = option(0, "Of the split.")
    test_samples: int = option(0, "Judge by at most so many samples of each client; 0: by all.")

    def __post_init__(self) -> None:
        _within("clients", self.clients, 2, MOST_CLIENTS, "one client has no others")
        _within("test-samples", self.test_samples, 0)


@dataclass(frozen=True)
class AppPlan:
    """A Flower app, audited as it is instead of a task; it decides how the federation trains."""

    folder: str = option("", "A Flower app's folder: audit the app as it is, not a task.", "app")
    run_config: str = option("", 'What to override, as flwr run takes it: "lr=0.01 epochs=2".')
    members: str = option("", "Names of the app's members by partition, as in north,south,east.")
    metric: str = option(
        "", "The reward: a metric of the app's evaluation; NAME:up if more is better."
    )
    seed_key: str = option(
        "", "The key of the app's own seed in its configuration, which the replicas then set."
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, if they were given."""
        return tuple(name.strip() for name in self.members.split(",") if name.strip())


@dataclass(frozen=True)
class ProtocolPlan:
    """How the federation trains."""

    kind: str = option("fedavg", "fedavg, or fedsgd as in the paper.", "protocol")
    rounds: int = option(0, f"T, the number of rounds; 0: {_words(_ROUNDS)}.")
    step: float = option(0.0, f"γ, the learning rate; 0: {_words(_STEPS)}.")
    batch: int = option(32, "Samples per gradient.")
    epochs: int = option(0, "Local epochs of FedAvg; 0: one, unless local steps are given.")
    local_steps: int = option(0, "L of FedAvg, instead of epochs.")
    aggregator: str = option("mean", "mean, median, krum:1, trimmed-mean:0.2, … or module:name.")
    participation: float = option(1.0, "Share of the clients in a round.")

    def __post_init__(self) -> None:
        if self.rounds:
            _within("rounds", self.rounds, 1, MOST_ROUNDS)
        self.make(self.aggregator)

    def make(self, aggregator: str = "") -> Protocol:
        """The protocol, with its own or another aggregator."""
        from verax.learning import Protocol

        epochs = self.epochs
        if self.kind == "fedavg" and not self.local_steps:
            epochs = epochs or 1
        return Protocol(
            kind=self.kind,  # pyright: ignore[reportArgumentType]
            step=self.step or _STEPS.get(self.kind, 1.0),
            batch=self.batch,
            local_steps=self.local_steps or 1,
            epochs=epochs,
            aggregator=_aggregator(aggregator or self.aggregator),
            participation=self.participation,
        )


@dataclass(frozen=True)
class PricePlan:
    """Which rules and prices are judged, and how."""

    rules: tuple[str, ...] = option(
        (),
        "A rule to judge, built in or module:name; may be repeated. Terms are proposed for the "
        "first one. Empty: squared-norm, then all others that fit.",
        "rules",
    )
    robust: tuple[str, ...] = option(
        (), "An aggregator to compare, without payments, as in median or krum:1; may be repeated."
    )
    reward: str = option("own", "own, logistic, group:G1,G2,…, rivalry:ALPHA,BETA or module:name.")
    worth: tuple[float, ...] = option(
        (1.0,),
        "What a unit of the reward is worth in money: one number for all, or one per client.",
    )
    currency: str = option("credits", "The currency of worth, prices and gains.")
    tolerance: float = option(0.01, "ε as a share of the honest reward's size.")
    probe: float = option(0.3, "h: probes scale the messages of a block by 1 + h and 1 − h.")
    floor: float = option(
        FLOOR, "The least price of a client in a block, as a share of the clients' mean price."
    )
    per_halving: int = option(1, "How finely blocks of rounds are refined toward the end.")

    def __post_init__(self) -> None:
        for name in self.rules:
            rule_named(name)
        for name in self.robust:
            _aggregator(name)
        if not self.worth or not all(math.isfinite(v) and v > 0 for v in self.worth):
            raise ValueError(
                f"worth is {list(self.worth)}, must be finite numbers > 0: one for all, or one per "
                "client"
            )
        if not self.currency.strip():
            raise ValueError("currency is empty, must be a label such as EUR")
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise ValueError(f"tolerance is {self.tolerance:g}, must be a finite number > 0")
        if not 0 < self.probe < 1:
            raise ValueError(f"probe is {self.probe:g}, must be between 0 and 1")
        if not 0 <= self.floor < 1:
            raise ValueError(f"floor is {self.floor:g}, must be at least 0 and below 1")
        _within("per-halving", self.per_halving, 1, 16)


@dataclass(frozen=True)
class SeedPlan:
    """Replicas, three sets: what is chosen by looking at some is judged on others."""

    set: int = option(5, "Replicas that set the prices.", "setting_seeds")
    choose: int = option(
        2, "Other replicas, which choose the kind of price and its multiple.", "choosing_seeds"
    )
    judge: int = option(5, "Further replicas, which judge.", "judging_seeds")
    first: int = option(0, "Number of the first replica.", "first_seed")

    def __post_init__(self) -> None:
        if self.set < 1 or self.choose < 1 or self.judge < 2:
            raise ValueError(
                f"seeds are {self.set} to set the price, {self.choose} to choose and {self.judge} "
                "to judge, must be at least 1, 1 and 2: intervals need two"
            )

    @property
    def setting(self) -> range:
        """Replicas that set the prices."""
        return range(self.first, self.first + self.set)

    @property
    def choosing(self) -> range:
        """Replicas that choose among prices; none of them has set one."""
        return range(self.setting.stop, self.setting.stop + self.choose)

    @property
    def judging(self) -> range:
        """Replicas that judge; none of them has set or chosen a price."""
        return range(self.choosing.stop, self.choosing.stop + self.judge)

    @property
    def trying(self) -> range:
        """Replicas on which misreports are tried: those that choose, then those that judge."""
        return range(self.choosing.start, self.judging.stop)


@dataclass(frozen=True)
class RecordPlan:
    """What is recorded besides."""

    evaluate_every: int = option(0, "Evaluate also after every so many rounds; 0: at the end.")
    distances: bool = option(
        False,
        "Where many clients are streamed, also record distances to the mean: twice the time.",
    )

    def __post_init__(self) -> None:
        _within("evaluate-every", self.evaluate_every, 0)


@dataclass(frozen=True)
class Plan:
    """What is tried, on what, and how it is judged.

    Example:
        >>> Plan.of(rounds=60, scales=(0.5, 1, 2)).rounds
        60
    """

    task: TaskPlan = field(default_factory=TaskPlan)
    app: AppPlan = field(default_factory=AppPlan)
    protocol: ProtocolPlan = field(default_factory=ProtocolPlan)
    deviations: DeviationPlan = field(default_factory=DeviationPlan)
    prices: PricePlan = field(default_factory=PricePlan)
    seeds: SeedPlan = field(default_factory=SeedPlan)
    record: RecordPlan = field(default_factory=RecordPlan)

    def __post_init__(self) -> None:
        N = self.task.clients
        wrong = [i for i in self.deviations.clients if not 0 <= i < N]
        if wrong:
            raise ValueError(f"client {wrong[0]} does not exist, clients are 0 … {N - 1}")
        if len(self.app.names) not in (0, N):
            raise ValueError(f"members are {len(self.app.names)} names, must be {N}, one a client")
        for name in (self.protocol.aggregator, *self.prices.robust):
            _aggregator(name).check(N)
        reward_of(self.prices.reward, N)
        if len(self.prices.worth) not in (1, N):
            raise ValueError(
                f"worth has {len(self.prices.worth)} numbers for {N} clients, must have 1 or {N}"
            )
        if not self.tried:
            raise ValueError("nothing is tried: the grid holds honesty alone; add a scale")

    @classmethod
    def of(cls, **options: Any) -> Plan:
        """A plan from options by their names on the command line, with underscores."""
        return cls().changed(**options)

    def changed(self, **options: Any) -> Plan:
        """The plan with some options changed.

        Rules, aggregators, reportings and rewards may be given as objects; the plan keeps their
        names.
        """
        known = {one.name: one for one in documents.options(Plan)}
        sections: dict[str, dict[str, Any]] = {}
        for name, value in options.items():
            if name not in known:
                raise ValueError(f"unknown option {name!r}, must be one of {', '.join(known)}")
            section, own = known[name].path
            if isinstance(known[name].default, tuple):
                alone = isinstance(value, str) or not isinstance(value, Iterable)
                value = tuple(_named(one) for one in ([value] if alone else value))
            sections.setdefault(section, {})[own] = _named(value)
        return replace(
            self, **{name: replace(getattr(self, name), **own) for name, own in sections.items()}
        )

    @property
    def rounds(self) -> int:
        """T."""
        return self.protocol.rounds or _ROUNDS[self.protocol.kind]

    @property
    def deviators(self) -> tuple[int, ...]:
        """Who deviates, one at a time."""
        return self.deviations.clients or tuple(range(self.task.clients))

    @property
    def tried(self) -> list[Reporting]:
        """Every misreport that is tried."""
        return self.deviations.reportings_tried(self.blocks)

    @property
    def reward(self) -> Reward:
        """What the final model is worth to each client, in money."""
        return Valued(reward_of(self.prices.reward, self.task.clients), self.prices.worth)

    @property
    def rules(self) -> list[Rule]:
        """The rules that are judged."""
        few = self.task.clients <= _SMOOTHED and not self.app.folder
        smoothed = ("smoothed-norm",) if few and self.protocol.kind == "fedsgd" else ()
        return [rule_named(name) for name in self.prices.rules or (*_RULES, *smoothed)]

    @property
    def smooths(self) -> bool:
        """Whether a rule reads the norms of moving averages, which are then recorded."""
        return any(rule.reads == "smoothed" for rule in self.rules)

    @property
    def blocks(self) -> Blocks:
        """The blocks of rounds over which prices are set."""
        return refined_blocks(self.rounds, self.prices.per_halving)

    def to_toml(self) -> str:
        """The TOML form."""
        return documents.to_toml(self)

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Read the TOML form; what is left out has its default, what is unknown is refused."""
        return documents.from_toml(cls, text)


def _aggregator(text: str) -> Aggregator:
    # JAX takes a second to load, and `verax --help` reads the declarations above.
    from verax.learning import aggregator_of

    return aggregator_of(text)


def _named(value: Any) -> Any:
    """The text of a rule, aggregator, reporting or reward; any other value as it is."""
    if isinstance(value, str | int | float | Iterable):
        return value
    if isinstance(value, Reporting):
        return value.text
    if hasattr(value, "measure"):
        return rule_text(value)
    return value.name if hasattr(value, "name") else value


def _within(name: str, value: int, low: int, high: float = math.inf, why: str = "") -> None:
    if not low <= value <= high:
        limit = f"≥ {low}" if math.isinf(high) else f"{low} … {high:,}"
        raise ValueError(f"{name} is {value:,}, must be {limit}" + (f": {why}" if why else ""))
