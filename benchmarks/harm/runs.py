"""Runs of a federation that record, in every round, what each message does to everybody else.

In a round with messages m_1 … m_N the server makes a model of all messages, and for each i a model
of all messages but m_i. Client j evaluates all N + 1 models on its own data. The *harm* of client i
to client j in the round is

    h_ij = F_j(model of the round) − F_j(model of the round without m_i),

negative where the message helps. `benchmarks/harm_rule.py` turns harm into payments and judges
them. Training itself is that of `verax.learning`: the same updates, reportings and aggregators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from verax.game import Honest, Reporting
from verax.learning import Behaviour, Median, Protocol, Seeds, Simulator, Task
from verax.learning.inputs import RunInputs, SegmentInputs
from verax.learning.round import (
    Deviation,
    Memory,
    client_updates,
    first_memory,
    maker_of,
    measured,
    messages_of,
    server_move,
    server_step,
)
from verax.mechanism import Blocks, refined_blocks
from verax.tasks import digits
from verax.tasks.embedded import split_task
from verax.tasks.models import perceptron

Array = NDArray[np.float64]

#: The parts of a member's evaluation data on which models are evaluated, in this order.
PARTS = ("all", "a quarter", "a sixteenth", "half A", "half B")

#: Parameters × models that are computed at once; more gains nothing on one core.
_AT_ONCE = 60_000


@dataclass(frozen=True)
class Setting:
    """A federation to measure.

    Attributes:
        words: what it is.
        task: makes its data, model and loss.
        protocol: how it trains.
        rounds: T.
        segment: rounds per compiled loop.
    """

    words: str
    task: Callable[[], Task]
    protocol: Protocol
    rounds: int
    segment: int


def cancer() -> Task:
    """Breast cancer (scikit-learn's), four clients by quarters of the texture; logistic."""
    data: Any = load_breast_cancer()
    x, labels = np.asarray(data.data), np.asarray(data.target, dtype=np.int32)
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    parts = [np.sort(part) for part in np.array_split(np.argsort(x[:, 1], kind="stable"), 4)]
    network = perceptron((30, 2), start="zero", l2=0.01)
    return split_task("breast cancer", (x, labels), parts, np.random.default_rng(0), network)


_EPOCH = Protocol("fedavg", 0.3, 32, epochs=1)

SETTINGS = {
    "trained": Setting(
        "softmax, FedSGD, trained",
        lambda: digits(3, "softmax"),
        Protocol("fedsgd", 0.5),
        300,
        25,
    ),
    "undertrained": Setting(
        "softmax, FedSGD, undertrained",
        lambda: digits(3, "softmax"),
        Protocol("fedsgd", 0.06),
        300,
        25,
    ),
    "mlp": Setting("MLP, FedSGD", lambda: digits(3, "mlp"), Protocol("fedsgd", 0.1), 400, 25),
    "default": Setting(
        "softmax, FedAvg (`verax audit`)", lambda: digits(3, "softmax"), _EPOCH, 30, 5
    ),
    "median": Setting(
        "the same with the median",
        lambda: digits(3, "softmax"),
        Protocol("fedavg", 0.3, 32, epochs=1, aggregator=Median()),
        30,
        5,
    ),
    "ten": Setting(
        "ten clients, softmax, FedAvg",
        lambda: digits(10, "softmax"),
        _EPOCH,
        30,
        5,
    ),
    "cancer": Setting("breast cancer, logistic, FedSGD", cancer, Protocol("fedsgd", 0.5), 300, 25),
}


class Tried(NamedTuple):
    """What some clients do in a run: each of them uses the same reporting."""

    clients: tuple[int, ...]
    reporting: Reporting

    @property
    def program(self) -> Any:
        """Runs with equal programs are computed together."""
        alone = Behaviour(self.reporting, self.clients[:1]).program
        return alone, len(self.clients) if alone[0] is not None else 0


class Records(NamedTuple):
    """What runs recorded, block by block; leading axes are free.

    Attributes:
        harm: h_ij summed over each block, evaluated on each part, (…, K, N, N, parts).
        norms: ‖m_i‖² summed over each block, (…, K, N).
        final: every client's loss of the final model on each part, (…, N, parts).
    """

    harm: Any
    norms: Any
    final: Any


class _State(NamedTuple):
    params: Any
    memory: Any  # a Memory for each deviator of a run, or None


class HarmRuns:
    """Runs of one setting.

    Args:
        task: data, model, loss.
        protocol: how the federation trains.
        rounds: T.
        segment: rounds per compiled loop; runs branch off the honest one between two of them.
    """

    def __init__(self, task: Task, protocol: Protocol, rounds: int, segment: int) -> None:
        if rounds % segment:
            raise ValueError(f"segment is {segment}, must divide the {rounds} rounds")
        self.task, self.protocol, self.rounds, self.segment = task, protocol, rounds, segment
        self.blocks: Blocks = refined_blocks(rounds)
        self._simulator = Simulator(task, protocol, rounds)
        arrays = zip(*task.test, strict=True)
        self._test = tuple(jnp.asarray(np.concatenate(own)) for own in arrays)
        self._weights = jnp.asarray(part_weights([len(own[0]) for own in task.test]), jnp.float32)
        self._advance = jax.jit(self._scan, static_argnames="reporting")
        self._compiled: dict[Any, Reporting | None] = {}
        self._honest: dict[int, tuple[list[_State], Any, Any, Any]] = {}

    @property
    def width(self) -> int:
        """How many runs are computed at once."""
        models = self._simulator.parameters * (self.task.clients + 1)
        return int(np.clip(_AT_ONCE // models, 8, 16))

    def run(self, seed: int, tried: Sequence[Tried]) -> Records:
        """One run for each thing tried, with the random numbers of one seed, (R, …)."""
        if seed not in self._honest:
            self._run_honest(seed)
        groups: dict[Any, list[int]] = {}
        for k, one in enumerate(tried):
            branch = one.reporting.honest_rounds(self.rounds) // self.segment
            branch = min(branch, self.rounds // self.segment - 1)
            groups.setdefault((one.program, branch), []).append(k)
        found: dict[int, Records] = {}
        for (_, branch), members in groups.items():
            for at in range(0, len(members), self.width):
                some = members[at : at + self.width]
                padded = some + some[-1:] * (self.width - len(some))
                records = self._batch(seed, [tried[k] for k in padded], branch)
                for row, k in enumerate(some):
                    found[k] = Records(*(values[row] for values in records))
        return Records(*map(np.stack, zip(*(found[k] for k in range(len(tried))), strict=True)))

    def honest(self, seed: int) -> Records:
        """The honest run."""
        if seed not in self._honest:
            self._run_honest(seed)
        _, harm, norms, final = self._honest[seed]
        return Records(self._by_block(harm), self._by_block(norms), final)

    def _run_honest(self, seed: int) -> None:
        states, parts = self._rounds(seed, [Tried((), Honest())], None, 0)
        harm, norms, final = (values[0] for values in parts)
        self._honest[seed] = (states, harm, norms, final)

    def _batch(self, seed: int, runs: list[Tried], branch: int) -> Records:
        states, harm, norms, _ = self._honest[seed]
        _, (own_harm, own_norms, final) = self._rounds(seed, runs, states[branch], branch)
        done = branch * self.segment

        def whole(before: Any, after: Any) -> Any:
            shared = np.broadcast_to(before[:done], (len(runs), *before[:done].shape))
            return self._by_block(np.concatenate([shared, after], axis=1), axis=1)

        return Records(whole(harm, own_harm), whole(norms, own_norms), final)

    def _by_block(self, values: Any, axis: int = 0) -> Any:
        starts = np.array(self.blocks.starts) - 1
        with np.errstate(over="ignore", invalid="ignore"):  # some misreports diverge
            return np.add.reduceat(values, starts, axis=axis)

    def _rounds(
        self, seed: int, runs: list[Tried], state: _State | None, first: int
    ) -> tuple[list[_State], tuple[Any, Any, Any]]:
        """States before each segment from the first on; harm, norms and final losses by run."""
        seeds = Seeds.of(seed)
        moved = runs[0].program[0][0] is not None
        # What two members do alike is computed with the parameters of one of them.
        behaviours = [
            Behaviour(one.reporting, one.clients[:1] if moved else one.clients) for one in runs
        ]
        inputs = RunInputs(
            self.protocol, self._simulator.sizes, self.rounds, False, seeds, behaviours
        )
        deviators = np.array([one.clients or (0,) for one in runs]) if moved else None
        if state is None:
            state = _State(jax.tree.map(lambda x: x[0], self._simulator.start(seeds).params), None)
        params, memory = state
        if moved:
            memory = (first_memory(runs[0].reporting, params),) * len(runs[0].clients)
        params, memory = jax.tree.map(
            lambda x: np.broadcast_to(np.asarray(x), (len(runs), *np.shape(x))), (params, memory)
        )
        states: list[_State] = []
        recorded: list[Any] = []
        for part in range(first, self.rounds // self.segment):
            if len(runs) == 1:
                states.append(_State(jax.tree.map(lambda x: np.asarray(x[0]), params), None))
            program = (runs[0].program, len(runs))
            params, memory, record = self._advance(
                params,
                memory,
                inputs.segment(part * self.segment, self.segment),
                deviators,
                jax.random.key(seeds.noise),
                reporting=self._compiled.setdefault(program, inputs.reporting),
            )
            recorded.append(jax.tree.map(np.asarray, record))
        harm, norms, losses = (
            np.swapaxes(np.concatenate(own), 0, 1) for own in zip(*recorded, strict=True)
        )
        return states, (harm, norms, losses[:, -1])

    def _scan(
        self,
        params: Any,
        memory: Any,
        rounds: SegmentInputs,
        deviators: Any,
        key: jax.Array,
        *,
        reporting: Reporting | None,
    ) -> Any:
        def step(carry: Any, now: Any) -> Any:
            shared, own = now
            params, memory, record = jax.vmap(partial(self._round, reporting, key, shared))(
                *carry, deviators, *own
            )
            return (params, memory), record

        per_run = (rounds.scales, rounds.parameters, rounds.own_index)
        shared = rounds._replace(scales=None, parameters=None, own_index=None)
        (params, memory), records = jax.lax.scan(step, (params, memory), (shared, per_run))
        return params, memory, records

    def _round(
        self,
        reporting: Reporting | None,
        key: jax.Array,
        shared: SegmentInputs,
        params: Any,
        memory: Any,
        deviators: Any,
        scales: jax.Array,
        parameters: Any,
        own_index: Any,
    ) -> Any:
        """One round of one run: model, memories, and (harm, norms, losses after the round)."""
        gradient, protocol, N = self.task.gradient, self.protocol, self.task.clients
        work = self._simulator.local_work(jnp.arange(N), shared.index)
        _, updates = client_updates(gradient, protocol, params, work)
        memories: list[Any] = []
        vectors = updates
        if reporting is not None:
            for one, client in zip(memory, deviators, strict=True):
                own = None
                if own_index is not None:
                    own = self._simulator.local_work(client[None], own_index[None]).of(0)
                noise = jax.random.fold_in(jax.random.fold_in(key, shared.number), client)
                deviation = Deviation(client, parameters, own, noise, shared.number + 1)
                maker = maker_of(reporting, self.rounds, gradient, protocol, params, one, deviation)
                messages, remembered = messages_of(vectors, scales, maker)
                vectors = messages.vectors
                memories.append(remembered)
        messages, _ = messages_of(vectors, scales, None)
        everybody = jnp.ones(N, dtype=bool)
        statistics = measured(messages, updates, everybody, None)
        present = jnp.concatenate([everybody[None], ~jnp.eye(N, dtype=bool)])

        def of_those(who: jax.Array) -> tuple[Any, Any, jax.Array]:
            aggregate = protocol.aggregator.aggregate(messages, statistics, who)
            model = server_step(protocol, params, aggregate)
            return aggregate, model, self._losses(model)

        aggregates, models, losses = jax.vmap(of_those)(present)  # losses: (N + 1, N, parts)
        aggregate, model = jax.tree.map(lambda leaf: leaf[0], (aggregates, models))
        harm = (losses[0] - losses[1:]) * ~jnp.eye(N, dtype=bool)[..., None]
        after = None
        if reporting is not None:
            after = tuple(Memory(server_move(protocol, aggregate), own) for own in memories)
        return model, after, (harm, statistics.norms, losses[0])

    def _losses(self, params: Any) -> jax.Array:
        """F_j(θ) on each part of client j's evaluation data, (N, parts)."""

        def one(*sample: Any) -> jax.Array:
            return self.task.loss(params, tuple(array[None] for array in sample))

        return jnp.einsum("pjs,s->jp", self._weights, jax.vmap(one)(*self._test))


def part_weights(sizes: Sequence[int]) -> Array:
    """By what each sample of all clients counts in client j's mean, (parts, N, samples)."""
    weights = np.zeros((len(PARTS), len(sizes), sum(sizes)))
    starts = np.cumsum([0, *sizes])
    for j, size in enumerate(sizes):
        order = starts[j] + np.random.default_rng([7, j]).permutation(size)
        half = max(size // 2, 1)
        parts = [
            order,
            order[: max(size // 4, 1)],
            order[: max(size // 16, 1)],
            order[:half],
            order[half:],
        ]
        for part, chosen in enumerate(parts):
            weights[part, j, chosen] = 1 / len(chosen)
    return weights


def runs_of(setting: Setting) -> HarmRuns:
    """The runs of a setting."""
    return HarmRuns(setting.task(), setting.protocol, setting.rounds, setting.segment)
