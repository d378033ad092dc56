"""How similar the clients are, seen by the model at hand.

At parameters θ, over B independent batches of every client: the mean gradient ḡ_i and the mean
square ‖g_i‖². With both, without bias,

    E‖e_i‖² = B/(B−1) · (mean ‖g_i‖² − ‖ḡ_i‖²),   ‖∇F_i‖² = ‖ḡ_i‖² − E‖e_i‖²/B,

and ⟨∇F_i, ∇F_j⟩ = ⟨ḡ_i, ḡ_j⟩ for i ≠ j. From these follow the cosines of the clients' gradients,
and ζ and ρ of the theory at this point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from verax.learning.factored import dense
from verax.learning.inputs import Seeds
from verax.learning.simulator import QUICK_COMPILE, Simulator
from verax.learning.task import Batch

Array = NDArray[np.float64]

_COMPARED_CLIENTS = 500


@dataclass(frozen=True, eq=False)
class Similarity:
    """Clients compared at one point.

    Attributes:
        gram: ⟨∇F_i, ∇F_j⟩, (N, N).
        noise: E‖e_i‖², (N,).
    """

    gram: Array
    noise: Array

    @property
    def cosines(self) -> Array:
        """Of the clients' gradients, one for each pair i < j; NaN where noise hides a gradient."""
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


def measure_similarity(
    simulator: Simulator, points: Sequence[Any], seeds: Seeds, batches: int = 8
) -> list[Similarity]:
    """Compare the clients at one or more points, each the parameters of a model."""
    index = simulator.sample_positions(seeds, 0, batches)[:, :, 0]
    # Compiling with all optimisations would take longer than these few gradients.
    moments = jax.jit(
        lambda params, index: _moments(simulator, params, index), compiler_options=QUICK_COMPILE
    )
    result: list[Similarity] = []
    for params in points:
        gram, squares = (np.asarray(m, np.float64) for m in moments(params, index))
        noise = (squares - np.diagonal(gram)) * batches / (batches - 1)
        result.append(Similarity(gram - np.diag(noise / batches), noise))
    return result


def label_distances(batches: Sequence[Batch]) -> Array | None:
    """Total variation between the clients' label shares, one for each pair; None without labels.

    Of very many clients, some hundreds evenly spaced are compared.
    """
    step = -(-len(batches) // _COMPARED_CLIENTS)
    labels = [batch[-1] for batch in batches[::step]]
    if any(own.ndim != 1 or own.dtype.kind not in "iu" for own in labels):
        return None
    classes = int(max(own.max() for own in labels)) + 1
    shares = np.stack([np.bincount(own, minlength=classes) / len(own) for own in labels])
    first, second = np.triu_indices(len(shares), 1)
    return np.abs(shares[first] - shares[second]).sum(axis=1) / 2


def _moments(simulator: Simulator, params: Any, index: Any) -> tuple[Any, Any]:
    """⟨ḡ_i, ḡ_j⟩ and the mean of ‖g_i‖² over batches, from positions (B, N, batch)."""
    gradient, count = simulator.task.gradient, len(index)

    def of_client(client: Any) -> tuple[Any, Any]:
        def add(total: tuple[Any, Any], positions: Any) -> tuple[tuple[Any, Any], None]:
            (batch,) = [
                tuple(
                    array[0, 0] for array in simulator.gather(client[None], positions[None, None])
                )
            ]
            direction = dense(gradient(params, batch)[1])
            square = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(direction))
            return (jax.tree.map(jnp.add, total[0], direction), total[1] + square), None

        start = (jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
        (total, squares), _ = jax.lax.scan(add, start, index[:, client])
        return jax.tree.map(lambda leaf: leaf / count, total), squares / count

    mean, squares = jax.lax.map(of_client, jnp.arange(simulator.task.clients))
    rows = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(mean)]
    return sum(row @ row.T for row in rows), squares
