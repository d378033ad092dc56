"""What an audit proposes for spot checks, against the recorded runs computed by hand."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from verax.audit.judge.spot import FinedPolicy, propose_spot_checks, spot_comment
from verax.audit.run.record import load_runs
from verax.mechanism import Terms


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


def test_fees_are_the_largest_fine_that_any_draw_brings_for_what_was_tried(small, proposal):
    """All k draws of the one round in which a lie is furthest from the truth."""
    evidence, multiple = small.judgement.evidence, small.judgement.multiplier
    prices = multiple * np.broadcast_to(small.judgement.best.price.per_round(), (40, 3))
    most = 0.0
    for k, client in enumerate(evidence.plan.deviators):
        for d in range(len(evidence.deviations)):
            runs = evidence.deviation_runs(k, d)
            mean = sum(run.statistics.misreport[:, client] for run in runs) / len(runs)
            most = max(most, prices[:, client].sum() * mean.max())
    assert proposal.fee == pytest.approx(proposal.chosen.fine * most)


def test_the_section_in_the_terms_holds_once_an_auditor_is_named(small, proposal):
    text = (small.folder / "terms.toml").read_text()
    assert Terms.from_toml(text).spot is None
    begin = text.index("# [evidence]")
    section = "".join(f"{line.removeprefix('# ')}\n" for line in text[begin:].splitlines())
    key = "auditor+0a1b2c3d+AQ=="
    terms = Terms.from_toml(text[:begin] + section.replace("…", key))
    assert terms.spot.fine == proposal.chosen.fine
    assert terms.spot.rounds == proposal.rounds
    assert terms.spot.refused == terms.spot.mismatch == terms.spot.missing
    assert terms.spot.missing == pytest.approx(proposal.fee, rel=0.01)


def test_a_measured_error_enters_as_what_an_honest_member_would_pay(small, monkeypatch):
    """A simulated task is not measured; an app is."""
    unknown = propose_spot_checks(small.judgement, [], [])
    known = replace(small.judgement.description, error=2e-5)
    monkeypatch.setitem(vars(small.judgement), "description", known)
    proposal = propose_spot_checks(small.judgement, [], [])
    assert proposal.honest_payment == pytest.approx(proposal.honest_levy * 4e-10)
    assert proposal.tolerance == pytest.approx(1e-3)
    assert "differed by 2e-05 of its norm" in spot_comment(asdict(proposal), "EUR")
    exact = asdict(proposal) | {"error": 0.0}
    assert "was exactly the same" in spot_comment(exact, "EUR")
    assert (unknown.error, unknown.honest_payment, unknown.tolerance) == (None, None, 1e-6)
    assert "was not measured" in spot_comment(asdict(unknown), "EUR")
    assert spot_comment(None, "EUR") == ""
