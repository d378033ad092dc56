"""Quadratic federations for the simulator, to check it against the exact recursion.

F_i(θ) = ½(θ − x_i)ᵀH_i(θ − x_i) + o_i, given as one "sample" (H_i, x_i, o_i) per client; with
`noise`, samples differ in x so that gradients are noisy and their mean is exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from verax.game import Quadratics
from verax.learning.task import Batch, Task


def quadratics(
    game: Quadratics,
    start: ArrayLike,
    noise: float = 0.0,
    samples: int = 256,
    seed: int = 0,
) -> Task:
    """A task whose run follows `game.run(start, …)` exactly when `noise` is 0.

    Args:
        game: the quadratics.
        start: θ_1 of every run.
        noise: standard deviation of each coordinate of a sample's centre.
        samples: how many samples a client has, if there is noise.
        seed: of the noise.
    """
    rng = np.random.default_rng(seed)
    count = samples if noise else 1
    d = game.centres.shape[1]
    first = np.atleast_1d(np.asarray(start, dtype=np.float64))

    def client(i: int, size: int, spread: float) -> Batch:
        offsets = spread * rng.standard_normal((size, d))
        centres = game.centres[i] + offsets - offsets.mean(axis=0)  # the mean stays exact
        return (
            np.repeat(game.hessians[i][None], size, axis=0),
            centres,
            np.full(size, game.offsets[i]),
        )

    return Task(
        name="quadratics",
        train=[client(i, count, noise) for i in range(game.clients)],
        test=[client(i, 1, 0.0) for i in range(game.clients)],
        init=lambda key: jnp.asarray(first),
        loss=_loss,
    )


def _loss(theta: jax.Array, batch: Batch) -> jax.Array:
    hessians, centres, offsets = batch
    away = theta - centres
    return jnp.mean(0.5 * jnp.einsum("bi,bij,bj->b", away, hessians, away) + offsets)
