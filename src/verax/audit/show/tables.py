"""The tables of an audit as plain JSON values: what was tried, what was searched, noise."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from verax.audit.judge.judgement import Judgement
from verax.audit.judge.noise import noise_leaks
from verax.audit.judge.second_order import block_responses
from verax.audit.judge.spot import propose_spot_checks
from verax.audit.judge.tried import strongest_misreports
from verax.audit.judge.windows import interval
from verax.audit.search import FoundResponse, SearchResults


def tables(judgement: Judgement, found: SearchResults) -> dict[str, Any]:
    """All of them, by their names in the summary."""
    return {
        "tried": _tried(judgement),
        "search": [_response(judgement, one) for one in found.responses],
        "absences": [_response(judgement, one) for one in found.absences],
        "pairs": _pairs(judgement, found),
        "everybody": _everybody(judgement, found),
        "second_order": _second_order(judgement),
        "noise": _noise(judgement, found),
        "spot": _spot(judgement, found),
    }


def strongest_found(shown: dict[str, Any]) -> dict[str, Any] | None:
    """The searched policy or absence that gains most of those that the proposed price leaves."""
    left = [one for one in (*shown["search"], *shown["absences"]) if one["price"] == "proposed"]
    left = [one for one in left if one["undeterred"]]
    return max(left, key=lambda one: one["gain_share"], default=None)


def interval_of(values: ArrayLike) -> dict[str, float]:
    """Mean and 95 % interval over seeds."""
    return interval(values)._asdict()


def _tried(judgement: Judgement) -> list[dict[str, Any]]:
    """The strongest misreport of every kind, as shares of honest rewards."""
    return [
        {
            "kind": one.kind,
            "tried": one.tried,
            "client": one.client,
            "name": judgement.subject.names[one.client],
            "label": one.label,
            "gain_share": interval_of(one.gains),
            "others_share": interval_of(one.others),
            "harmful": one.harmful,
        }
        for one in strongest_misreports(judgement)
    ]


def _response(judgement: Judgement, found: FoundResponse) -> dict[str, Any]:
    """A best response that the search found, on the judging seeds."""
    size = float(judgement.evidence.reward_sizes[found.client])
    return {
        "price": found.price,
        "client": found.client,
        "name": judgement.subject.names[found.client],
        "gain": interval_of(found.gains),
        "gain_share": float(found.gains.mean()) / size,
        "others_gain": interval_of(found.others),
        "harmful": found.harmful(judgement),
        "undeterred": found.undeterred(judgement),
        "most_hurt": _most_hurt(judgement, found),
        "words": found.reporting.describe(judgement.plan.rounds),
        "scales": _scales(found, judgement.plan.rounds),
        "policy": json.loads(found.reporting.text),
        "runs": found.runs,
    }


def _most_hurt(judgement: Judgement, found: FoundResponse) -> dict[str, Any] | None:
    """The other member that loses most by a policy, and its loss; None if all others gain."""
    member = found.most_hurt
    gain = found.rises[:, member]
    if float(gain.mean()) >= 0:
        return None
    size = float(judgement.evidence.reward_sizes[member])
    return {
        "client": member,
        "name": judgement.subject.names[member],
        "gain_share": interval_of(gain / size),
    }


def _scales(found: FoundResponse, rounds: int) -> list[float]:
    """The policy's scale in every round, for the figure of the best liar."""
    parameters = found.reporting.parameters(rounds, np.random.default_rng(0))
    scales = parameters.get("scale", found.reporting.scales(rounds))
    return [round(float(value), 4) for value in scales]


def _pairs(judgement: Judgement, found: SearchResults) -> list[dict[str, Any]]:
    sizes, tolerances = judgement.evidence.reward_sizes, judgement.evidence.tolerances
    rows: list[dict[str, Any]] = []
    for one in found.pairs:
        own = list(one.members)
        others_size = float(sizes.sum() - sizes[own].sum())
        others_tolerance = float(tolerances.sum() - tolerances[own].sum())
        rows.append(
            {
                "members": own,
                "names": [judgement.subject.names[i] for i in own],
                "gain_share": interval_of(one.gains / sizes[own].sum()),
                "others_share": (interval_of(one.others / others_size) if others_size else None),
                "harmful": bool(one.others.mean() < -others_tolerance) and others_size > 0,
                "scales": np.round(one.scales, 3).tolist(),
                "runs": one.runs,
            }
        )
    return rows


def _everybody(judgement: Judgement, found: SearchResults) -> list[dict[str, Any]]:
    """Where play ended; rewards as shares of honest rewards."""
    sizes = judgement.evidence.reward_sizes
    return [
        {
            "price": one.price,
            "start": one.start,
            "settled": one.settled,
            "scales": np.round(one.scales, 3).tolist(),
            "rise_by_member": [interval_of(own) for own in (one.rewards / sizes).T],
            "rise": interval_of(one.rewards.sum(axis=1) / sizes.sum()),
        }
        for one in found.equilibria
    ]


def _second_order(judgement: Judgement) -> list[dict[str, Any]]:
    """How utilities respond to the scale in one block of rounds, as shares of honest rewards."""
    return [
        {
            "client": one.client,
            "name": judgement.subject.names[one.client],
            "first": one.first,
            "last": one.last,
            "second_difference": interval_of(one.second_difference),
            "scale": one.scale,
            "gain_share": interval_of(one.gain),
        }
        for one in block_responses(judgement)
    ]


def _noise(judgement: Judgement, found: SearchResults) -> list[dict[str, Any]]:
    measured = {one.client: one.shares for one in found.larger_batches}
    return [
        {
            "client": one.client,
            "name": judgement.subject.names[one.client],
            "source": one.source,
            "signal_share": np.round(one.shares, 4).tolist(),
            "predicted": one.predicted,
            "measured": one.measured,
            "predicted_best": one.predicted_best,
            "measured_best": one.measured_best,
            "predicted_in_batches_4_times_as_large": one.larger_batch,
            "measured_in_batches_4_times_as_large": (
                one.with_shares(measured[one.client]) if one.client in measured else None
            ),
        }
        for one in noise_leaks(judgement)
    ]


def _spot(judgement: Judgement, found: SearchResults) -> dict[str, Any] | None:
    """The spot checks that are proposed, beside those that were compared."""
    proposal = propose_spot_checks(judgement, found.fined_choosing, found.fined_judging)
    return None if proposal is None else asdict(proposal)
