"""What a search found, kept in the folder of the audit, so that the same command finds it there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from verax.audit.judge.judgement import Judgement
from verax.audit.run.subject import Progress, Subject
from verax.audit.search.search import QUICK_WORK, FoundResponse, search
from verax.files import write_text
from verax.game import Policy, reporting_of


def responses(
    judgement: Judgement, subject: Subject, folder: Path, progress: Progress
) -> list[FoundResponse]:
    """The best responses at the judged prices.

    An empty list if the plan asks for no search, or for a quick one where a run takes long.
    """
    plan = judgement.plan
    if plan.deviations.search == "off":
        return []
    path = folder / "search.json"
    of = {"plan": plan.to_toml(), "record": judgement.digest, "price": judgement.multiplier}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["of"] == of:
            return [_from_json(one) for one in kept["found"]]
    runner = subject.runner(plan)
    if plan.deviations.search == "quick" and runner.work > QUICK_WORK:
        return []
    found = search(judgement, runner, progress)
    kept = {"of": of, "found": [_to_json(one) for one in found]}
    write_text(path, json.dumps(kept, indent=1))
    return found


def _to_json(found: FoundResponse) -> dict[str, Any]:
    return {
        "price": found.price,
        "client": found.client,
        "policy": found.policy.text,
        "gains": found.gains.tolist(),
        "others": found.others.tolist(),
        "runs": found.runs,
    }


def _from_json(kept: dict[str, Any]) -> FoundResponse:
    policy = reporting_of(kept["policy"])
    assert isinstance(policy, Policy)
    gains, others = np.array(kept["gains"]), np.array(kept["others"])
    return FoundResponse(kept["price"], kept["client"], policy, gains, others, kept["runs"])
