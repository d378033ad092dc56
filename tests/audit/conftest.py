"""A small audit that several tests look at, run once."""

import pytest

from verax.audit import Plan, audit
from verax.audit.run import task_of

SMALL = Plan(
    model="softmax",
    rounds=40,
    step=0.3,
    scales=(0.0, 0.5, 1.0, 2.0, 5.0),
    phases=((0.5, 3.0, 0.5),),
    surges=(5.0,),
    surge_rounds=(1, 2, 10),
    noises=(0.5,),
    reportings=('{"kind": "directional", "a": 1.5, "angle": 0.5}',),
    robust=("median",),
    setting_seeds=2,
    judging_seeds=3,
)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    return audit(task_of(SMALL), SMALL, out=tmp_path_factory.mktemp("small") / "audit", workers=1)
