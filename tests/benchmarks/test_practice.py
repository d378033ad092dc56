"""What practitioners use instead of prices: contributions against NumPy, payments and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from contributions import ContributionSimulator, ContributionSubject, load_contributions, payments
from practice import tables

from verax.audit.plan import Plan
from verax.audit.run.execute import run
from verax.audit.run.record import load_runs
from verax.game import Absent, Reporting, Scale
from verax.learning import Behaviour, Mean, Median, Protocol, Seeds, Task

DOCS = Path(__file__).parents[2] / "docs"
T, N, SAMPLES, STEP = 2, 3, 8, 0.1


def _data() -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(1)
    truths = rng.standard_normal((N, 2))

    def client(i: int, size: int) -> tuple[Any, Any]:
        x = rng.standard_normal((size, 2))
        return x, x @ truths[i]

    return [client(i, SAMPLES) for i in range(N)], [client(i, 5 + i) for i in range(N)]


def _linear() -> Task:
    train, test = _data()
    return Task(
        name="linear",
        train=train,
        test=test,
        init=lambda key: jnp.zeros(2),
        loss=lambda theta, batch: jnp.mean((batch[0] @ theta - batch[1]) ** 2),
    )


def _by_hand(centre: Any, scale: float, present: list[list[int]]) -> Any:
    """Contributions (T, N) of full-batch FedSGD in which client 1 scales, by plain loops."""
    train, test = _data()

    def mean_loss(theta: Any) -> float:
        return float(np.mean([np.mean((x @ theta - y) ** 2) for x, y in test]))

    theta, found = np.zeros(2), np.zeros((T, N))
    for t in range(T):
        messages = [2 * x.T @ (x @ theta - y) / len(x) for x, y in train]
        messages[1] = scale * messages[1]

        def model(who: list[int], theta: Any = theta, messages: Any = messages) -> Any:
            return theta - STEP * centre([messages[i] for i in who], axis=0)

        after = model(present[t])
        for i in present[t]:
            without = model([j for j in present[t] if j != i])
            found[t, i] = mean_loss(without) - mean_loss(after)
        theta = after
    return found


@pytest.mark.parametrize(
    ("aggregator", "centre"), [(Mean(), np.mean), (Median(), np.median)], ids=["mean", "median"]
)
@pytest.mark.parametrize(
    ("reporting", "scale", "present"),
    [
        (Scale(-2.0), -2.0, [[0, 1, 2], [0, 1, 2]]),
        (Absent(((2, 2),)), 1.0, [[0, 1, 2], [0, 2]]),
    ],
    ids=["scaled", "absent"],
)
def test_contributions_of_two_rounds_are_those_of_plain_loops(
    aggregator: Any, centre: Any, reporting: Reporting, scale: float, present: list[list[int]]
) -> None:
    protocol = Protocol("fedsgd", STEP, SAMPLES, aggregator=aggregator)
    simulator = ContributionSimulator(_linear(), protocol, T)
    found = simulator.run(Seeds.of(0), [Behaviour(reporting, (1,))]).loss[0]
    wanted = _by_hand(centre, scale, present)
    assert np.min(np.abs(wanted[0])) > 1e-3
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)
    by_hand = np.zeros(N)
    for t in range(T):
        for i in range(N):
            for j in set(range(N)) - {i}:
                by_hand[i] += (wanted[t, j] - wanted[t, i]) / (N - 1)
    np.testing.assert_allclose(payments(found.sum(axis=0)), by_hand, rtol=1e-3, atol=1e-6)


def test_payments_by_contribution_sum_to_zero() -> None:
    contributions = np.random.default_rng(0).standard_normal((4, 5, 7))
    paid = payments(contributions)
    np.testing.assert_allclose(paid.sum(axis=-1), 0, atol=1e-12)
    assert np.all(np.argmax(contributions, axis=-1) == np.argmin(paid, axis=-1))


def test_contributions_before_a_branch_are_those_of_the_honest_run(tmp_path: Path) -> None:
    nothing = ("phases", "block_scales", "noises", "momenta", "batches", "pushes", "tilts")
    plan = Plan.of(
        task="linear",
        clients=N,
        protocol="fedsgd",
        step=STEP,
        batch=4,
        rounds=4,
        scales=(1, 2),
        surges=(3,),
        surge_rounds=(1,),
        absences=((0.5, 1.0),),
        rules="squared-norm",
        evaluate_every=1,
        setting_seeds=1,
        choosing_seeds=1,
        judging_seeds=2,
        **dict.fromkeys(nothing, ()),
    )
    run(plan, ContributionSubject(_linear()), tmp_path / "audit", workers=1)
    runs = load_runs(tmp_path / "audit")
    known = load_contributions(runs, tmp_path / "audit")
    simulator = ContributionSimulator(_linear(), plan.protocol.make(), plan.rounds)
    branched = [one.run for one in runs if one.run.branch and one.run.seed == 2]
    assert branched
    for own in branched:
        whole = simulator.run(Seeds.of(own.seed), [own.behaviour(N)]).loss[0].sum(axis=0)
        np.testing.assert_allclose(known[own.number], whole, rtol=1e-4, atol=1e-6)


def test_the_tables_of_the_page_are_those_of_its_json() -> None:
    page = (DOCS / "practice.md").read_text(encoding="utf-8").splitlines()
    results = json.loads((DOCS / "practice.json").read_text(encoding="utf-8"))
    printed = [line for line in tables(results).splitlines() if line.startswith("|")]
    assert len(printed) > 30
    assert set(printed) <= set(page)


def test_a_row_of_the_tables_shows_the_numbers_of_the_json() -> None:
    best = {
        "gain": 12.34,
        "interval": [-1.26, 25.0],
        "client": 2,
        "what": "scale 5",
        "received": 3.0,
        "others": -7.89,
        "hurt most": [10.04, 0],
    }
    row = {
        "harmful": best,
        "any": None,
        "honest loss": 4.56,
        "largest bill": [0.0, 0],
        "largest rise": [8.91, 1],
        "price of gaming": {"price": 0.12, "client": 0, "what": "scale 2"},
        "manipulability": 1234.5,
    }
    text = tables({"it": {"words": "it", "rows": {"median": row}}})
    assert "| median | 12.3 [−1.3, 25.0] | 8.9 |" in text
    wanted = "| median | 12.3 [−1.3, 25.0] | scale 5, client 2 | −7.9 | 10.0 (client 0) | none | "
    assert wanted + "– | – | 4.6 | 8.9 (client 1) | 0 | 0.1 | 1,234 |" in text
