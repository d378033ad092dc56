"""Which spot checks an audit proposes: the fine, the number of rounds, and what a check costs.

Drawn rounds are fined by c W/k · ‖m − g‖² (`verax.mechanism.spot_checks`), so that the expected
fine is c times the price on ‖m − g‖² whatever k is. On the choosing seeds, the smallest c of a few
is taken under which no harmful misreport gains more than its tolerance. The number of draws decides
only how much a fine varies: k is the smallest number at which the standard deviation of what the
strongest misreports pay is at most its mean, k ≥ Σ_t P_t d_t² / (Σ_t P_t d_t)² − 1 with
d_t = ‖m_t − g_t‖². Whoever refuses a check should pay at least what any draw could fine it:
c W max_t d_t, the most of all misreports that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.amounts import money
from verax.audit.judge.candidates import Candidate, with_spot_checks
from verax.audit.judge.judgement import FINES, Judgement
from verax.mechanism import SpotAudit

Array = NDArray[np.float64]

#: The tolerance for apps that are exact on one machine: float32 on another one.
_SMALLEST_TOLERANCE = 1e-6

#: The most draws that are proposed; each costs one client call.
_MOST_ROUNDS = 10


@dataclass(frozen=True, eq=False)
class FinedPolicy:
    """A policy that a search found, on some seeds.

    Attributes:
        client: whose.
        rewards: what its reward rises by, in money, (S,).
        paid: what it pays more at the proposed price, (S,).
        fined: its expected fine at c = 1, (S,).
    """

    client: int
    rewards: Array
    paid: Array
    fined: Array


@dataclass(frozen=True)
class SpotOption:
    """Spot checks with or without the proposed price.

    Attributes:
        with_price: whether the proposed price is charged, too.
        fine: c, a multiple of the proposed price.
        worst_share: the largest harmful gain of what was tried, as a share of the honest reward.
        searched_share: the largest gain of what was searched against the price alone; None if
            nothing was.
        holds: whether both are within the tolerance.
    """

    with_price: bool
    fine: float
    worst_share: float
    searched_share: float | None
    holds: bool


@dataclass(frozen=True)
class SpotProposal:
    """What an audit proposes for the section `[spot]` of the terms.

    Attributes:
        options: every fine that was compared.
        chosen: the proposed one: the smallest fine that holds, rather with the price than alone.
        rounds: k.
        calls: client calls that the checks of a run take.
        run_calls: client calls of the run itself.
        honest_levy: what an honest member would be fined at most, in money, times the square of the
            relative error of recomputation; a tolerance of that error makes it zero.
        error: that error, if the audit measured it.
        honest_payment: what it would cost an honest member without a tolerance.
        tolerance: the relative error that should cost nothing.
        fee: what a refusal, a mismatch or something missing should cost: the largest fine of any
            draw for what was tried.
    """

    options: tuple[SpotOption, ...]
    chosen: SpotOption
    rounds: int
    calls: int
    run_calls: int
    honest_levy: float
    error: float | None
    honest_payment: float | None
    tolerance: float
    fee: float


def propose_spot_checks(
    judgement: Judgement, choosing: Sequence[FinedPolicy], judging: Sequence[FinedPolicy]
) -> SpotProposal | None:
    """Choose among fines; None if the record does not say how far messages are from the truth.

    Args:
        judgement: of the prices.
        choosing: what was searched, on the choosing seeds; may be empty.
        judging: the same on the judging seeds.
    """
    if not judgement.evidence.has(SpotAudit()):
        return None
    plan, best, multiple = judgement.plan, judgement.best, judgement.multiplier
    candidates = _options(judgement.choice, multiple, choosing)
    options = _options(best, multiple, judging)
    holding = [i for i, option in enumerate(candidates) if option.holds]
    leaves = [max(one.worst_share, one.searched_share or 0.0) for one in candidates]
    chosen = options[holding[0] if holding else int(np.argmin(leaves))]
    rounds = _draws(judgement.choice, multiple)
    norms = np.stack([np.asarray(run.statistics.norms) for run in best.evidence.honest_runs])
    levies = (multiple * best.price.per_round() * norms.mean(axis=0)).sum(axis=0)
    calls, run_calls = plan.task.clients * rounds, plan.task.clients * plan.rounds
    honest = chosen.fine * float(levies.max())
    error = judgement.description.error
    return SpotProposal(
        options,
        chosen,
        rounds,
        calls,
        run_calls,
        honest,
        error,
        None if error is None else honest * error**2,
        _tolerance(error),
        chosen.fine * _largest_draw(best, multiple),
    )


def spot_comment(spot: Mapping[str, Any] | None, currency: str) -> str:
    """The section `[spot]` of a proposal, as comments for the end of the terms.

    Args:
        spot: a `SpotProposal` as a table; None if there is no proposal.
        currency: of the amounts.
    """
    if spot is None:
        return ""
    chosen, fee = spot["chosen"], f"{spot['fee']:.3g}"
    leaves = max(chosen["worst_share"], chosen["searched_share"] or 0.0)
    price = "with these prices" if chosen["with_price"] else "in place of these prices"
    honest = ["How exactly an update can be computed again was not measured;"]
    if spot["error"] == 0:
        honest = ["An update that was computed again on the same machine was exactly the same;"]
    elif spot["error"] is not None:
        honest = [
            f"An update that was computed again differed by {spot['error']:.2g} of its norm: that",
            "would cost an honest member at most "
            f"{money(spot['honest_payment'], currency)} without a tolerance;",
        ]
    lines = [
        f"Spot checks {price} leave {leaves:.2%} of the honest reward to everything that was",
        f"tried or searched. They take {spot['calls']} client calls after a run of "
        f"{spot['run_calls']}.",
        *honest,
        "`verax commit` tests it for every member. The three fees are the largest fine of any draw",
        "for what was tried. To use spot checks, name an auditor and remove the # of what follows.",
        "",
        "[evidence]",
        'signed = "required"',
        "",
        "[spot]",
        'auditor = "…"  # as `verax ledger key auditor.pem --name auditor` prints it',
        f"fine = {chosen['fine']!r}",
        f"rounds = {spot['rounds']}",
        f"tolerance = {spot['tolerance']!r}",
        *(f"{name} = {float(fee)!r}" for name in ("refused", "mismatch", "missing")),
    ]
    return "\n" + "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _options(
    candidate: Candidate, multiple: float, searched: Sequence[FinedPolicy]
) -> tuple[SpotOption, ...]:
    """All fines with the price, then all fines alone."""
    checked = with_spot_checks(candidate, FINES)
    kinds = [(with_price, fine) for with_price in (True, False) for fine in FINES]
    return tuple(
        _option(one, multiple, with_price, fine, searched)
        for one, (with_price, fine) in zip(checked, kinds, strict=True)
    )


def _option(
    candidate: Candidate,
    multiple: float,
    with_price: bool,
    fine: float,
    searched: Sequence[FinedPolicy],
) -> SpotOption:
    evidence = candidate.evidence
    sizes = evidence.reward_sizes
    own = sizes[list(evidence.plan.deviators)][:, None]
    harmful = candidate.harmful(multiple)
    gains = np.where(harmful, candidate.gains_at(multiple) / own, 0.0)
    worst = max(float(gains.max()), 0.0)
    found = [
        float((one.rewards - with_price * one.paid - fine * one.fined).mean() / sizes[one.client])
        for one in searched
    ]
    most = max(found) if found else None
    limit = evidence.plan.prices.tolerance
    return SpotOption(with_price, fine, worst, most, max(worst, most or 0.0) <= limit)


def _tolerance(error: float | None) -> float:
    """A power of ten, at least ten times the error that was measured: other machines add to it."""
    if not error:
        return _SMALLEST_TOLERANCE
    return min(max(10.0 ** math.ceil(math.log10(10 * error)), _SMALLEST_TOLERANCE), 0.1)


def _largest_draw(best: Candidate, multiple: float) -> float:
    """W max_t d_t at c = 1, the most of all members and misreports, of means over seeds."""
    evidence, most = best.evidence, 0.0
    clients = evidence.plan.task.clients
    prices = best.price.per_round()
    prices = multiple * np.broadcast_to(prices, (len(prices), clients)).sum(axis=0)
    for k, client in enumerate(evidence.plan.deviators):
        for d in range(len(evidence.deviations)):
            runs = evidence.deviation_runs(k, d)
            distances = [np.asarray(run.statistics.misreport)[:, client] for run in runs]
            most = max(most, float(prices[client] * np.mean(distances, axis=0).max()))
    return most


def _draws(best: Candidate, multiple: float) -> int:
    """The number k for each member's best misreport at the price alone; the largest of them."""
    evidence, needed = best.evidence, 0.0
    prices = best.price.per_round()
    for k, client in enumerate(evidence.plan.deviators):
        d = int(np.argmax(best.gains_at(multiple)[k]))
        runs = evidence.deviation_runs(k, d)
        distances = np.mean([np.asarray(run.statistics.misreport)[:, client] for run in runs], 0)
        own = np.broadcast_to(prices, (len(prices), evidence.plan.task.clients))[:, client]
        own = own[len(own) - len(distances) :]  # a run that branches off has only its last rounds
        mean = float(own @ distances)
        if mean > 0:
            needed = max(needed, float(own.sum()) * float(own @ distances**2) / mean**2 - 1)
    return min(max(math.ceil(needed), 1), _MOST_ROUNDS, evidence.plan.rounds)
