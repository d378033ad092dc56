"""What tests of audits share: a small audit, run once."""

import pytest

from verax.audit import Plan, audit
from verax.audit.plan.task import task_of

#: Rescalings, timings and noise alone, as in the paper.
RESCALINGS = {
    "protocol": "fedsgd",
    "block_scales": (),
    "absences": (),
    "momenta": (),
    "batches": (),
    "pushes": (),
    "tilts": (),
    "search": "off",
    "rules": ("squared-norm", "squared-distance", "groves-ledyard", "spot-audit"),
}

SMALL = Plan.of(
    **RESCALINGS,
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
    choosing_seeds=1,
    judging_seeds=3,
)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    return audit(task_of(SMALL), SMALL, out=tmp_path_factory.mktemp("small") / "audit", workers=1)
