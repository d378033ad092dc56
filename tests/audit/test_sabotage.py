"""Sabotage of the first rounds by a member whose own price is nearly zero: the floor stops it."""

import pytest

from tests.audit.conftest import RESCALINGS
from verax.audit import Plan, audit
from verax.audit.judge import judge
from verax.audit.plan.task import task_of
from verax.audit.run.simulated import TaskSubject

PLAN = Plan.of(
    **RESCALINGS,
    model="softmax",
    rounds=300,
    step=0.5,
    floor=0.0,
    scales=(1.0, 2.0),
    phases=[phase for phase in Plan().deviations.phases if phase[0] < 0],
    surges=(),
    noises=(),
    setting_seeds=2,
    choosing_seeds=1,
    judging_seeds=2,
)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The same runs, judged with one floor or another."""
    folder, task = tmp_path_factory.mktemp("sabotage") / "audit", task_of(PLAN)
    audit(task, PLAN, out=folder)
    return lambda floor: judge(PLAN.changed(floor=floor), TaskSubject(task), folder)


def worst(judgement):
    """The largest gain at the profile's own prices, as a share of the member's honest reward."""
    profile = judgement.schedules["profile"]
    return (profile.gains_at(1.0).max(axis=1) / judgement.evidence.reward_sizes).max()


def test_the_default_phases_find_the_sabotage_and_the_floor_stops_it(judged):
    without, floored = judged(0.0), judged(0.5)
    profile = without.schedules["profile"]
    label, gain = profile.best_response(1.0, 2, harmful=True)
    assert label == "scale -10, then 1 in the last 270 rounds"
    assert gain / without.evidence.reward_sizes[2] > 0.05
    assert worst(without) > 0.05
    assert worst(floored) < 0.01
    prices = floored.main.profile.prices
    assert (prices >= 0.5 * prices.mean(axis=1, keepdims=True) * (1 - 1e-9)).all()
