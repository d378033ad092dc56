"""Payments of the harm rule and of the norm profile, from what runs recorded, and what they deter.

The *harm rule* charges client i w_s · h_ij for its harm to client j in each round of block s. What
client j reported is paid to those who are neither i nor j, in equal shares: nobody's payment
depends on its own reports, and all payments sum to zero (N ≥ 3).

    p_i = Σ_j L_ij − (1/(N−2)) Σ_{k≠i} Σ_{j≠i,k} L_kj,    L_ij = Σ_s w_s h_ij,s.

The weights w_s say how much of a round's effect is left in the final model. They come from probes,
in which client i's messages of block k are scaled by a_ik = 1 ± h:

    E_ik = ∂(Σ_{j≠i} F_j(final))/∂a_ik ≈ Σ_{s≥k} w_s D_ik,s,   D_ik,s = ∂(Σ_{j≠i} h_ij,s)/∂a_ik,

by non-negative least squares, rows weighed by the inverse standard error of E over seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from harm.runs import Records
from verax.audit.judge.windows import interval
from verax.mechanism import (
    Blocks,
    ProfilePrices,
    Sensitivities,
    balance,
    common_profile,
    individual_profile,
)

Array = NDArray[np.float64]

#: (harm on one part of the evaluation data (…, K, N, N), norms (…, K, N)) → payments (…, N).
Rule = Callable[[Array, Array], Array]

#: ε and ε_o as shares of the honest loss, as in `verax audit`.
TOLERANCE = 0.01

#: A misreport *raises the others' loss* if it does so by more than this share.
RAISED = 0.005


def shared(levies: Array) -> Array:
    """What each client pays, (…, N), if i pays L_ij for its harm to j, (…, N, N)."""
    N = levies.shape[-1]
    if N < 3:
        raise ValueError(f"the harm rule has {N} clients, needs 3: sender, reporter and receiver")
    paid, reported = levies.sum(axis=-1), levies.sum(axis=-2)
    return paid - (paid.sum(axis=-1, keepdims=True) - paid - reported) / (N - 2)


def harm_payments(harm: Array, weights: Array) -> Array:
    """What each client pays under the harm rule, (…, N); weights are (K,) or (K, N)."""
    rows = np.broadcast_to(weights.reshape(len(weights), -1), (len(weights), harm.shape[-1]))
    return shared(np.einsum("...kij,ki->...ij", harm, rows))


def norm_payments(norms: Array, prices: Array) -> Array:
    """What each client pays under the norm rule at prices (K, N), (…, N)."""
    return balance(norms, prices).amounts.sum(axis=-2)


def larger_payments(one: Array, other: Array) -> Array:
    """The larger of two levies, each (…, K, N) or (…, 1, N), shared equally by the others."""
    return balance(np.maximum(one, other), 1.0).amounts.sum(axis=-2)


def _differences(values: Array, clients: int, width: float) -> Array:
    """(seeds, N · K · 2, …) of probes → central differences, (seeds, N, K, …)."""
    shaped = values.reshape(len(values), clients, -1, 2, *values.shape[2:])
    return (shaped[:, :, :, 0] - shaped[:, :, :, 1]) / width


class HarmWeights(NamedTuple):
    """Weights per block, (K,) or (K, N), and how much of E they explain."""

    weights: Array
    explained: float


#: Ways to fit the weights. "monotone" is the one above, with weights that do not fall toward the
#: end. The others differ from it in one thing each: "free" weights may fall; "anchored" ones end
#: with exactly 1, which is right for the last round; "by member" fits each client by itself;
#: "whole payment" replaces D by the derivative of all that i pays, less what it receives.
FITS = ("monotone", "free", "anchored", "by member", "whole payment")


def harm_weights(probes: Records, part: int, width: float, fit: str = "monotone") -> HarmWeights:
    """Weights that turn the harm of each round into harm to the final model.

    Args:
        probes: of all clients and blocks, scales 1 + h and 1 − h in turn, (seeds, N · K · 2, …).
        part: of the evaluation data on which members price.
        width: 2 h.
        fit: one of `FITS`.
    """
    N, K = np.shape(probes.norms)[-1], np.shape(probes.norms)[-2]
    final = _differences(np.asarray(probes.final[..., part], dtype=np.float64), N, width)
    harm = _differences(np.asarray(probes.harm[..., part], dtype=np.float64), N, width)
    clients = np.arange(N)
    effect = final.sum(axis=-1) - final[:, clients, :, clients].swapaxes(0, 1)  # (seeds, N, K)
    charged = shared(harm) if fit == "whole payment" else harm.sum(axis=-1)
    own = charged[:, clients, :, :, clients]  # (N, seeds, K, K): [i, seed, k, s]
    caused = own.mean(axis=1) * np.triu(np.ones((K, K)))
    wanted = effect.mean(axis=0)
    error = effect.std(axis=0, ddof=1) / np.sqrt(len(effect))
    trust = 1 / np.maximum(error, 1e-6 * np.max(error))  # a constant effect has no error
    steps = np.eye(K) if fit == "free" else np.tril(np.ones((K, K)))

    def fitted(who: NDArray[np.intp]) -> tuple[Array, float]:
        rows = (trust[who, :, None] * caused[who]).reshape(-1, K)
        goal = (trust[who] * wanted[who]).ravel()
        size = float(np.sqrt(np.sum(goal**2)))
        last = 1e4 * size * np.eye(K)[-1:] if fit == "anchored" else np.zeros((1, K))
        anchor = np.append(goal, last.sum())
        weights = steps @ nnls(np.concatenate([rows, last]) @ steps, anchor)[0]
        return weights, 1 - float(np.sum((goal - rows @ weights) ** 2)) / size**2

    if fit != "by member":
        return HarmWeights(*fitted(clients))
    each = [fitted(np.array([i])) for i in clients]
    return HarmWeights(
        np.stack([one[0] for one in each], axis=1), float(np.mean([one[1] for one in each]))
    )


def profiles(probes: Records, blocks: Blocks, width: float) -> tuple[ProfilePrices, ProfilePrices]:
    """The norm profile as an audit sets it: individual prices with the floor ½, and common ones."""
    N, K = np.shape(probes.norms)[-1], len(blocks)
    final = _differences(np.asarray(probes.final[..., 0], dtype=np.float64), N, width).mean(axis=0)
    norms = _differences(np.asarray(probes.norms, dtype=np.float64), N, width).mean(axis=0)
    reward = -final[np.arange(N), :, np.arange(N)]
    measures = np.moveaxis(norms, 3, 1) * np.triu(np.ones((K, K)))  # [i, j, k, s]
    known = Sensitivities(reward, measures)
    return individual_profile(known, blocks), common_profile(known, blocks)


class Evidence:
    """Misreports of single clients, or of pairs, on some seeds.

    Args:
        honest: (seeds, …).
        tried: (seeds, groups · D, …), the deviations of one group after those of another.
        groups: who deviates together, one tuple of clients each.
        reward: the part of the evaluation data on which rewards are counted.
        price: the part on which members price.
        worth: the deviators' true worth over the one that prices assume.
    """

    def __init__(
        self,
        honest: Records,
        tried: Records,
        groups: list[tuple[int, ...]],
        reward: int = 0,
        price: int = 0,
        worth: float = 1.0,
    ) -> None:
        self.groups, self.worth = groups, worth
        S, G = len(honest.norms), len(groups)

        def cut(values: Any) -> Array:
            array = np.asarray(values, dtype=np.float64)
            return array.reshape(S, G, -1, *array.shape[2:])

        self._honest = (
            np.asarray(honest.harm[..., price], dtype=np.float64),
            np.asarray(honest.norms, dtype=np.float64),
        )
        self._tried = (cut(tried.harm[..., price]), cut(tried.norms))
        self.losses = np.asarray(honest.final[..., reward], dtype=np.float64)  # (S, N)
        rises = self.losses[:, None, None] - cut(tried.final[..., reward])  # (S, G, D, N)
        self.finite = np.all(np.isfinite(rises), axis=(0, 3))  # (G, D); others diverged
        self.mine = np.zeros((G, self.losses.shape[1]), dtype=bool)
        for row, group in zip(self.mine, groups, strict=True):
            row[list(group)] = True
        self.own_rises = self._of_group(rises)  # (G, D, S)
        self.others_rises = np.moveaxis(rises.sum(axis=-1), 0, -1) - self.own_rises
        tolerances = TOLERANCE * self.losses.mean(axis=0)
        self.own_losses = self.mine @ self.losses.mean(axis=0)
        self.others_losses = ~self.mine @ self.losses.mean(axis=0)
        self.tolerances, self.others_tolerances = self.mine @ tolerances, ~self.mine @ tolerances

    def _of_group(self, values: Array) -> Array:
        """Sum over the members of the group that deviates, (S, G, D, N) → (G, D, S)."""
        return np.einsum("sgdn,gn->gds", np.nan_to_num(values), self.mine)

    def rises(self, rule: Rule) -> Array:
        """What deviators pay more than when honest, (G, D, S)."""
        honest = rule(*self._honest)[:, None, None]
        return self._of_group(rule(*map(np.nan_to_num, self._tried)) - honest)

    def contested(self, rises: Array) -> Array:
        """Gains less what is at nobody's expense, in tolerances, as an audit counts them, (G, D).

        A misreport is harmful and gains more than the tolerance exactly if this is more than 1.
        """
        welfare = (self.own_rises + self.others_rises).mean(axis=2)
        excused = np.maximum(welfare + (self.others_tolerances - self.tolerances)[:, None], 0.0)
        gains = (self.own_rises - rises).mean(axis=2) - excused
        return np.where(self.finite, gains / self.tolerances[:, None], -np.inf)

    def judge(self, rises: Array, labels: list[str]) -> dict[str, Any]:
        """Best gains in % of own honest loss: harmful, raising the others' loss, and all."""
        gains = (self.worth * self.own_rises - rises) / self.own_losses[:, None, None] / self.worth
        others = (self.others_rises + rises) / self.others_losses[:, None, None]
        mean = np.where(self.finite, gains.mean(axis=2), -np.inf)
        limit = -self.others_tolerances / self.others_losses
        kinds = {
            "harmful": others.mean(axis=2) < limit[:, None],
            "raising": -self.others_rises.mean(axis=2) / self.others_losses[:, None] > RAISED,
            "any": np.ones(mean.shape, dtype=bool),
        }
        found: dict[str, Any] = {}
        for kind, which in kinds.items():
            best = np.where(which, mean, -np.inf)
            g, d = np.unravel_index(int(np.argmax(best)), best.shape)
            if not np.isfinite(best[g, d]):
                found[kind] = None
                continue
            worst = interval(100 * gains[g, d])
            found[kind] = {
                "gain": worst.mean,
                "interval": [worst.low, worst.high],
                "clients": list(self.groups[g]),
                "what": labels[d],
                "others": 100 * float(others[g, d].mean()),
                "best by client": [
                    round(100 * float(row.max()), 3) if np.isfinite(row.max()) else None
                    for row in best
                ],
            }
        return found
