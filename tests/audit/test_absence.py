"""The audit proposes what absence should cost, from what the absences that it tried gain."""

from dataclasses import replace

import pytest

from verax.audit import Plan, audit
from verax.audit.judge.propose import absence_policy, propose, terms_toml
from verax.audit.plan.task import task_of

from .conftest import RESCALINGS

PLAN = Plan.of(
    **RESCALINGS | {"absences": ((0.0, 0.5), (0.5, 1.0)), "rules": ("squared-norm",)},
    model="softmax",
    rounds=8,
    step=0.3,
    scales=(0.0, 1.0, 2.0),
    phases=(),
    surges=(),
    noises=(),
    setting_seeds=1,
    choosing_seeds=1,
    judging_seeds=2,
)


@pytest.fixture(scope="module")
def judgement(tmp_path_factory):
    folder = tmp_path_factory.mktemp("absence") / "audit"
    return audit(task_of(PLAN), PLAN, out=folder, workers=1).judgement


def saving(judgement, share):
    """The same judgement if whoever is absent saved this share of its reward in payments."""
    best, deviators = judgement.best, list(judgement.plan.deviators)
    sizes = judgement.evidence.reward_sizes[deviators][:, None, None]
    rises = best.rises.copy()
    rises[:, [label.startswith("absent") for label in judgement.evidence.labels]] = -share * sizes
    other = replace(judgement)
    object.__setattr__(other, "best", replace(best, rises=rises))
    object.__setattr__(other, "multiplier", 1.0)
    return other


def test_absence_is_excused_where_it_does_not_pay(judgement):
    """Who stays away loses its allowance, and the model gets worse."""
    assert propose(judgement).policy.missing == "excuse"
    assert "gains -" in absence_policy(judgement)[1]
    assert propose(saving(judgement, 0.0)).policy.missing == "excuse"


def test_absence_costs_the_largest_update_where_it_saves_a_bill(judgement):
    dear = saving(judgement, 0.5)
    policy = propose(dear).policy
    assert (policy.missing, policy.error) == ("largest", "largest")
    assert "a missing update costs the largest" in terms_toml(dear)
    assert "a missing update costs the largest" not in terms_toml(judgement)


def test_without_absences_nothing_is_said_about_them(small):
    assert "No absence was tried" in absence_policy(small.judgement)[1]
