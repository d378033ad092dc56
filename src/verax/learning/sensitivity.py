"""Marginal incentives: differentiating through the training run.

At honesty, forward-mode differentiation gives R_{ik} = ∂R_i/∂a_{i,k} and J^{ij}_{ks} =
∂n_{j,s}/∂a_{i,k}, a_{i,k} scaling client i's messages in block k of the rounds: one tangent per
client and block, batched, carried along with the run. Before block k begins its tangents are zero,
so the run is differentiated in stages that carry only the tangents begun so far; blocks are refined
toward the end, and most of the run has few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from verax.game.reward import Reward
from verax.learning.reporting import Needs, Round
from verax.learning.simulator import Seeds, Simulator
from verax.mechanism import Blocks, Sensitivities

__all__ = ["Differentiator", "stages", "tangent_rounds"]

Array = jax.Array

_SHORT = 10  # rounds


def stages(blocks: Blocks, most: int = 2) -> list[tuple[int, int, int]]:
    """(first round, end, blocks begun by then): the run cut where blocks begin, in few pieces.

    Every stage is compiled once, so there are at most `most`: the first blocks, being the longest,
    each have one, and the last holds all the rest. A short run is not worth compiling twice.
    """
    if blocks.rounds < _SHORT:
        return [(0, blocks.rounds, len(blocks))]
    cuts = [start - 1 for start in blocks.starts[:most]] + [blocks.rounds]
    begun = [*range(1, len(cuts) - 1), len(blocks)]
    return [
        (first, end, count)
        for first, end, count in zip(cuts[:-1], cuts[1:], begun, strict=True)
        if end > first
    ]


def tangent_rounds(blocks: Blocks, clients: int) -> int:
    """Tangents times rounds of one replica: how much work its derivatives are."""
    return sum((end - first) * begun * clients for first, end, begun in stages(blocks))


class Differentiator:
    """R and J of a simulator's runs, compiled once for all seeds.

    Args:
        simulator: task, protocol and rounds.
        blocks: over which a is constant.
        reward: what the final losses are worth.
        clients: whose derivatives are taken (default: everybody's).
        together: how many tangents are pushed through a round at once (default: all); fewer take
            less memory and more time.
    """

    def __init__(
        self,
        simulator: Simulator,
        blocks: Blocks,
        reward: Reward,
        clients: Sequence[int] | None = None,
        together: int | None = None,
    ) -> None:
        if blocks.rounds != simulator.rounds:
            raise ValueError(f"blocks cover {blocks.rounds} rounds, the run has {simulator.rounds}")
        self.simulator, self.blocks = simulator, blocks
        everybody = range(simulator.task.clients)
        self.clients = np.asarray(everybody if clients is None else clients)
        self._advance = jax.jit(
            lambda *args: _advance(simulator, self.clients, together, *args),
            compiler_options=simulator.compiler,
        )
        self._slopes = jax.jit(
            lambda p, d: _reward_slopes(simulator, reward, together, p, d),
            compiler_options=simulator.compiler,
        )

    def __call__(
        self, seeds: Seeds, after_segment: Callable[[int], None] | None = None
    ) -> Sensitivities:
        """R and J of one replica; `after_segment` hears of the tangents × rounds just done."""
        simulator, blocks = self.simulator, self.blocks
        N, K, own = simulator.task.clients, len(blocks), self.clients
        params = jax.tree.map(lambda leaf: leaf[0], simulator.start(seeds).params)
        tangents: Any = None
        norms = np.zeros((len(own), N, K, K))  # [i, j, k, s]
        of_round = blocks.of_round
        for first, end, begun in stages(blocks):
            tangents = _begin(params, tangents, len(own), begun)
            for t in range(first, end, simulator.segment):
                length = min(simulator.segment, end - t)
                block = of_round[t : t + length]
                inputs = (*simulator.inputs(seeds, t, length), block)
                params, tangents, moved = self._advance(params, tangents, inputs)
                moved = np.asarray(moved, dtype=np.float64).reshape(length, len(own), begun, N)
                for s in np.unique(block):
                    total = moved[block == s].sum(axis=0)  # (i, k, j)
                    norms[:, :, :begun, s] += np.swapaxes(total, 1, 2)
                if after_segment is not None:
                    after_segment(length * len(own) * begun)
        slopes = np.asarray(self._slopes(params, tangents), dtype=np.float64)
        reward = slopes.reshape(len(own), K, N)[np.arange(len(own)), :, own]
        return Sensitivities(reward, norms, own)


def _begin(params: Any, tangents: Any, clients: int, begun: int) -> Any:
    """Tangents of shape (clients · begun, …), ordered by client and block; new ones are zero."""

    def grow(leaf: Any, old: Any = None) -> Any:
        new = np.zeros((clients, begun, *leaf.shape), leaf.dtype)
        if old is not None:
            before = np.asarray(old).reshape(clients, -1, *leaf.shape)
            new[:, : before.shape[1]] = before
        return new.reshape(clients * begun, *leaf.shape)

    return jax.tree.map(grow, params, *(() if tangents is None else (tangents,)))


def _advance(
    simulator: Simulator,
    clients: Any,
    together: int | None,
    params: Any,
    tangents: Any,
    inputs: Any,
) -> Any:
    N = simulator.task.clients
    lanes = jax.tree.leaves(tangents)[0].shape[0]
    client, own = np.divmod(np.arange(lanes), lanes // len(clients))
    pushes = jnp.asarray(clients[client][:, None] == np.arange(N), dtype=jnp.result_type(float))

    def step(carry: tuple[Any, Any], now: Any) -> tuple[tuple[Any, Any], Array]:
        p, d = carry
        *inputs, block = now

        def one(theta: Any, a: Array) -> tuple[Any, Array]:
            zero = jnp.zeros_like(a)
            levels = Round(a, zero, zero, zero, zero, zero)
            past, key = jnp.zeros((N, 2), a.dtype), jax.random.key(0)  # nothing is drawn
            theta, _, record = simulator.round(
                theta, past, inputs, levels, key, Needs(False, False, False)
            )
            gram = record.gram
            return theta, jnp.diagonal(gram) if gram.shape[0] == gram.shape[1] else gram[:, 0]

        honest = jnp.ones(N, pushes.dtype)
        here = pushes * (jnp.asarray(own) == block)[:, None]
        if together is None or together >= lanes:
            (after, _), (moved, norms) = jax.vmap(
                lambda dp, da: jax.jvp(one, (p, honest), (dp, da)), out_axes=(None, 0)
            )(d, here)
        else:
            after, _ = one(p, honest)
            moved, norms = jax.lax.map(
                lambda push: jax.jvp(one, (p, honest), push)[1], (d, here), batch_size=together
            )
        return (after, moved), norms

    (params, tangents), norms = jax.lax.scan(step, (params, tangents), inputs)
    return params, tangents, norms


def _reward_slopes(
    simulator: Simulator, reward: Reward, together: int | None, params: Any, tangents: Any
) -> Array:
    """dR_j along every tangent, (clients · K, N)."""

    def worth(p: Any) -> Array:
        return reward(simulator.test_losses(p))

    def along(d: Any) -> Array:
        return jax.jvp(worth, (params,), (d,))[1]

    if together is None or together >= jax.tree.leaves(tangents)[0].shape[0]:
        return jax.vmap(along)(tangents)
    return jax.lax.map(along, tangents, batch_size=together)
