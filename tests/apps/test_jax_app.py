"""A JAX app, audited as it is, beside the simulator's own run of the same training."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.apps.conftest import FEW
from tests.apps.test_run import NOTHING, norms_of, run_app
from verax.apps.api import audit_app
from verax.apps.app import load_app
from verax.apps.run import losses_of
from verax.audit import audit
from verax.audit.run.record import load_runs
from verax.game import Scale
from verax.learning import Behaviour, Protocol, Seeds, Simulator, WeightedMean
from verax.tasks import digits

APP = Path(__file__).parents[2] / "examples" / "flower-digits"
TRAINING = "step=0.5 local-steps=5 evaluate=false"
TASK = digits(3, "mlp")
SIZES = tuple(float(len(batch[0])) for batch in TASK.train)
# FedAvg weighs by examples; charged are effective updates. With three members, E of the first is
# (b + c)² / (b² + c²).
A, B, C = SIZES
EFFECTIVE = np.array(
    [
        (1 + (y + z) ** 2 / (y * y + z * z)) * x / (A + B + C)
        for x, y, z in ((A, B, C), (B, A, C), (C, A, B))
    ]
) ** 2  # fmt: skip


def test_a_jax_app_trains_as_the_simulator_does():
    app = load_app(APP, f"{TRAINING} num-server-rounds=2 seed=4")
    tripled = Behaviour(Scale(3.0), (0,))
    ran = run_app(app, 3, 4, NOTHING, tripled, 2)
    protocol = Protocol("fedavg", 0.5, 32, 5, aggregator=WeightedMean(SIZES))
    outcome = Simulator(TASK, protocol, 2).run(Seeds.of(4), [tripled])
    assert_allclose(norms_of(ran), outcome.norms[0] * EFFECTIVE, rtol=1e-4)
    assert_allclose(losses_of(ran, "loss", 3), outcome.evaluations[-1].loss[0], rtol=1e-5)


@pytest.mark.slow
def test_the_audit_of_an_app_is_that_of_its_task(tmp_path):
    app, task = tmp_path / "app", tmp_path / "task"
    by_app = audit_app(
        APP, 3, out=app, run_config=f"{TRAINING} num-server-rounds=6", seed_key="seed", **FEW
    )
    by_task = audit(
        TASK,
        out=task,
        rounds=6,
        protocol="fedavg",
        step=0.5,
        batch=32,
        local_steps=5,
        batches=(),
        aggregator="weighted-mean:" + ",".join(f"{size:g}" for size in SIZES),
        **FEW,
    )
    for one, other in zip(load_runs(app), load_runs(task), strict=True):
        assert (one.run.role, one.run.seed) == (other.run.role, other.run.seed)
        assert_allclose(one.loss, other.loss, rtol=1e-5)
        norms = np.asarray(other.statistics.norms) * EFFECTIVE
        assert_allclose(one.statistics.norms, norms, rtol=1e-3)
    # The windows differ because the two charge differently for the same messages.
    assert_allclose(by_app.window, by_task.window, rtol=0.1)
