r"""How much of the squared norms is noise, and what a member gains by sending less of it.

With samples drawn at random, E‖g‖² = S + V: the signal and the noise. Let s = S/(S + V) be the
signal's share. A price C at which scale 1 is stationary leaves a member that sends the signal alone

    C V = C E‖g‖² (1 − s)          at scale 1, and
    C E‖g‖² (1/s − 1)              at its best scale, 1/s,

and no multiple of the price repairs it. S is measured on the runs of a member that trains on all
its samples. Where an engine does not have the data, it follows from those of a member that sends
the moving average of its updates, v_t = Σ_r w_r g_r with Σ_r w_r = 1: the noise of v_t is κ_t V
with κ_t = Σ_r w_r² = (1 − β)(1 + β^t) / ((1 + β)(1 − β^t)), so that

    s = (E‖v‖²/E‖g‖² − κ) / (1 − κ).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verax.audit.judge.evidence import Evidence
from verax.audit.judge.judgement import Judgement
from verax.game import LargerBatch, Policy, Reporting
from verax.mechanism import Blocks

Array = NDArray[np.float64]

#: The larger batch for which the leak is predicted, in batches.
LARGER = 4

#: From which share of the honest reward on a leak is worth a sentence.
NOTICEABLE = 0.01

#: The misreport that sends the signal alone.
FULL_BATCH = LargerBatch(0)


@dataclass(frozen=True, eq=False)
class NoiseLeak:
    """What one member gains by sending less noise, as shares of its honest reward.

    Attributes:
        client: the member.
        shares: the signal's share of its squared norms in each block, (K,).
        predicted: C V over the run, at the proposed price.
        measured: the gain of the misreport at scale 1.
        predicted_best: the same at the best scale; None unless the proposed price is a profile, at
            which scale 1 is stationary.
        measured_best: the largest gain of the misreport over the scales that were tried.
        larger_batch: what would be predicted at scale 1 with batches `LARGER` times as large.
        charged: C E‖g‖² in each block, (K,).
        source: the misreport in words.
    """

    client: int
    shares: Array
    predicted: float
    measured: float
    predicted_best: float | None
    measured_best: float
    larger_batch: float
    charged: Array
    source: str

    def with_shares(self, shares: Array) -> float:
        """What would be predicted at scale 1 with other shares of the signal.

        A price that is set anew charges as much as before: C E‖g‖² follows from the temptation.
        """
        return float(self.charged @ (1 - shares))


def leak(price: ArrayLike, norms: ArrayLike, share: ArrayLike) -> tuple[Array, Array]:
    """C E‖g‖² (1 − s) and C E‖g‖² (1/s − 1).

    Args:
        price: C.
        norms: E‖g‖².
        share: s, the signal's share of it.
    """
    charged = np.asarray(price, dtype=np.float64) * np.asarray(norms, dtype=np.float64)
    s = np.asarray(share, dtype=np.float64)
    return charged * (1 - s), charged * (1 / s - 1)


def share_in_batches(share: ArrayLike, factor: float) -> Array:
    """The signal's share with batches so many times as large: the noise falls by the factor."""
    return 1 / (1 + (1 / np.asarray(share, dtype=np.float64) - 1) / factor)


def noise_of_average(memory: float, rounds: int) -> Array:
    """κ_t of a bias-corrected moving average, t = 1 … T: the share of the noise that is left."""
    past = memory ** np.arange(1, rounds + 1)
    return (1 - memory) * (1 + past) / ((1 + memory) * (1 - past))


def noise_leaks(judgement: Judgement) -> list[NoiseLeak]:
    """The leak of every deviating member; empty if nothing with less noise was tried."""
    evidence, blocks = judgement.evidence, judgement.plan.blocks
    known = [(d, one) for d, one in enumerate(evidence.deviations) if _memory(one) is not None]
    if not known or judgement.main.rule.reads != "norms":
        return []
    # Of several, the full batch; else the largest memory.
    d, quiet = max(known, key=lambda pair: _memory(pair[1]) or 0.0)
    same = [e for e, one in enumerate(evidence.deviations) if _unscaled(one) == _unscaled(quiet)]
    stationary = judgement.best.kind.endswith("profile")
    prices = judgement.best.price.times(judgement.multiplier).per_round()
    prices = np.broadcast_to(prices, (blocks.rounds, judgement.plan.task.clients))
    gains = judgement.best.gains_at(judgement.multiplier)
    leaks: list[NoiseLeak] = []
    for k, client in enumerate(judgement.plan.deviators):
        honest = _norms(evidence, client)
        runs = evidence.deviation_runs(k, d)
        sent = np.mean([np.asarray(one.statistics.norms) for one in runs], axis=0)
        shares = signal_shares(blocks.sums(honest), blocks.sums(sent[:, client]), quiet, blocks)
        by_round = np.repeat(shares, blocks.lengths)
        at_one, best = leak(prices[:, client], honest, by_round)
        size = float(evidence.reward_sizes[client])
        charged = blocks.sums(prices[:, client] * honest) / size
        leaks.append(
            NoiseLeak(
                client,
                shares,
                float(at_one.sum()) / size,
                float(gains[k, d]) / size,
                float(best.sum()) / size if stationary else None,
                float(gains[k, same].max()) / size,
                float(charged @ (1 - share_in_batches(shares, LARGER))),
                charged,
                evidence.labels[d],
            )
        )
    return leaks


def _memory(reporting: Reporting) -> float | None:
    """1 for a full batch, β for a moving average at scale 1, None for anything else."""
    if isinstance(reporting, LargerBatch):
        return 1.0 if reporting.batches == 0 and reporting.a == 1 else None
    if isinstance(reporting, Policy) and reporting == Policy(memory=reporting.memory, own=(1.0,)):
        return reporting.memory or None
    return None


def _unscaled(reporting: Reporting) -> object:
    """What a misreport is, its scale aside."""
    if isinstance(reporting, LargerBatch):
        return reporting.batches
    if isinstance(reporting, Policy) and reporting.own == (1.0,) and len(reporting.scale) == 1:
        return reporting.memory
    return reporting


def _norms(evidence: Evidence, client: int) -> Array:
    """A client's honest squared norms, mean over seeds, (T,)."""
    runs = [np.asarray(one.statistics.norms) for one in evidence.honest_runs]
    return np.mean(runs, axis=0)[:, client]


def signal_shares(honest: Array, sent: Array, quiet: Reporting, blocks: Blocks) -> Array:
    """The signal's share in each block, within (0, 1], (K,).

    Args:
        honest: sums of squared norms over the blocks, (K,).
        sent: those of a member that sends less noise.
        quiet: how it does so.
        blocks: of rounds.
    """
    ratio = sent / np.maximum(honest, np.finfo(float).tiny)
    if isinstance(quiet, Policy):
        kappa = blocks.sums(noise_of_average(quiet.memory, blocks.rounds)) / blocks.lengths
        ratio = np.where(kappa < 1, (ratio - kappa) / np.maximum(1 - kappa, 1e-12), 1.0)
    return np.clip(ratio, 1e-3, 1.0)
