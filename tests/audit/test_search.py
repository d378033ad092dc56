"""The searched best response: exact on quadratics, reproducible, kept, judged on other seeds."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.audit.conftest import RESCALINGS
from verax.audit import Plan, audit
from verax.audit.judge import propose, terms_toml
from verax.audit.plan.task import task_of
from verax.audit.search import FoundResponse, SearchResults
from verax.audit.search.space import PolicySpace
from verax.audit.show.summary import summarise
from verax.audit.show.verdict import searched_lines
from verax.game import LargerBatch, Noise, Policy, Quadratics, Scale, Stretch, Timed
from verax.mechanism import SquaredNorm, Terms, pay, refined_blocks
from verax.tasks import quadratics

T, STEP, START = 3, 0.2, np.array([1.0])
#: In one dimension every message is a multiple of the update, so that the best scale per round is
#: the best response of all.
GAME = Quadratics.of([1.0, 2.0, 0.5], [[0.0], [1.5], [3.0]])
FEW = {
    **RESCALINGS,
    "rounds": T,
    "scales": (0.5, 1.0, 2.0),
    "phases": (),
    "surges": (),
    "noises": (),
    "setting_seeds": 1,
    "choosing_seeds": 1,
    "judging_seeds": 2,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "audit"
    return audit(quadratics(GAME, START), out=folder, step=STEP, **{**FEW, "search": "thorough"})


def test_it_finds_the_exact_best_response(found):
    """Against L-BFGS on the exact utility, per member, at the proposed and the constant price."""
    judgement, steps = found.judgement, np.full(T, STEP)
    constant = judgement.schedules["constant"]
    prices = {
        "proposed": judgement.multiplier * judgement.best.price.per_round(),
        "constant": constant.best[0] * constant.price.per_round(),
    }
    compared = 0
    for one in found.summary["search"]:
        if one["price"] == "none":
            continue
        price = np.broadcast_to(prices[one["price"]], (T, 3))
        rng = np.random.default_rng(0)
        exact = GAME.best_timed(one["client"], START, steps, price, bounds=(-20, 20), rng=rng)
        assert one["gain"]["mean"] == pytest.approx(exact.gain, rel=0.02, abs=2e-4)
        compared += exact.gain > 1e-3
    assert compared >= 2  # otherwise nothing was searched for


def test_what_was_found_is_kept(found):
    kept = json.loads((found.folder / "search.json").read_text())
    again = audit(
        quadratics(GAME, START), out=found.folder, step=STEP, **{**FEW, "search": "thorough"}
    )
    assert again.summary["search"] == found.summary["search"]
    assert json.loads((found.folder / "search.json").read_text()) == kept
    assert "A search of" in found.summary["verdict"][1]


def test_a_searched_policy_that_gains_too_much_leaves_no_window(found, tmp_path):
    judgement, N = found.judgement, 3
    rises = np.full((2, N), -float(judgement.evidence.others_tolerances[1]))
    rises[:, 1] = 2 * judgement.evidence.tolerances[1]
    rises[:, 2] -= 1
    policy = Policy((1.0,), memory=0.9, own=(1.0,))

    def summary_of(rises):
        response = FoundResponse("proposed", 1, policy, rises, 160)
        return summarise(judgement, SearchResults([response]), found.folder)

    assert judgement.holds
    broken = summary_of(rises)
    assert broken["window"] is None
    assert broken["worth_range"] is None
    assert broken["reason"] == "a policy that the search found gains more than the tolerance."
    assert broken["verdict"][0].startswith("A search of 160 runs for each member's best policy")
    assert broken["verdict"][1].startswith("Against the list of misreports alone, the ")
    assert broken["search"][0]["most_hurt"]["client"] == 2
    lines = searched_lines(broken)
    assert lines[-1] == "A searched policy GAINS MORE than the tolerance at the others' expense."
    assert Terms.from_toml(terms_toml(judgement, lines)) == propose(judgement)
    harmless = summary_of(np.abs(rises))
    assert harmless["window"] is not None
    assert harmless["search"][0]["most_hurt"] is None


def test_second_differences_are_those_of_the_exact_utility():
    """On quadratics, for every block of rounds and member, at the proposed price."""
    few = {**FEW, "block_scales": (0.0, 2.0, -1.0)}
    audited = audit(quadratics(GAME, START), step=STEP, **few)
    judgement, rows = audited.judgement, audited.summary["second_order"]
    price = np.broadcast_to(judgement.multiplier * judgement.best.price.per_round(), (T, 3))
    blocks = judgement.plan.blocks
    assert len(rows) == 3 * len(blocks)
    for row in rows:
        own = row["client"]
        scales = {a: np.ones((T, 3)) for a in (0.0, 1.0, 2.0, -1.0)}
        for a, table in scales.items():
            table[row["first"] - 1 : row["last"], own] = a
        exact = {}
        for a, table in scales.items():
            run = GAME.run(START, np.full(T, STEP), table)
            paid = pay(SquaredNorm(), run.norms, price).amounts.sum(axis=0)
            exact[a] = -GAME.losses(run.points[-1])[own] - paid[own]
        size = abs(GAME.losses(GAME.run(START, np.full(T, STEP)).points[-1])[own])
        second = (exact[2.0] - 2 * exact[1.0] + exact[0.0]) / size
        assert row["second_difference"]["mean"] == pytest.approx(second, rel=1e-3, abs=1e-5)
        gains = {a: (exact[a] - exact[1.0]) / size for a in (0.0, 2.0, -1.0)}
        assert gains[row["scale"]] == pytest.approx(max(gains.values()), rel=1e-3)
        assert row["gain_share"]["mean"] == pytest.approx(max(gains.values()), rel=1e-3, abs=1e-5)


def test_where_everybody_strategic_ends_is_drawn(found, tmp_path):
    assert len(found.summary["everybody"]) == 6  # three prices, two starts
    assert tmp_path / "everybody.png" in found.draw(tmp_path)


def test_the_same_plan_finds_the_same_and_leaves_numpys_generator_alone():
    plan = Plan.of(**{**FEW, "search": "quick"}, step=STEP)
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    one, two = (audit(quadratics(GAME, START), plan).summary["search"] for _ in range(2))
    assert one == two
    assert_array_equal(np.random.get_state()[1], before)


@pytest.mark.slow
def test_without_a_price_it_is_as_good_as_the_grid():
    """On a real task: each row stands on the judging seeds and says who is harmed."""
    options = {**FEW, "rounds": 6, "search": "quick", "setting_seeds": 3}
    plan = Plan.of(**options, model="softmax", step=0.5)
    summary = audit(task_of(plan), plan).summary
    rows = {(one["price"], one["client"]): one for one in summary["search"]}
    assert set(rows) == {(p, c) for p in ("proposed", "constant", "none") for c in range(3)}
    for client in range(3):  # without a price it gains at least what the best of the grid gains
        best = max(d["reward_gain"]["mean"] for d in summary["clients"][client]["deviations"])
        assert rows["none", client]["gain"]["mean"] > 0.9 * best


@pytest.mark.parametrize(
    "reporting",
    [
        Scale(3.0),
        Stretch(-2.0, 7, 8),
        Policy((1.5,), memory=0.9, own=(1.0,)),
        Policy(memory=0.5, aggregate=(-0.5,), layers=(1.0, 2.0, 0.5, 1.0)),
    ],
)
def test_points_and_policies_correspond(reporting):
    blocks = refined_blocks(8)
    space = PolicySpace(blocks)
    policy = space.policy(space.point(reporting))
    rng = np.random.default_rng(0)
    wanted = {"scale": reporting.scales(8)}
    if isinstance(reporting, Policy):
        wanted = reporting.parameters(8, rng)
    found = policy.parameters(8, rng)
    for name, values in wanted.items():
        assert_allclose(found[name], values, rtol=1e-9, atol=1e-9)


def test_other_reportings_are_no_points():
    space = PolicySpace(refined_blocks(30))
    assert space.point(Noise(1.0)) is None
    assert space.point(LargerBatch(0)) is None
    assert space.policy(np.zeros(space.dimension)).describe(30) == "honest"
    half = space.policy(space.point(Timed(0.5, 2.0, 0.5)))
    assert half.scale[0] == pytest.approx(0.5)
