"""Sensitivities from probes, against differentiation through a small smooth run by `jax.jvp`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.audit.conftest import RESCALINGS
from verax.audit import Plan
from verax.audit.judge.probes import mean_of, sensitivities
from verax.audit.run.execute import run
from verax.audit.run.record import load_runs
from verax.audit.run.simulated import TaskSubject
from verax.learning import Seeds, Simulator
from verax.mechanism import SquaredDistance, SquaredNorm
from verax.tasks import digits

T, STEP, BATCH = 12, 0.3, 32
PLAN = Plan.of(
    **RESCALINGS,
    model="softmax",
    rounds=T,
    step=STEP,
    batch=BATCH,
    scales=(1.0, 2.0),
    phases=(),
    surges=(),
    noises=(),
    setting_seeds=1,
    choosing_seeds=1,
    judging_seeds=2,
    probe=0.1,
)


@pytest.fixture(scope="module")
def task():
    return digits(model="softmax")


@pytest.fixture(scope="module")
def recorded(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probes") / "audit"
    run(PLAN, TaskSubject(task), folder, workers=1)
    return load_runs(folder)


def training(task, seed):
    """Scales per round and client → final losses and every message, as one differentiable run."""
    seeds = Seeds.of(seed)
    simulator = Simulator(task, PLAN.protocol.make(), T)
    index = simulator.sample_positions(seeds, 0, T)[:, :, 0]
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), simulator.start(seeds).params)

    def run(scales):
        def step(params, now):
            rows, a = now
            messages = []
            for i, (x, y) in enumerate(task.train):
                gradient = jax.grad(task.loss)(
                    params, (jnp.asarray(x)[rows[i]], jnp.asarray(y)[rows[i]])
                )
                messages.append(jax.tree.map(lambda g, i=i: a[i] * g, gradient))
            flat = jnp.stack([jax.flatten_util.ravel_pytree(m)[0] for m in messages])
            mean = jax.tree.map(lambda *parts: sum(parts) / len(parts), *messages)
            return jax.tree.map(lambda p, u: p - STEP * u, params, mean), flat @ flat.T

        params, grams = jax.lax.scan(step, start, (index, scales))
        return simulator.test_losses(params), grams

    return jax.jit(run)


@pytest.mark.parametrize("rule", [SquaredNorm(), SquaredDistance()], ids=lambda rule: rule.name)
def test_probes_equal_forward_mode_differentiation(task, recorded, rule):
    (probed,) = sensitivities(PLAN, recorded, rule)
    whole = training(task, PLAN.seeds.first)
    blocks, honest = PLAN.blocks, jnp.ones((T, 3))
    direction = jnp.zeros((T, 3))
    tangent = jax.jit(lambda d: jax.jvp(whole, (honest,), (d,))[1])

    def measured(grams):
        if rule.name == "squared-norm":
            return np.diagonal(grams, axis1=1, axis2=2)
        others = (np.ones((3, 3)) - np.eye(3)) / 2
        apart = np.eye(3) - others
        return np.einsum("ij,tjk,ik->ti", apart, grams, apart)

    for client in range(3):
        for k in range(len(blocks)):
            pushed = direction.at[blocks.of_round == k, client].set(1.0)
            losses, grams = tangent(pushed)
            assert probed.reward[client, k] == pytest.approx(
                -float(losses[client]), rel=0.02, abs=2e-4
            )
            exact = blocks.sums(measured(np.asarray(grams, np.float64))).T
            size = np.abs(exact).max()
            assert_allclose(probed.measures[client, :, k], exact, rtol=0.03, atol=0.01 * size)


def test_the_mean_over_seeds_is_that_of_every_number(recorded):
    (one,) = sensitivities(PLAN, recorded, SquaredNorm())
    both = mean_of([one, one])
    assert_allclose(both.reward, one.reward)
    assert_allclose(both.measures, one.measures)
    assert both.clients.tolist() == [0, 1, 2]


def test_a_diverged_probe_names_the_round_and_the_remedy(recorded):
    from dataclasses import replace

    broken = [replace(r, diverged=7) if r.run.role == "probe" else r for r in recorded]
    with pytest.raises(ValueError, match=r"diverged in round 7 of a probe .* or --probe, now 0\.1"):
        sensitivities(PLAN, broken, SquaredNorm())
