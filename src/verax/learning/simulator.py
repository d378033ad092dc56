"""The compiled simulator: R runs of one seed at a time, in segments of rounds.

A segment of rounds is one compiled `scan`; the runs in it differ in what clients report, share
initial model, batches and noise (common random numbers), and are one `vmap`. Between segments the
state can be looked at, saved and restored bit by bit. Splitting the runs otherwise changes results
only by float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from verax.game.reporting import Levels
from verax.learning.aggregators import Aggregator, Separate
from verax.learning.batches import batch_indices, participants
from verax.learning.blocks import BLOCK_NUMBERS
from verax.learning.evaluation import Samples
from verax.learning.protocol import GRAM_LIMIT, Protocol, Record, federated_round
from verax.learning.reporting import Needs, Round, behaviour, draws
from verax.learning.streaming import streamed_round
from verax.learning.task import Batch, Task
from verax.memory import free_memory

__all__ = ["QUICK", "Evaluation", "Outcome", "Seeds", "Simulator", "State", "honest"]

Array = jax.Array

# Compiling a small model takes longer than a small audit runs, and LLVM's slowest passes gain it
# nothing (measured: same speed, half of the time to compile). Larger models gain about 5 %, which
# pays only over more than a few rounds.
QUICK = {"xla_backend_optimization_level": 1}
_SMALL = 20_000
_FEW = 10

# From here on a run by itself is faster than a batch of one (by a tenth, measured).
_LARGE = 1 << 20

# Up to so many numbers in the messages of all clients they are held at once, else streamed.
_HELD = 1 << 26

# Test samples that a larger model is given at a time.
_EVALUATED = 64


@dataclass(frozen=True)
class Seeds:
    """What is random in a run, each with a seed of its own; nothing is seeded globally."""

    init: int
    batches: int
    noise: int

    @classmethod
    def of(cls, number: int) -> Seeds:
        """The seeds of replica `number`."""
        return cls(init=3 * number, batches=3 * number + 1, noise=3 * number + 2)


class State(NamedTuple):
    """R runs between two rounds."""

    params: Any  # leading axis R
    history: Any  # (R, N, 2)
    round: int  # rounds already done

    def of_run(self, run: int) -> State:
        """One of them alone."""
        params, history = jax.tree.map(
            lambda leaf: leaf[run : run + 1], (self.params, self.history)
        )
        return State(params, history, self.round)


class Evaluation(NamedTuple):
    """Every client's test loss and accuracy (NaN if the task has none), (R, N) each."""

    round: int
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What R runs recorded from round `first` (0-based) on.

    Attributes:
        first: rounds that were done before.
        gram: (R, T', N, N), or (R, T', N, 1 or 2) beyond `GRAM_LIMIT` clients.
        misreport: ‖m_i − g_i‖², (R, T', N).
        loss: training losses, (R, T', N).
        present: who took part, (T', N).
        evaluations: in order; the last is after the last round.
        state: after the last round.
    """

    first: int
    gram: NDArray[np.float32]
    misreport: NDArray[np.float32]
    loss: NDArray[np.float32]
    present: NDArray[np.bool_]
    evaluations: list[Evaluation]
    state: State

    @property
    def norms(self) -> NDArray[np.float64]:
        """‖m_i‖², (R, T', N)."""
        if self.gram.shape[-1] == self.gram.shape[-2]:
            return np.diagonal(self.gram, axis1=-2, axis2=-1).astype(np.float64)
        return self.gram[..., 0].astype(np.float64)

    @property
    def diverged(self) -> NDArray[np.intp]:
        """The first round (from 1) whose numbers are not finite, per run; 0 where all are."""
        fine = np.all(np.isfinite(self.gram), axis=(2, 3)) & np.all(np.isfinite(self.loss), axis=2)
        ended = np.all(np.isfinite(self.evaluations[-1].loss), axis=1)
        rounds = fine.shape[1]
        where = np.where(np.all(fine, axis=1), 0, self.first + np.argmin(fine, axis=1) + 1)
        return np.where((where == 0) & ~ended, self.first + rounds, where)


def honest(rounds: int) -> Levels:
    """The levels of an honest client."""
    return Levels(np.ones(rounds), np.zeros(rounds))


class Simulator:
    """Runs a task under a protocol.

    Args:
        task: data, model, loss.
        protocol: how the federation trains.
        rounds: T.
        segment: rounds per compiled segment.
        distances: also where rounds are streamed, record how far each message lies from the mean
            of the others; every update is then computed twice.
    """

    def __init__(
        self,
        task: Task,
        protocol: Protocol,
        rounds: int,
        segment: int = 50,
        *,
        distances: bool = False,
    ) -> None:
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}, must be ≥ 1")
        self.task, self.protocol, self.rounds = task, protocol, rounds
        self.segment, self._distances = min(segment, rounds), distances
        train = task.padded("train")
        self.sizes, self.parameters = train.sizes, task.parameters
        self._train = tuple(jnp.asarray(array) for array in train.arrays)
        self._test = Samples(task.test, 0 if self.parameters < _SMALL else _EVALUATED)
        self._init = jax.jit(task.init)
        numbers = task.clients * self.parameters
        self.streams = task.clients > GRAM_LIMIT and numbers > _HELD
        if not self.streams:
            _check_memory(numbers, protocol.aggregator)
        elif not isinstance(protocol.aggregator, Separate):
            _check_memory(min(numbers, BLOCK_NUMBERS), protocol.aggregator)
        self.compiler = QUICK if self.parameters < _SMALL or rounds < _FEW else None
        self._advance = jax.jit(self._scan, static_argnames="needs", compiler_options=self.compiler)
        self._evaluate = jax.jit(jax.vmap(self._test_losses), compiler_options=self.compiler)

    def start(self, seeds: Seeds) -> State:
        """One run before its first round."""
        params = self._init(jax.random.key(seeds.init))
        alone = jax.tree.map(lambda leaf: np.asarray(leaf)[None], params)
        return State(alone, np.zeros((1, self.task.clients, 2), _dtype(params)), 0)

    def run(
        self,
        seeds: Seeds,
        runs: Sequence[Sequence[Levels]],
        state: State | None = None,
        *,
        until: int | None = None,
        evaluate_every: int = 0,
        after_segment: Callable[[State, list[Record], int], None] | None = None,
        done: Sequence[Record] = (),
    ) -> Outcome:
        """Run R reportings of all N clients from a state to the last round (or `until`).

        Args:
            seeds: of this replica.
            runs: R × N levels, each laid out over all T rounds.
            state: where to begin, of one run (shared by all) or of R; default: the start.
            until: rounds after which to stop.
            evaluate_every: also evaluate after every so many rounds.
            after_segment: called with the state, the records so far and the rounds just done.
            done: records of earlier segments of the same runs, when resuming in mid-run.
        """
        state = self.start(seeds) if state is None else state
        state = self._for_runs(state, len(runs))
        levels = behaviour(runs, dtype=_dtype(state.params))
        records = list(done)
        first = state.round - sum(record.loss.shape[1] for record in records)
        present = [participants_of(self, seeds, first, state.round - first)]
        until = until or self.rounds
        evaluations: list[Evaluation] = []
        while state.round < until:
            length = min(self.segment, until - state.round)
            if evaluate_every:
                length = min(length, evaluate_every - state.round % evaluate_every)
            state, record, here = self._segment(seeds, state, levels, length)
            records.append(record)
            present.append(here)
            if evaluate_every and state.round % evaluate_every == 0 and state.round < until:
                evaluations.append(self.evaluate(state))
            if after_segment is not None:
                after_segment(state, records, length)
        evaluations.append(self.evaluate(state))
        joined = Record(*(np.concatenate(parts, axis=1) for parts in zip(*records, strict=True)))
        return Outcome(
            first,
            joined.gram,
            joined.misreport,
            joined.loss,
            np.concatenate(present),
            evaluations,
            state,
        )

    def evaluate(self, state: State) -> Evaluation:
        """Every client's test loss and accuracy."""
        loss, accuracy = self._evaluate(state.params)
        return Evaluation(state.round, np.asarray(loss, float), np.asarray(accuracy, float))

    def test_losses(self, params: Any) -> Array:
        """F_i(θ) on each client's test data, (N,), differentiable."""
        return self._test.means(self.task.loss, params)

    def inputs(self, seeds: Seeds, first: int, length: int) -> tuple[Any, Any, Any]:
        """Sample positions, participants and numbers of `length` rounds from `first` (0-based).

        Participants are a mask (length, N), or their numbers where rounds are streamed.
        """
        protocol = self.protocol
        index = batch_indices(
            self.sizes, seeds.batches, first, length, protocol.local_steps, protocol.batch
        )
        present = participants_of(self, seeds, first, length)
        if self.streams:
            present = np.nonzero(present)[1].reshape(length, -1)
        return index, present, np.arange(first, first + length)

    def gather(self, index: Array) -> Batch:
        """The samples of one round, arrays of shape (N, L, batch, …)."""
        return tuple(jax.vmap(lambda rows, i: rows[i])(array, index) for array in self._train)

    def round(
        self, params: Any, history: Any, inputs: Any, levels: Round, key: Array, needs: Needs
    ) -> tuple[Any, Any, Record]:
        """One round of one run: θ_{t+1}, histories, record; `inputs` are a row of `inputs()`."""
        index, who, number = inputs
        slope, now = self.task.loss_and_slope, jax.random.fold_in(key, number)
        if self.streams:

            def gather(own: Array) -> Batch:
                return tuple(array[own[:, None, None], index[own]] for array in self._train)

            return streamed_round(
                slope,
                self.protocol,
                params,
                gather,
                who,
                levels,
                history,
                now,
                needs,
                self._distances,
            )
        drawn = draws(now, needs, params, self.task.clients) if any(needs) else None
        return federated_round(
            slope, self.protocol, params, self.gather(index), who, levels, history, drawn
        )

    def _segment(
        self, seeds: Seeds, state: State, levels: Any, length: int
    ) -> tuple[State, Record, NDArray[np.bool_]]:
        t = state.round
        index, who, numbers = self.inputs(seeds, t, length)
        a, b = (np.swapaxes(part[:, t : t + length], 0, 1) for part in levels[:2])
        params, history, record = self._advance(
            state.params,
            state.history,
            (index, who, numbers, a, b),
            levels[2:],
            jax.random.key(seeds.noise),
            needs=levels.needs,
        )
        host = Record(*(np.swapaxes(np.asarray(part), 0, 1) for part in record))
        return State(params, history, t + length), host, participants_of(self, seeds, t, length)

    def _scan(
        self, params: Any, history: Any, inputs: Any, fixed: Any, key: Array, *, needs: Needs
    ) -> tuple[Any, Any, Record]:
        *rest, a, b = inputs
        alone = history.shape[0] == 1 and self.parameters >= _LARGE
        if alone:  # without the axis of the runs, all the way: to take it off in a round is a copy
            params, history, fixed = jax.tree.map(lambda leaf: leaf[0], (params, history, fixed))
            a, b = a[:, 0], b[:, 0]

        def step(carry: tuple[Any, Any], now: Any) -> tuple[tuple[Any, Any], Record]:
            *inputs, a, b = now

            def one(p: Any, past: Any, *levels: Any) -> tuple[Any, Any, Record]:
                return self.round(p, past, inputs, Round(*levels), key, needs)

            p, past, record = (one if alone else jax.vmap(one))(*carry, a, b, *fixed)
            return (p, past), record

        (params, history), records = jax.lax.scan(step, (params, history), (*rest, a, b))
        if alone:
            params, history = jax.tree.map(lambda leaf: leaf[None], (params, history))
            records = jax.tree.map(lambda leaf: leaf[:, None], records)
        return params, history, records

    def _test_losses(self, params: Any) -> tuple[Array, Array]:
        accuracy = self.task.accuracy
        if accuracy is None:
            loss = self.test_losses(params)
            return loss, jnp.full_like(loss, jnp.nan)

        def both(params: Any, batch: Batch) -> Array:
            return jnp.stack([self.task.loss(params, batch), accuracy(params, batch)])

        loss, right = self._test.means(both, params).T
        return loss, right

    def _for_runs(self, state: State, runs: int) -> State:
        have = jax.tree.leaves(state.params)[0].shape[0]
        if have == runs:
            return state
        if have != 1:
            raise ValueError(f"a state of {have} runs cannot begin {runs} runs")
        params, history = jax.tree.map(
            lambda leaf: np.repeat(np.asarray(leaf), runs, axis=0), (state.params, state.history)
        )
        return State(params, history, state.round)


def participants_of(
    simulator: Simulator, seeds: Seeds, first: int, rounds: int
) -> NDArray[np.bool_]:
    """Who takes part in which round of a replica."""
    share = simulator.protocol.participation
    return participants(simulator.task.clients, share, seeds.batches, first, rounds)


def _check_memory(numbers: int, aggregator: Aggregator) -> None:
    """Refuse messages, or a block of them, that cannot be held."""
    if numbers <= _HELD:
        return
    needed, free = 4 * 4 * numbers, free_memory()
    if needed > free:
        raise ValueError(
            f"{aggregator} needs many messages at once, about {needed / 2**30:.1f} GB of which "
            f"{free / 2**30:.1f} are free; use fewer clients, or more than {GRAM_LIMIT} with mean, "
            "weighted-mean or clipped, which are streamed"
        )


def _dtype(params: Any) -> Any:
    return np.result_type(*(leaf.dtype for leaf in jax.tree.leaves(params)))
