"""Rounds with missing, rejected and failed updates: every policy balances."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from verax.mechanism import (
    BUILT_IN,
    FailurePolicy,
    Price,
    SquaredNorm,
    Statistics,
    Terms,
    charge,
    pay,
    rule_named,
)

STATUSES = ["ok", "missing", "rejected", "error"]
ACTIONS = ["excuse", "flat-fee", "largest"]


def statistics_for(rule, norms):
    """What a rule reads, of messages at right angles to each other."""
    reads = rule_named(rule).reads
    if reads in ("gram", "distances"):
        return Statistics.of_gram(np.diag(norms))
    return Statistics(**{reads: norms})


@given(
    norms=st.lists(st.floats(0, 1e6), min_size=4, max_size=8),
    data=st.data(),
    actions=st.tuples(*[st.sampled_from(ACTIONS)] * 3),
    rule=st.sampled_from([rule.name for rule in BUILT_IN if rule.reads != "smoothed"]),
)
def test_every_mixture_balances(norms, data, actions, rule):
    n = len(norms)
    statuses = data.draw(st.lists(st.sampled_from(STATUSES), min_size=n, max_size=n))
    terms = Terms(Price.constant(2.0), rule=rule, policy=FailurePolicy(*actions, fee=7.0))
    found = charge(terms, 1, statistics_for(rule, norms), statuses).amounts
    assert abs(found.sum()) <= 1e-9 * (1 + max(norms))


@pytest.mark.parametrize("statuses", list(itertools.product(["ok", "missing"], repeat=3)))
def test_excused_members_are_simply_absent(statuses):
    terms = Terms(Price.constant(2.0))
    present = np.array([status == "ok" for status in statuses])
    expected = pay(SquaredNorm(), [4.0, 1.0, 9.0], 2.0, present=present).amounts
    assert_allclose(charge(terms, 5, Statistics([4.0, 1.0, 9.0]), statuses).amounts, expected)


def test_a_flat_fee_is_shared_by_the_participants():
    terms = Terms(Price.constant(1.0), policy=FailurePolicy(missing="flat-fee", fee=3.0))
    found = charge(terms, 1, Statistics([4.0, 2.0, 0.0]), ["ok", "ok", "missing"]).amounts
    assert_allclose(found, [2 - 1.5, -2 - 1.5, 3.0])
    nobody = charge(terms, 1, Statistics([0.0, 0.0]), ["missing", "missing"])
    assert nobody.amounts.tolist() == [0.0, 0.0]
    assert not nobody.charged


def test_a_broken_update_costs_what_the_largest_does():
    terms = Terms(Price.constant(1.0))  # rejected: "largest" by default
    found = charge(terms, 1, Statistics([4.0, 1.0, np.nan]), ["ok", "ok", "rejected"]).amounts
    assert_allclose(found, pay(SquaredNorm(), [4.0, 1.0, 4.0]).amounts)
    alone = charge(terms, 1, Statistics([np.nan, np.nan]), ["rejected", "rejected"])
    assert alone.amounts.tolist() == [0.0, 0.0]


def test_prices_and_allowances_of_the_round():
    terms = Terms(
        Price(((1.0, 2.0), (3.0, 4.0)), (1, 2), rounds=2),
        members=("a", "b"),
        allowances=((0.5, -0.5),),
    )
    assert_allclose(
        charge(terms, 2, Statistics([5.0, 1.0]), ["ok", "ok"]).amounts, [15 - 4 - 0.5, 4 - 15 + 0.5]
    )


def test_errors():
    terms = Terms(Price.constant(1.0))
    with pytest.raises(ValueError, match="status is 'late', must be one of ok, missing"):
        charge(terms, 1, Statistics([1.0, 2.0]), ["ok", "late"])
    with pytest.raises(ValueError, match=r"2 members need norms of that size, got \(3,\)"):
        charge(terms, 1, Statistics([1.0, 2.0, 3.0]), ["ok", "ok"])
    with pytest.raises(ValueError, match="2 members need norms"):
        charge(terms, 1, Statistics([[1.0, 2.0]]), ["ok", "ok"])
