"""What the model is worth to each member: amounts in money, and how wrong the number may be."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from tests.audit.conftest import SMALL
from verax.audit import Plan
from verax.audit.judge import judge, propose, terms_toml
from verax.audit.judge.worth import range_words, worth_range, worth_sentence
from verax.audit.plan.task import task_of
from verax.audit.run.simulated import TaskSubject
from verax.audit.search import SearchResults
from verax.audit.show.tables import tables
from verax.audit.show.verdict import verdict

WORTH = (12_000.0, 8_000.0, 5_000.0)


@pytest.fixture(scope="module")
def judged(small):
    """The record of the small audit, judged with other worths."""
    subject = TaskSubject(task_of(SMALL))
    return lambda *worth: judge(SMALL.changed(worth=worth, currency="EUR"), subject, small.folder)


def table_gains(folder, terms):
    """(ΔR of everybody in units of loss, ΔP by the terms) per client and misreport, from Parquet.

    Written out: p_i = C_i n_i − mean_{j≠i} C_j n_j, summed over the rounds; means over seeds.
    """
    runs = pq.read_table(folder / "runs.parquet").to_pylist()
    rounds = pq.read_table(folder / "rounds.parquet")
    number, first = rounds["run"].to_numpy(), rounds["round"].to_numpy() - 1
    norms = np.array(rounds["squared_norm"].to_pylist())
    N = norms.shape[1]
    price = np.stack([np.broadcast_to(terms.price.at(t + 1), N) for t in range(SMALL.rounds)])

    def paid(run, after):
        own = (number == run["run"]) & (first >= after)
        charged = price[first[own]] * norms[own]
        return (charged - (charged.sum(axis=1, keepdims=True) - charged) / (N - 1)).sum(axis=0)

    judging = [r for r in runs if r["seed"] in SMALL.seeds.judging and not r["aggregator"]]
    honest = {r["seed"]: r for r in judging if r["role"] == "honest"}
    rises = {}
    for run in judging:
        if run["role"] == "deviation":
            twin, i, after = honest[run["seed"]], run["deviating_client"], run["branched_after"]
            fall = np.array(twin["test_loss"]) - np.array(run["test_loss"])
            row = [*fall, paid(run, after)[i] - paid(twin, after)[i]]
            rises.setdefault((i, run["reporting"]), []).append(row)
    means = {key: np.mean(rows, axis=0) for key, rows in rises.items()}
    loss = np.mean([r["test_loss"] for r in honest.values()], axis=0)
    return means, loss


@pytest.mark.parametrize("worth", [(1.0,), WORTH], ids=["one", "three"])
def test_the_prices_fit_exactly_as_long_as_the_worth_is_in_the_range(small, judged, worth):
    """Utilities from the tables and the terms alone, with rewards that are worth w times as much.

    The gain above the tolerance must be zero at both ends of the range, and not before.
    """
    judgement = judged(*worth)
    low, high = judgement.worth_range
    assert 0 < low < 1 < high
    means, loss = table_gains(small.folder, propose(judgement))
    entered, tolerance = np.broadcast_to(worth, 3), SMALL.prices.tolerance

    def harmful(i, falls, paid):
        """Whether the others, who receive what i pays more, lose more than their tolerance."""
        others = np.delete(entered * falls, i).sum() + paid
        return others < -tolerance * np.delete(entered * loss, i).sum()

    def worst(w):
        """The largest harmful gain above the tolerance, in units of the honest reward."""
        return max(
            (w * entered[i] * row[i] - row[3]) / (w * entered[i] * loss[i]) - tolerance
            for (i, _), row in means.items()
            if harmful(i, row[:3], row[3])
        )

    for end, beyond in ((low, 0.99), (high, 1.01)):
        if np.isfinite(end):
            assert worst(end) == pytest.approx(0, abs=1e-6)
            assert worst(end * beyond) > 1e-6
    assert np.isfinite(high) == (worth == WORTH)
    for w in np.linspace(low * 1.001, min(high, 20.0) * 0.999, 9):
        assert worst(w) < 0


def test_prices_charges_and_tolerances_scale_with_the_worth(judged):
    one, many = judged(1.0), judged(2_000.0)
    assert many.best.kind == one.best.kind == "profile"
    assert_allclose(many.best.common, one.best.common)
    assert many.multiplier == one.multiplier
    assert_allclose(many.main.profile.prices, 2_000 * one.main.profile.prices)
    assert_allclose(many.allowances, 2_000 * one.allowances)
    assert_allclose(many.evidence.tolerances, 2_000 * one.evidence.tolerances)
    constant = [j.schedules["constant"].best for j in (one, many)]
    assert_allclose(constant[1][0], 2_000 * constant[0][0])
    assert_allclose(constant[1][1], constant[0][1], atol=1e-9)  # in tolerances


def test_each_member_has_its_own_worth(judged):
    one, own = judged(1.0), judged(*WORTH)
    worth = np.array(WORTH)
    assert_allclose(own.evidence.gains, worth[:, None, None] * one.evidence.gains)
    assert_allclose(own.evidence.tolerances, worth * one.evidence.tolerances)
    for mine, unit in zip(own.main.sensitivities, one.main.sensitivities, strict=True):
        assert_allclose(mine.reward, worth[:, None] * unit.reward)
        assert_allclose(mine.measures, unit.measures)
    assert_allclose(own.evidence.harm, one.evidence.harm)  # stays in units of loss


def test_the_verdict_speaks_of_money(small, judged):
    price, *others = small.summary["verdict"]
    assert "A unit of loss is taken to be worth 1 credit to each member (--worth)." in others
    low, high = (small.summary["worth_range"][end] for end in ("low", "high"))
    assert high is None
    assert f"worth at least {low:.3g} of what was entered" in price
    assert (small.summary["currency"], small.summary["worth"]) == ("credits", [1.0] * 3)
    judgement = judged(*WORTH)
    words = " ".join(verdict(judgement, tables(judgement, SearchResults())))
    assert "12,000 EUR to client 0, 8,000 EUR to client 1, 5,000 EUR to client 2" in words
    free = judgement.evidence.gains.mean(axis=2)
    k, d = np.unravel_index(np.argmax(free), free.shape)
    assert f"Without payments client {k} gains {free[k, d]:,.0f} EUR [" in words
    harm = judgement.evidence.harm[k, d].mean(axis=0)
    harm[k] = -np.inf
    victim = int(np.argmax(harm))
    if harm[victim] > 0:
        assert f"client {victim} is hurt most" in words
        assert f"which costs it {WORTH[victim] * harm[victim]:,.0f} EUR" in words


def test_the_terms_say_what_the_prices_assume(small, judged):
    judgement = judged(*WORTH)
    terms = propose(judgement)
    assert (terms.currency, terms.worth) == ("EUR", WORTH)
    text = terms_toml(judgement)
    assert "# A unit of loss is taken to be worth 12,000 EUR to client 0" in text
    assert "# They hold as long as the model is worth between" in text
    assert small.terms.worth == (1.0,)


def test_the_range_by_hand():
    # one that gains 2 and pays 3, one that loses 2 and is paid 1, one that loses and pays
    above, rises = np.array([2.0, -2.0, -5.0]), np.array([3.0, -1.0, 4.0])
    assert worth_range(above, rises) == (0.5, 1.5)
    nothing = np.zeros(0)
    assert worth_range(nothing, nothing) == (0.0, np.inf)
    assert range_words(0.0, np.inf) == "whatever the model is worth"
    assert range_words(0.0, 1.5).startswith("as long as the model is worth at most 1.5 of")
    assert range_words(0.88, np.inf).startswith("as long as the model is worth at least 0.88 of")


def test_the_unit_is_that_of_the_reward():
    def said(**options):
        plan = Plan.of(**options)
        return worth_sentence(plan, tuple(f"m{i}" for i in range(plan.task.clients)))

    assert said(metric="accuracy:up", worth=5).startswith("A unit of accuracy is taken")
    assert said(reward="logistic").startswith("A unit of the reward 'logistic' is taken")
    many = said(clients=30, worth=[*range(1, 31)], currency="EUR")
    assert "to be worth 1 EUR to 30 EUR, which differs by member" in many
