"""Pay by contribution: what leaving out each message of a round would do, and payments by it.

In a round with messages m_1 … m_N the server makes a model of all messages, and for each i a model
of all messages but m_i. With V(θ) the mean over members of their evaluation losses, the
*contribution* of member i to the round is

    c_i = V(model without m_i) − V(model of the round),

zero for a member that was absent. Over the run member i pays

    p_i = k Σ_t ( (1/(N−1)) Σ_{j≠i} c_j,t − c_i,t ),

so that it receives k times its own contributions less the mean of the others', and all payments
sum to zero. This is the cheap form of Shapley pay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.audit.judge.evidence import Evidence
from verax.audit.plan import Plan
from verax.audit.run.record import RecordedRun, read_table
from verax.audit.run.simulated import SimulatorEngine, TaskSubject
from verax.learning import Simulator, Task

Array = NDArray[np.float64]


class ContributionSimulator(Simulator):
    """A simulator whose records hold contributions where training losses stand otherwise."""

    def _round(
        self,
        reporting: Any,
        key: Any,
        shared: Any,
        params: Any,
        memory: Any,
        averages: Any,
        client: Any,
        scales: Any,
        absent: Any,
        parameters: Any,
        own_index: Any,
    ) -> Any:
        N, one_round = self.task.clients, super()._round
        missing = jnp.zeros(N, dtype=bool) if absent is None else absent
        nobody_then_each = jnp.concatenate([jnp.zeros((1, N), bool), jnp.eye(N, dtype=bool)])

        def without(left_out: Any) -> Any:
            gone = missing | left_out
            state = (params, memory, averages)
            return one_round(
                reporting, key, shared, *state, client, scales, gone, parameters, own_index
            )

        # Local training does not depend on who is left out, so that it is computed once.
        results = jax.vmap(without)(nobody_then_each)
        losses = jax.vmap(lambda model: jnp.mean(self.test_losses(model)))(results.params)
        result = jax.tree.map(lambda leaf: leaf[0], results)
        return result._replace(record=result.record._replace(loss=losses[1:] - losses[0]))


class ContributionEngine(SimulatorEngine):
    """Computes the runs of an audit; contributions are those under the audited aggregator."""

    def __init__(self, plan: Plan, task: Task, folder: Path) -> None:
        super().__init__(plan, task, folder)
        self._simulators[""] = ContributionSimulator(task, plan.protocol.make(), plan.rounds)


class ContributionSubject(TaskSubject):
    """A task whose audit also records contributions."""

    def engine(self, plan: Plan, folder: Path) -> ContributionEngine:
        """Simulators for all aggregators of the plan."""
        return ContributionEngine(plan, self.task, folder)


def load_contributions(runs: list[RecordedRun], folder: Path) -> dict[int, Array]:
    """Contributions summed over the rounds, (N,), by the number of the run.

    Runs that branched off the honest run of their seed have its contributions before that.
    """
    table = read_table(folder / "rounds.parquet")
    number = table["run"].to_numpy()
    losses = table["training_loss"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    values = losses.reshape(len(number), -1).astype(np.float64)
    audited = [one.run for one in runs if not one.run.aggregator]
    by_run = {run.number: values[number == run.number] for run in audited}
    honest = {run.seed: by_run[run.number] for run in audited if run.role == "honest"}
    return {
        run.number: by_run[run.number].sum(axis=0) + honest[run.seed][: run.branch].sum(axis=0)
        for run in audited
    }


def payments(contributions: ArrayLike) -> Array:
    """What each member pays at k = 1, from contributions of shape (…, N)."""
    own = np.asarray(contributions, dtype=np.float64)
    others = (own.sum(axis=-1, keepdims=True) - own) / (own.shape[-1] - 1)
    return others - own


def honest_payments(evidence: Evidence, contributions: dict[int, Array]) -> Array:
    """What honest members pay at k = 1, (S, N)."""
    return payments([contributions[one.run.number] for one in evidence.honest_runs])


def rises(evidence: Evidence, contributions: dict[int, Array]) -> Array:
    """What each deviator pays more than when honest at k = 1, (C, D, S)."""
    honest = honest_payments(evidence, contributions)
    paid = [
        [
            payments([contributions[one.run.number] for one in evidence.deviation_runs(k, d)])
            for d in range(len(evidence.deviations))
        ]
        for k in range(len(evidence.plan.deviators))
    ]
    more = np.array(paid) - honest  # (C, D, S, N)
    return np.stack([more[k, ..., client] for k, client in enumerate(evidence.plan.deviators)])
