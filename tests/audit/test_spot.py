"""What an audit proposes for spot checks, against the recorded runs computed by hand."""

import numpy as np
import pytest

from verax.audit.judge.spot import FinedPolicy, propose_spot_checks
from verax.audit.run.record import load_runs


@pytest.fixture(scope="module")
def proposal(small):
    return propose_spot_checks(small.judgement, [], [])


def test_the_proposal_is_part_of_summary_and_verdict(small, proposal):
    assert small.summary["spot"]["chosen"]["fine"] == proposal.chosen.fine
    assert any(sentence.startswith("Spot checks (fine = ") for sentence in small.summary["verdict"])
    assert proposal.calls == 3 * proposal.rounds
    assert proposal.run_calls == 3 * 40


def test_expected_fines_are_the_price_times_the_squared_distance(small, proposal):
    """One deviation's gain under spot checks alone, from its runs, the plain way."""
    judgement = small.judgement
    evidence, multiple = judgement.evidence, judgement.multiplier
    prices = multiple * np.broadcast_to(judgement.best.price.per_round(), (40, 3))
    worst = 0.0
    for k, client in enumerate(evidence.plan.deviators):
        for d in range(len(evidence.deviations)):
            gains, others = [], []
            for s, run in enumerate(evidence.deviation_runs(k, d)):
                distance = run.statistics.misreport[:, client]
                fine = 10.0 * float(prices[40 - len(distance) :, client] @ distance)
                gains.append(evidence.gains[k, d, s] - fine)
                others.append(evidence.others_rises[k, d, s] + fine)
            if np.mean(others) < -evidence.others_tolerances[k]:
                worst = max(worst, np.mean(gains) / evidence.reward_sizes[client])
    (option,) = (one for one in proposal.options if one.fine == 10.0 and not one.with_price)
    assert option.worst_share == pytest.approx(worst, abs=1e-9)


def test_a_searched_policy_that_gains_in_spite_of_small_fines_asks_for_a_larger_one(small):
    """A direction that no price sees: its reward rises by 5 % and it is fined 1 % at c = 1."""
    size = small.judgement.evidence.reward_sizes[0]
    policy = FinedPolicy(0, np.full(3, 0.05 * size), np.zeros(3), np.full(3, 0.01 * size))
    checked = propose_spot_checks(small.judgement, [policy], [policy])
    by_fine = {one.fine: one for one in checked.options if one.with_price}
    assert by_fine[1.0].searched_share == pytest.approx(0.04)
    assert not by_fine[1.0].holds
    assert by_fine[10.0].searched_share == pytest.approx(-0.05)
    assert checked.chosen.fine >= 10.0


def test_an_honest_members_levy_is_the_price_of_its_own_norms(small, proposal):
    judgement = small.judgement
    seeds = judgement.plan.seeds.judging
    honest = [
        one.statistics.norms
        for one in load_runs(small.folder)
        if one.run.role == "honest" and not one.run.aggregator and one.run.seed in seeds
    ]
    price = judgement.multiplier * judgement.best.price.per_round()
    levies = (price * np.mean(honest, axis=0)).sum(axis=0)
    assert proposal.honest_levy == pytest.approx(proposal.chosen.fine * levies.max())
