"""The plan of an audit: everything that decides its numbers, as one value and one TOML file.

Deviations are tried against honest others: constant scales (as in the paper), two phases
(under-report early, over-report late), surges in the last rounds down to the very last, noise, and
any other reporting that is listed. Two sets of seeds: one sets the price profile, the other judges.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, replace
from typing import Any

import tomli_w

from verax.fields import Fields
from verax.game import (
    GroupLoss,
    LogisticReward,
    OwnLoss,
    Reporting,
    Reward,
    Rivalry,
    ScaleAndNoise,
    Timed,
    from_json,
)
from verax.learning import (
    Aggregator,
    Clipped,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    Protocol,
    TrimmedMean,
    WeightedMean,
)

__all__ = ["AGGREGATORS", "REWARDS", "Plan", "aggregator_of"]

REWARDS = ("own", "logistic", "group", "rivalry")
AGGREGATORS = (
    "mean",
    "weighted-mean:W1,W2,…",
    "median",
    "trimmed-mean:SHARE",
    "krum:LIARS",
    "multi-krum:LIARS,KEEP",
    "geometric-median",
    "clipped:BOUND",
)


@dataclass(frozen=True)
class Plan:
    """What is tried.

    Attributes:
        task: a name in `verax.tasks.TASKS`, or that of a task given as an object.
        data: LEAF's folder, for tasks that are read from one.
        encoder: the text encoder's folder, for sent140.
        clients: N, for tasks that split their data themselves.
        model: of the task; empty: its own.
        split: how data are split among clients; empty: the task's own way.
        alpha: of the Dirichlet split.
        partition_seed: of the split.
        protocol: "fedsgd" or "fedavg".
        step: γ.
        batch: samples per gradient.
        local_steps: L of FedAvg.
        aggregator: one of `AGGREGATORS`.
        participation: share of clients in a round.
        rounds: T.
        deviating: which clients deviate, one at a time; empty: each.
        scales: constant a; 1 is honesty and must be among them.
        phases: (a_early, a_late, share of the rounds after which it switches).
        surges: a in the last rounds, honest before.
        surge_rounds: how many last rounds.
        noises: sizes b of noise at a = 1.
        reportings: others, each as JSON (see `verax.game.reporting`).
        robust: aggregators to run besides, without payment, for comparison.
        reward: one of `REWARDS`.
        reward_options: of the reward: group numbers, or (α, β) of rivalry.
        tolerance: ε as a share of the honest reward's size (for `own`: of the honest loss).
        setting_seeds: replicas that set the price profile.
        judging_seeds: replicas that judge.
        first_seed: number of the first replica.
        per_halving: how finely blocks are refined toward the end.
        test_samples: judge by at most so many samples of each client, drawn once; 0: by all.
        evaluate_every: evaluate the model also after every so many rounds; 0: only at the end.
        distances: of so many clients that rounds are streamed, also record how far each message
            lies from the others' mean, so that rules on distances are judged: twice the time.
    """

    task: str = "digits"
    data: str = ""
    encoder: str = ""
    clients: int = 3
    model: str = ""
    split: str = ""
    alpha: float = 1.0
    partition_seed: int = 0
    protocol: str = "fedsgd"
    step: float = 0.06
    batch: int = 32
    local_steps: int = 1
    aggregator: str = "mean"
    participation: float = 1.0
    rounds: int = 1000
    deviating: tuple[int, ...] = ()
    scales: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0, 5.0)
    phases: tuple[tuple[float, float, float], ...] = (
        (0.0, 1.0, 0.5),
        (0.5, 1.0, 0.5),
        (0.5, 2.0, 0.5),
        (0.5, 5.0, 0.5),
        (0.0, 5.0, 0.9),
        (0.5, 5.0, 0.9),
    )
    surges: tuple[float, ...] = (0.0, 2.0, 5.0, 10.0)
    surge_rounds: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 200, 500)
    noises: tuple[float, ...] = (0.5, 2.0)
    reportings: tuple[str, ...] = ()
    robust: tuple[str, ...] = ()
    reward: str = "own"
    reward_options: tuple[float, ...] = ()
    tolerance: float = 0.01
    setting_seeds: int = 6
    judging_seeds: int = 6
    first_seed: int = 0
    per_halving: int = 1
    test_samples: int = 0
    evaluate_every: int = 0
    distances: bool = False

    def __post_init__(self) -> None:
        if self.clients < 2:
            raise ValueError(f"clients is {self.clients}, must be ≥ 2: one client has no others")
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}, must be ≥ 1")
        if not self.scales:
            raise ValueError("the grid of scales is empty; give at least 1 and one other scale")
        if 1.0 not in self.scales:
            raise ValueError(f"the grid of scales {self.scales} lacks 1, which is honesty")
        if not self.deviations():
            raise ValueError("nothing is tried: the grid holds honesty alone; add a scale")
        if self.setting_seeds < 1 or self.judging_seeds < 2:
            raise ValueError(
                f"seeds are {self.setting_seeds} to set the price and {self.judging_seeds} to "
                "judge, must be at least 1 and 2: intervals need two"
            )
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise ValueError(f"tolerance is {self.tolerance:g}, must be a finite number > 0")
        if self.test_samples < 0:
            raise ValueError(f"test-samples is {self.test_samples}, must be ≥ 0")
        if self.evaluate_every < 0:
            raise ValueError(f"evaluate-every is {self.evaluate_every}, must be ≥ 0")
        wrong = [i for i in self.deviating if not 0 <= i < self.clients]
        if wrong:
            raise ValueError(
                f"client {wrong[0]} does not exist, clients are 0 … {self.clients - 1}"
            )
        self.make_protocol()
        self.make_reward()
        for name in self.robust:
            aggregator_of(name)

    @property
    def deviators(self) -> tuple[int, ...]:
        """Who deviates, one at a time."""
        return self.deviating or tuple(range(self.clients))

    @property
    def seeds_to_set(self) -> range:
        """Replicas that set the price profile."""
        return range(self.first_seed, self.first_seed + self.setting_seeds)

    @property
    def seeds_to_judge(self) -> range:
        """Replicas that judge; none of them has set the price."""
        begin = self.first_seed + self.setting_seeds
        return range(begin, begin + self.judging_seeds)

    def deviations(self) -> list[Reporting]:
        """Everything that is tried, honesty aside, each once."""
        found: list[Reporting] = [ScaleAndNoise(a, 0.0) for a in self.scales if a != 1]
        found += [Timed(*phase) for phase in self.phases]
        found += [
            Timed(1.0, a, 1 - last / self.rounds)
            for a in self.surges
            for last in sorted(set(self.surge_rounds), reverse=True)
            if 0 < last < self.rounds
        ]
        found += [ScaleAndNoise(1.0, b) for b in self.noises if b != 0]
        found += [from_json(text) for text in self.reportings]
        return list(dict.fromkeys(found))

    def make_protocol(self) -> Protocol:
        """The protocol that is audited."""
        return Protocol(
            kind=self.protocol,  # pyright: ignore[reportArgumentType]
            step=self.step,
            batch=self.batch,
            local_steps=self.local_steps,
            aggregator=aggregator_of(self.aggregator),
            participation=self.participation,
        )

    def make_reward(self) -> Reward:
        """What the final model is worth."""
        options = self.reward_options
        match self.reward:
            case "own":
                return OwnLoss(*options)
            case "logistic":
                return LogisticReward(*options)
            case "group":
                if len(options) != self.clients:
                    raise ValueError(f"reward group needs {self.clients} group numbers")
                return GroupLoss(tuple(int(number) for number in options))
            case "rivalry":
                return Rivalry(*options)
            case _:
                raise ValueError(f"reward is {self.reward!r}, must be one of {', '.join(REWARDS)}")

    def to_toml(self) -> str:
        """The TOML form."""
        return tomli_w.dumps({name: _listed(value) for name, value in asdict(self).items()})

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Read the TOML form; what is left out has its default, what is unknown is refused."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"not TOML: {error}") from None
        fields, default = Fields(document), cls()
        values: dict[str, Any] = {}
        for name, usual in asdict(default).items():
            if name not in fields:
                continue
            match usual:
                case str():
                    values[name] = fields.text(name)
                case bool():  # before int, which it is a kind of
                    values[name] = fields.switch(name)
                case float():
                    values[name] = fields.number(name)
                case int():
                    values[name] = fields.integer(name)
                case _ if name == "phases":
                    values[name] = tuple(_phase(row) for row in fields.rows(name))
                case _ if name in ("reportings", "robust"):
                    values[name] = fields.texts(name)
                case _ if name in ("deviating", "surge_rounds"):
                    values[name] = fields.integers(name)
                case _:
                    values[name] = fields.numbers(name)
        fields.refuse_rest()
        return replace(default, **values)


def aggregator_of(text: str) -> Aggregator:
    """An aggregator by its name, with its numbers behind a colon."""
    name, _, rest = text.partition(":")
    try:
        numbers = [float(part) for part in rest.split(",")] if rest else []
        match name:
            case "mean":
                return Mean()
            case "weighted-mean":
                return WeightedMean(tuple(numbers))
            case "median":
                return Median()
            case "trimmed-mean":
                return TrimmedMean(*numbers)
            case "krum":
                return Krum(*map(int, numbers))
            case "multi-krum":
                return MultiKrum(*map(int, numbers))
            case "geometric-median":
                return GeometricMedian()
            case "clipped":
                return Clipped(*numbers)
            case _:
                raise ValueError
    except (ValueError, TypeError) as error:
        why = f" ({error})" if str(error) else ""
        raise ValueError(
            f"aggregator is {text!r}{why}, must be one of {', '.join(AGGREGATORS)}"
        ) from None


def _phase(row: tuple[float, ...]) -> tuple[float, float, float]:
    if len(row) != 3:
        raise ValueError(f"a phase is [a_early, a_late, switch], got {list(row)}")
    return row[0], row[1], row[2]


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value
