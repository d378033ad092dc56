"""Everything that the search found, kept in the audit's folder for the same command."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.audit.judge.judgement import Judgement
from verax.audit.judge.spot import FinedPolicy
from verax.audit.run.subject import Progress, Runner, Subject
from verax.audit.search.coalitions import FoundPair, search_pairs
from verax.audit.search.effort import Effort, effort_of, searches_together
from verax.audit.search.everybody import FoundEquilibrium, price_of, search_equilibria
from verax.audit.search.fined import fined
from verax.audit.search.larger_batch import LargerBatchShares, larger_batches
from verax.audit.search.responses import FoundResponse, judged, search
from verax.audit.search.utilities import Utilities
from verax.files import write_text
from verax.game import Absent, reporting_of


@dataclass(frozen=True, eq=False)
class SearchResults:
    """What a search found; all lists are empty if nothing was searched.

    Attributes:
        responses: the best policy of each member at each price.
        absences: each member that stays away whenever it expects to pay, at the proposed price.
        pairs: the best joint policy of each pair of members at the proposed price.
        equilibria: where everybody's best responses lead, at each price.
        fined_choosing: what spot checks fine the responses at the proposed price, on the seeds
            that choose.
        fined_judging: the same on the seeds that judge.
        larger_batches: the signal's shares with larger batches.
    """

    responses: list[FoundResponse] = field(default_factory=list[FoundResponse])
    absences: list[FoundResponse] = field(default_factory=list[FoundResponse])
    pairs: list[FoundPair] = field(default_factory=list[FoundPair])
    equilibria: list[FoundEquilibrium] = field(default_factory=list[FoundEquilibrium])
    fined_choosing: list[FinedPolicy] = field(default_factory=list[FinedPolicy])
    fined_judging: list[FinedPolicy] = field(default_factory=list[FinedPolicy])
    larger_batches: list[LargerBatchShares] = field(default_factory=list[LargerBatchShares])


def searched(
    judgement: Judgement, subject: Subject, folder: Path, progress: Progress
) -> SearchResults:
    """Search for what gains most at the judged prices, or read it where it was found before.

    Where a run takes long, a quick search looks at single members alone, or at nothing.
    """
    plan = judgement.plan
    if plan.deviations.search == "off":
        return SearchResults()
    path = folder / "search.json"
    of = {"plan": plan.to_toml(), "record": judgement.digest, "price": judgement.multiplier}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["of"] == of:
            return _from_json(kept)
    runner = subject.runner(plan)
    effort, larger = effort_of(plan, runner.work), larger_batches(judgement, subject)
    found = SearchResults(larger_batches=larger)
    if effort is not None:
        found = replace(_searched(judgement, runner, effort, progress), larger_batches=larger)
    write_text(path, json.dumps({"of": of, **_to_json(found)}, indent=1))
    return found


def _searched(
    judgement: Judgement, runner: Runner, effort: Effort, progress: Progress
) -> SearchResults:
    """Everything that is searched for with this effort."""
    plan = judgement.plan
    rule, price = price_of(judgement, "proposed")
    allowances = np.repeat(judgement.allowances, plan.blocks.lengths, axis=0)
    utilities = Utilities(plan, runner, rule, price, allowances)
    together = searches_together(plan) and effort.compared > 0
    responses = search(judgement, runner, effort, progress)
    return SearchResults(
        responses,
        _absences(judgement, utilities),
        search_pairs(judgement, utilities, effort, progress) if together else [],
        search_equilibria(judgement, runner, effort, progress) if together else [],
        fined(judgement, runner, responses, plan.seeds.choosing),
        fined(judgement, runner, responses, plan.seeds.judging),
    )


def _absences(judgement: Judgement, utilities: Utilities) -> list[FoundResponse]:
    """What members gain that stay away in the blocks in which they expect to pay."""
    plan = judgement.plan
    paid = plan.blocks.sums(judgement.choice.honest)
    members: list[int] = []
    reportings: list[Absent] = []
    for client in plan.deviators:
        costly = np.repeat(paid[:, client] > 0, plan.blocks.lengths)
        if costly.any() and plan.task.clients > 2:  # of two, one alone would be left
            members.append(client)
            reportings.append(Absent(_stretches(costly)))
    if not members:
        return []
    return judged("proposed", members, reportings, utilities, plan, 0)


def _stretches(rounds: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """First and last of consecutive rounds that are marked."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rounds, [False]]).astype(int)))
    return tuple((int(a) + 1, int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))


def _to_json(found: SearchResults) -> dict[str, Any]:
    return {
        "responses": [_response_to_json(one) for one in found.responses],
        "absences": [_response_to_json(one) for one in found.absences],
        "pairs": [
            {
                "members": list(one.members),
                "scales": one.scales.tolist(),
                "gains": one.gains.tolist(),
                "others": one.others.tolist(),
                "runs": one.runs,
            }
            for one in found.pairs
        ],
        "equilibria": [
            {
                "price": one.price,
                "start": one.start,
                "scales": one.scales.tolist(),
                "settled": one.settled,
                "rewards": one.rewards.tolist(),
            }
            for one in found.equilibria
        ],
        "fined_choosing": [_fined_to_json(one) for one in found.fined_choosing],
        "fined_judging": [_fined_to_json(one) for one in found.fined_judging],
        "larger_batches": [
            {"client": one.client, "shares": one.shares.tolist()} for one in found.larger_batches
        ],
    }


def _fined_to_json(one: FinedPolicy) -> dict[str, Any]:
    return {"client": one.client} | {
        name: getattr(one, name).tolist() for name in ("rewards", "paid", "fined")
    }


def _fined_from_json(kept: dict[str, Any]) -> FinedPolicy:
    numbers = (np.array(kept[name]) for name in ("rewards", "paid", "fined"))
    return FinedPolicy(kept["client"], *numbers)


def _from_json(kept: dict[str, Any]) -> SearchResults:
    return SearchResults(
        [_response_from_json(one) for one in kept["responses"]],
        [_response_from_json(one) for one in kept["absences"]],
        [
            FoundPair(
                tuple(one["members"]),
                np.array(one["scales"]),
                np.array(one["gains"]),
                np.array(one["others"]),
                one["runs"],
            )
            for one in kept["pairs"]
        ],
        [
            FoundEquilibrium(
                one["price"],
                one["start"],
                np.array(one["scales"]),
                one["settled"],
                np.array(one["rewards"]),
            )
            for one in kept["equilibria"]
        ],
        [_fined_from_json(one) for one in kept["fined_choosing"]],
        [_fined_from_json(one) for one in kept["fined_judging"]],
        [
            LargerBatchShares(one["client"], np.array(one["shares"]))
            for one in kept["larger_batches"]
        ],
    )


def _response_to_json(found: FoundResponse) -> dict[str, Any]:
    return {
        "price": found.price,
        "client": found.client,
        "reporting": found.reporting.text,
        "rises": found.rises.tolist(),
        "runs": found.runs,
    }


def _response_from_json(kept: dict[str, Any]) -> FoundResponse:
    return FoundResponse(
        kept["price"],
        kept["client"],
        reporting_of(kept["reporting"]),
        np.array(kept["rises"]),
        kept["runs"],
    )
