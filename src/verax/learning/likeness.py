"""How alike the clients are, seen by the model at hand.

At parameters θ, over B independent batches of every client: the mean gradient ḡ_i and the mean
square ‖g_i‖². With both, without bias,

    E‖e_i‖² = B/(B−1) · (mean ‖g_i‖² − ‖ḡ_i‖²),   ‖∇F_i‖² = ‖ḡ_i‖² − E‖e_i‖²/B,

and ⟨∇F_i, ∇F_j⟩ = ⟨ḡ_i, ḡ_j⟩ for i ≠ j. From these: cosines of the clients' gradients, and ζ and ρ
of the theory at this point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from verax.learning.outer import dense
from verax.learning.simulator import QUICK, Seeds, Simulator

__all__ = ["Likeness", "label_distances", "measure_likeness"]

Array = NDArray[np.float64]

_COMPARED = 500  # clients whose labels are compared pair by pair


@dataclass(frozen=True, eq=False)
class Likeness:
    """Clients compared at one point.

    Attributes:
        gram: ⟨∇F_i, ∇F_j⟩, (N, N).
        noise: E‖e_i‖², (N,).
    """

    gram: Array
    noise: Array

    @property
    def cosines(self) -> Array:
        """Of the clients' gradients, one for each pair i < j; NaN where one is lost in noise."""
        norms = np.sqrt(np.where(np.diagonal(self.gram) > 0, np.diagonal(self.gram), np.nan))
        pairs = np.triu_indices(len(norms), 1)
        return np.clip((self.gram / np.outer(norms, norms))[pairs], -1.0, 1.0)

    @property
    def zeta(self) -> float:
        """ζ with max_i |‖∇F_i‖² − ‖∇F‖²| = ζ²."""
        common = self.gram.mean()
        return float(np.sqrt(np.max(np.abs(np.diagonal(self.gram) - common))))

    @property
    def rho(self) -> float:
        """ρ with max_ij |E‖e_i‖² − E‖e_j‖²| = ρ²."""
        return float(np.sqrt(self.noise.max() - self.noise.min()))


def measure_likeness(
    simulator: Simulator, points: Sequence[Any], seeds: Seeds, batches: int = 8
) -> list[Likeness]:
    """Compare the clients at one or more points, each the parameters of a model."""
    index, _, _ = simulator.inputs(seeds, 0, batches)
    # A few gradients: compiling well would take longer than they do.
    moments = jax.jit(
        lambda params, index: _moments(simulator, params, index), compiler_options=QUICK
    )
    found: list[Likeness] = []
    for params in points:
        gram, squares = (np.asarray(m, np.float64) for m in moments(params, index[:, :, :1]))
        noise = (squares - np.diagonal(gram)) * batches / (batches - 1)
        found.append(Likeness(gram - np.diag(noise / batches), noise))
    return found


def label_distances(batches: Any) -> Array | None:
    """Total variation between the clients' label shares, one for each pair; None without labels.

    Of very many clients, some hundreds evenly spaced stand for all.
    """
    step = -(-len(batches) // _COMPARED)
    labels = [batch[-1] for batch in batches[::step]]
    if any(own.ndim != 1 or own.dtype.kind not in "iu" for own in labels):
        return None
    classes = int(max(own.max() for own in labels)) + 1
    shares = np.stack([np.bincount(own, minlength=classes) / len(own) for own in labels])
    first, second = np.triu_indices(len(shares), 1)
    return np.abs(shares[first] - shares[second]).sum(axis=1) / 2


def _moments(simulator: Simulator, params: Any, index: Any) -> tuple[Any, Any]:
    """⟨ḡ_i, ḡ_j⟩ and the mean of ‖g_i‖² over batches, one client's batch at a time."""
    slope = simulator.task.loss_and_slope

    def client(batches: Any) -> tuple[Any, Any]:
        def add(total: tuple[Any, Any], batch: Any) -> tuple[tuple[Any, Any], None]:
            gradient = dense(slope(params, batch)[1])
            square = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient))
            return (jax.tree.map(jnp.add, total[0], gradient), total[1] + square), None

        start = (jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
        (total, squares), _ = jax.lax.scan(add, start, batches)
        count = len(index)
        return jax.tree.map(lambda leaf: leaf / count, total), squares / count

    rounds = jax.vmap(simulator.gather)(index)  # (B, N, 1, batch, …)
    own = tuple(jnp.swapaxes(array[:, :, 0], 0, 1) for array in rounds)
    mean, squares = jax.lax.map(client, own)
    flat = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(mean)]
    return sum(leaf @ leaf.T for leaf in flat), squares
