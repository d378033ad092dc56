"""The compiled simulator: R runs of one seed at a time, in segments of rounds.

A segment of rounds is one compiled loop (`jax.lax.scan`). The runs in it differ in what clients
report, share the initial model, batches and noise (common random numbers), and are computed
together (`jax.vmap`). Between two segments the state can be looked at, saved and restored bit by
bit. Other groupings of the runs change results only by float32 rounding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from verax.game import Reporting
from verax.learning.evaluation import Samples
from verax.learning.inputs import (
    Behaviour,
    RunInputs,
    Seeds,
    SegmentInputs,
    sample_positions,
    who_is_present,
)
from verax.learning.outcome import Evaluation, Outcome, TrainingState, joined_records
from verax.learning.protocol import Protocol
from verax.learning.round import (
    GRAM_LIMIT,
    Deviation,
    LocalWork,
    Memory,
    RoundMeasurements,
    RoundResult,
    Smoothing,
    federated_round,
    first_memory,
    maker_of,
)
from verax.learning.streaming import MemoryLimits, streamed_round
from verax.learning.task import Batch, Task
from verax.mechanism.smoothed_norm import shrinking_memory
from verax.memory import free_memory

Array = jax.Array

# For a small model or a few rounds, compiling takes longer than running. A lower optimisation level
# halves the time to compile and costs small models nothing, larger ones about 5 % (measured).
# Whoever chooses a level in XLA_FLAGS has it.
_LEVEL = "xla_backend_optimization_level"
QUICK_COMPILE = None if _LEVEL in os.environ.get("XLA_FLAGS", "") else {_LEVEL: 1}
_SMALL_MODEL = 20_000
_FEW_ROUNDS = 10

# How many test samples a larger model evaluates at a time.
_EVALUATED = 64


class Simulator:
    """Runs a task under a protocol.

    Args:
        task: data, model, loss.
        protocol: how the federation trains.
        rounds: T.
        segment: rounds per compiled segment.
        distances: also where rounds are streamed, record how far each message lies from the mean;
            every update is then computed twice.
        smoothed: also record the norms of moving averages of each client's messages.
        limits: how much is held in memory at once.
    """

    def __init__(
        self,
        task: Task,
        protocol: Protocol,
        rounds: int,
        segment: int = 50,
        *,
        distances: bool = False,
        smoothed: bool = False,
        limits: MemoryLimits | None = None,
    ) -> None:
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}, must be ≥ 1")
        protocol.aggregator.check(task.clients)
        self.task, self.protocol, self.rounds = task, protocol, rounds
        self.segment, self._distances = min(segment, rounds), distances
        self._limits = limits or MemoryLimits()
        train = task.padded("train")
        self.sizes, self.parameters = train.sizes, task.parameters
        self._train = tuple(jnp.asarray(array) for array in train.arrays)
        steps = protocol.steps_of(self.sizes)
        # Where all clients take as many steps, nothing has to be compared in each of them.
        self._steps = jnp.asarray(steps) if np.any(steps != steps[0]) else None
        small = self.parameters < _SMALL_MODEL
        self._test = Samples(task.test, 0 if small else _EVALUATED)
        self._init = jax.jit(task.init, compiler_options=QUICK_COMPILE)  # runs once per seed
        numbers = task.clients * self.parameters
        self.streams = task.clients > GRAM_LIMIT and numbers > self._limits.held
        self._check_memory(numbers)
        if smoothed and self.streams:
            raise ValueError(
                f"moving averages of {task.clients} clients' messages are {numbers:,} numbers, at "
                f"most {self._limits.held:,} are held; use fewer clients, or no smoothed norms"
            )
        self._memory = shrinking_memory(rounds).astype(np.float32) if smoothed else None
        # Reportings with the same program are compiled once, for the first of them.
        self._compiled: dict[Any, Reporting | None] = {}
        quick = QUICK_COMPILE if small or rounds < _FEW_ROUNDS else None
        self._advance = jax.jit(self._scan, static_argnames="reporting", compiler_options=quick)
        self._evaluate = jax.jit(jax.vmap(self._test_losses), compiler_options=quick)

    def start(self, seeds: Seeds, runs: Sequence[Behaviour] = (Behaviour(),)) -> TrainingState:
        """Runs before their first round; by default one."""
        params = self._init(jax.random.key(seeds.init))
        params = jax.tree.map(lambda leaf: np.asarray(leaf)[None], params)
        averages = None
        if self._memory is not None:
            N = self.task.clients
            averages = jax.tree.map(lambda leaf: np.zeros((1, N, *leaf.shape[1:])), params)
            averages = jax.tree.map(lambda new, leaf: new.astype(leaf.dtype), averages, params)
        return self._for_runs(TrainingState(params, None, 0, averages), runs)

    def run(
        self,
        seeds: Seeds,
        runs: Sequence[Behaviour],
        state: TrainingState | None = None,
        *,
        until: int | None = None,
        evaluate_every: int = 0,
        after_segment: Callable[[TrainingState, list[RoundMeasurements], int], None] | None = None,
        done: Sequence[RoundMeasurements] = (),
    ) -> Outcome:
        """Run R behaviours from a state to the last round (or `until`).

        Args:
            seeds: of this replica.
            runs: what the clients do in each run; all with the same program.
            state: where to begin, of one run (shared by all) or of R; default: the start.
            until: rounds after which to stop.
            evaluate_every: also evaluate after every so many rounds.
            after_segment: called with the state, the records so far and the rounds just done.
            done: records of earlier segments of the same runs, when resuming in mid-run.
        """
        inputs = RunInputs(self.protocol, self.sizes, self.rounds, self.streams, seeds, runs)
        state = self.start(seeds, runs) if state is None else self._for_runs(state, runs)
        records = list(done)
        first = state.round - sum(record.loss.shape[1] for record in records)
        until = until or self.rounds
        evaluations: list[Evaluation] = []
        while state.round < until:
            length = min(self.segment, until - state.round)
            if evaluate_every:
                length = min(length, evaluate_every - state.round % evaluate_every)
            state, record = self._segment(inputs, state, length)
            records.append(record)
            if evaluate_every and state.round % evaluate_every == 0 and state.round < until:
                evaluations.append(self.evaluate(state))
            if after_segment is not None:
                after_segment(state, records, length)
        evaluations.append(self.evaluate(state))
        joined = joined_records(records)
        N = self.task.clients
        asked = who_is_present(self.protocol, N, seeds, first, state.round - first)
        present = np.repeat(asked[None], len(runs), axis=0)
        if inputs.absent is not None:
            present &= ~np.swapaxes(inputs.absent[first : state.round], 0, 1)
        return Outcome(first, joined.statistics, joined.loss, present, evaluations, state)  # pyright: ignore

    def evaluate(self, state: TrainingState) -> Evaluation:
        """Every client's test loss and accuracy."""
        loss, accuracy = self._evaluate(state.params)
        return Evaluation(state.round, np.asarray(loss, float), np.asarray(accuracy, float))

    def test_losses(self, params: Any) -> Array:
        """F_i(θ) on each client's test data, (N,)."""
        return self._test.means(self.task.loss, params)

    def sample_positions(self, seeds: Seeds, first: int, length: int) -> NDArray[np.int32]:
        """Which samples each client uses in `length` rounds from `first` on, (length, N, L, B)."""
        return sample_positions(self.protocol, self.sizes, seeds, first, length)

    def gather(self, clients: Array, index: Array) -> Batch:
        """The samples of some clients at (clients, L, batch) positions."""
        return tuple(array[clients[:, None, None], index] for array in self._train)

    def local_work(self, clients: Array, index: Array) -> LocalWork:
        """What some clients train on in a round, at (clients, L, batch) positions."""
        steps = None if self._steps is None else self._steps[clients]
        return LocalWork(self.gather(clients, index), steps)

    def _round(
        self,
        reporting: Reporting | None,
        key: Array,
        shared: SegmentInputs,
        params: Any,
        memory: Memory | None,
        averages: Any,
        client: Array,
        scales: Array,
        absent: Array | None,
        parameters: dict[str, Array],
        own_index: Array | None,
    ) -> RoundResult:
        """One round of one run."""
        gradient, N = self.task.gradient, self.task.clients
        maker = None
        if reporting is not None and memory is not None:
            work = None
            if own_index is not None:
                work = self.local_work(client[None], own_index[None]).of(0)
            noise = jax.random.fold_in(jax.random.fold_in(key, shared.number), client)
            deviation = Deviation(client, parameters, work, noise, shared.number + 1)
            maker = maker_of(
                reporting, self.rounds, gradient, self.protocol, params, memory, deviation
            )
        if self.streams:
            result = streamed_round(
                gradient,
                self.protocol,
                params,
                lambda own: self.local_work(own, shared.index[own]),
                shared.who,
                scales,
                maker,
                limits=self._limits,
                distances=self._distances,
            )
            took_part = jnp.any(shared.who == client)
        else:
            work = self.local_work(jnp.arange(N), shared.index)
            present = shared.who if absent is None else shared.who & ~absent
            smoothing = None
            if self._memory is not None:
                smoothing = Smoothing(averages, jnp.asarray(self._memory)[shared.number])
            result = federated_round(
                gradient, self.protocol, params, work, present, scales, maker, smoothing
            )
            took_part = present[client]
        if memory is not None and result.memory is not None:
            # An absent client sees the model move but sends, and remembers, nothing.
            own = jax.tree.map(
                lambda new, old: jnp.where(took_part, new, old), result.memory.own, memory.own
            )
            result = result._replace(memory=Memory(result.memory.last_aggregate, own))
        return result

    def _scan(
        self,
        carried: tuple[Any, Memory | None, Any],
        rounds: SegmentInputs,
        clients: Array,
        key: Array,
        *,
        reporting: Reporting | None,
    ) -> tuple[tuple[Any, Memory | None, Any], RoundMeasurements]:
        """A segment of rounds; models, memories and averages are carried from round to round."""
        # A run by itself is computed without the axis of the runs: the CNN is then 1.2 times
        # (FedSGD) to 1.3 times (FedAvg) as fast, because XLA carries no axis of length 1 along.
        alone = clients.shape[0] == 1
        per_run = (rounds.scales, rounds.absent, rounds.parameters, rounds.own_index)
        if alone:
            carried, clients = jax.tree.map(lambda x: x[0], (carried, clients))
            per_run = jax.tree.map(lambda x: x[:, 0], per_run)

        def step(carry: Any, now: Any) -> tuple[Any, RoundMeasurements]:
            shared, own = now
            one_round: Any = partial(self._round, reporting, key, shared)
            result: RoundResult = (one_round if alone else jax.vmap(one_round))(
                *carry, clients, *own
            )
            return (result.params, result.memory, result.averages), result.record

        shared = rounds._replace(scales=None, absent=None, parameters=None, own_index=None)
        carried, records = jax.lax.scan(step, carried, (shared, per_run))
        if alone:
            carried = jax.tree.map(lambda x: x[None], carried)
            records = jax.tree.map(lambda x: x[:, None], records)
        return carried, records

    def _segment(
        self, inputs: RunInputs, state: TrainingState, length: int
    ) -> tuple[TrainingState, RoundMeasurements]:
        (params, memory, averages), record = self._advance(
            (state.params, state.memory, state.averages),
            inputs.segment(state.round, length),
            inputs.clients,
            jax.random.key(inputs.seeds.noise),
            reporting=self._compiled.setdefault(inputs.program, inputs.reporting),
        )
        by_run = jax.tree.map(lambda part: np.swapaxes(np.asarray(part), 0, 1), record)
        return TrainingState(params, memory, state.round + length, averages), by_run

    def _for_runs(self, state: TrainingState, runs: Sequence[Behaviour]) -> TrainingState:
        """A state of one run repeated for all, with memories where the reporting needs them."""
        have = jax.tree.leaves(state.params)[0].shape[0]
        if have not in (1, len(runs)):
            raise ValueError(f"a state of {have} runs cannot begin {len(runs)} runs")

        def repeated(leaf: Any) -> Any:
            return np.repeat(np.asarray(leaf), len(runs) // have, axis=0)

        kept = (state.params, state.memory, state.averages)
        params, memory, averages = jax.tree.map(repeated, kept)
        if memory is None and runs[0].program[0] is not None:
            one = jax.tree.map(lambda leaf: leaf[0], params)
            first = first_memory(runs[0].reporting, one)
            memory = jax.tree.map(
                lambda leaf: np.repeat(np.asarray(leaf)[None], len(runs), 0), first
            )
        return TrainingState(params, memory, state.round, averages)

    def _test_losses(self, params: Any) -> tuple[Array, Array]:
        accuracy = self.task.accuracy
        if accuracy is None:
            loss = self.test_losses(params)
            return loss, jnp.full_like(loss, jnp.nan)

        def both(params: Any, batch: Batch) -> Array:
            return jnp.stack([self.task.loss(params, batch), accuracy(params, batch)])

        loss, right = self._test.means(both, params).T
        return loss, right

    def _check_memory(self, numbers: int) -> None:
        """Refuse messages, or a block of them, that cannot be held."""
        aggregator = self.protocol.aggregator
        if self.streams:
            if not aggregator.streamed_by:
                raise ValueError(
                    f"{aggregator.name} must see all messages at once, {numbers:,} numbers of at "
                    f"most {self._limits.held:,}; base it on NormWeighted, GramWeighted or "
                    "CoordinateWise, or use fewer clients"
                )
            if aggregator.streamed_by == "message":
                numbers = 0
            numbers = min(numbers, self._limits.block)
        needed, free = 4 * 4 * numbers, free_memory()
        if numbers > self._limits.held and needed > free:
            raise ValueError(
                f"{aggregator.name} needs many messages at once, about {needed / 2**30:.1f} GB of "
                f"which {free / 2**30:.1f} are free; use fewer clients, or more than {GRAM_LIMIT} "
                "with mean, weighted-mean or clipped, which are streamed"
            )
