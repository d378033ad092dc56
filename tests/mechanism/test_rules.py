"""All rules on the same tests; a new rule is one line in RULES below."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from verax.mechanism import (
    GrovesLedyard,
    NoPayment,
    SpotAudit,
    SquaredDistance,
    SquaredNorm,
    Statistics,
    pay,
    spread,
)

RULES = [SquaredNorm(), SquaredDistance(), GrovesLedyard(), SpotAudit(), NoPayment()]


def others_mean(messages, i):
    return np.delete(messages, i, axis=0).mean(axis=0)


def by_the_book(rule, messages):
    """The rules as THEORY writes them, client by client, from the messages themselves."""
    n = len(messages)
    norm = np.sum(messages**2, axis=1)
    away = [np.sum((m - others_mean(messages, i)) ** 2) for i, m in enumerate(messages)]
    result = []
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        match rule.name:
            case "squared-norm" | "spot-audit":  # for the audit, messages stand for m − g
                result.append(norm[i] - np.mean(norm[rest]))
            case "squared-distance":
                result.append(away[i] - np.mean([away[j] for j in rest]))
            case "groves-ledyard":
                apart = np.sum((messages[rest] - others_mean(messages, i)) ** 2)
                result.append((n - 1) / n * away[i] - apart / (n - 2))
            case "none":
                result.append(0.0)
    return np.array(result)


def array(rule, messages):
    """The array that a rule reads: inner products, or squared norms."""
    gram = messages @ np.swapaxes(messages, -1, -2)
    return gram if rule.reads == "distances" else np.diagonal(gram, axis1=-2, axis2=-1)


def known(rule, values):
    """An array as the statistics that a rule reads."""
    if rule.reads == "distances":
        return Statistics.of_gram(values)
    return Statistics(**{rule.reads: values})


def statistics(rule, messages):
    return known(rule, array(rule, messages))


@st.composite
def rounds(draw, smallest=2, largest=30):
    n = draw(st.integers(smallest, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = 10.0 ** draw(st.integers(-75, 75))
    return rng.standard_normal((n, 4)) * rng.exponential(size=(n, 1)) * scale


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
class TestEveryRule:
    @given(messages=rounds(smallest=3))
    def test_equals_its_definition(self, rule, messages):
        found = pay(rule, statistics(rule, messages)).amounts
        size = np.max(np.sum(messages**2, axis=1))
        assert_allclose(found, by_the_book(rule, messages), rtol=1e-9, atol=1e-12 * size)

    @given(messages=rounds(), data=st.data())
    def test_balances_for_any_mask_price_and_scale(self, rule, messages, data):
        n = len(messages)
        present = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        price = 10.0 ** np.array(data.draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)))
        stats = statistics(rule, messages)
        found = pay(rule, stats, price, present=present)
        assert np.all(np.isfinite(found.amounts))
        size = np.max(np.sum(messages**2, axis=1)) * price.max()
        assert abs(found.amounts.sum()) <= 1e-12 * size
        assert_array_equal(found.amounts[~present], 0.0)
        assert bool(found.charged) == (present.sum() >= rule.fewest)

    @given(messages=rounds(), data=st.data())
    def test_absent_clients_do_not_count(self, rule, messages, data):
        n = len(messages)
        here = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
        alone = array(rule, messages[here])
        dense, present = spread(alone, here, n)
        whole = pay(rule, known(rule, dense), present=present)
        wanted = pay(rule, known(rule, alone)).amounts
        rounding = 1e-12 * np.max(np.sum(messages**2, axis=1))  # of amounts that nearly cancel
        assert_allclose(whole.amounts[here], wanted, rtol=1e-12, atol=rounding)
        here_both = present[:, None] & present if dense.ndim == 2 else present
        polluted = np.where(here_both, dense, np.nan)  # entries of absent clients are ignored
        found = pay(rule, known(rule, polluted), present=present)
        assert_array_equal(found.amounts, whole.amounts)

    @given(messages=rounds(), seed=st.integers(0, 2**32))
    def test_names_do_not_matter(self, rule, messages, seed):
        order = np.random.default_rng(seed).permutation(len(messages))
        size = np.max(np.sum(messages**2, axis=1))
        assert_allclose(
            pay(rule, statistics(rule, messages[order])).amounts,
            pay(rule, statistics(rule, messages)).amounts[order],
            rtol=1e-9,
            atol=1e-12 * size,
        )

    @given(messages=rounds(), price=st.floats(1e-6, 1e6))
    def test_payment_is_linear_in_the_price(self, rule, messages, price):
        stats = statistics(rule, messages)
        one, many = pay(rule, stats).amounts, pay(rule, stats, price).amounts
        size = np.max(np.sum(messages**2, axis=1))
        assert_allclose(many, price * one, rtol=1e-9, atol=1e-12 * price * size)

    def test_rounds_are_priced_each_for_itself(self, rule):
        messages = np.random.default_rng(0).standard_normal((6, 5, 4))
        prices = np.arange(6.0)[:, None]
        found = pay(rule, statistics(rule, messages), prices).amounts
        each = [
            pay(rule, statistics(rule, m), c[0]).amounts
            for m, c in zip(messages, prices, strict=True)
        ]
        assert_allclose(found, each, rtol=1e-12)

    def test_one_participant_pays_nothing_and_the_result_says_so(self, rule):
        found = pay(rule, statistics(rule, np.ones((1, 2))))
        assert found.amounts.tolist() == [0.0]
        assert not found.charged
        assert "without payment: fewer than" in str(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@given(messages=rounds(smallest=1, largest=200), price=st.floats(0, 1e3))
def test_all_present_is_the_same_to_the_bit_however_it_is_said(rule, messages, price):
    n = len(messages)
    given = statistics(rule, messages)
    usual = pay(rule, given, price)
    everybody = np.ones(n, dtype=np.bool_)
    for prices in ([price], np.full(n, price)):
        said = pay(rule, given, prices, present=everybody)
        assert_array_equal(usual.amounts, said.amounts)
        assert_array_equal(usual.charged, said.charged)
        assert usual.charged.shape == said.charged.shape == ()


@given(
    norms=st.lists(st.floats(1e-150, 1e150), min_size=2, max_size=40),
    price=st.floats(1e-150, 1e150),
)
def test_the_papers_other_form_and_extreme_magnitudes(norms, price):
    levies = np.array(norms) * price
    assume(np.all(levies > 1e-300))
    found = pay(SquaredNorm(), norms, price).amounts
    unit = levies.max()
    n = len(norms)
    mean = np.mean(levies / unit)
    assert_allclose(found / unit, n / (n - 1) * (levies / unit - mean), atol=1e-14)
    assert abs(np.sum(found / unit)) <= 1e-12
    assert np.all(np.abs(found) <= unit * (1 + 1e-12))


def test_hand_worked_numbers():
    # the four clients at their optimum: g² = 6.25, 0.25, 20.25, 2.25
    found = pay(SquaredNorm(), [6.25, 0.25, 20.25, 2.25]).amounts
    assert_allclose(found, [-4 / 3, -28 / 3, 52 / 3, -20 / 3])
    # individual prices: 2·1 − (3·4)/1 = −10
    assert_allclose(pay(SquaredNorm(), [1.0, 4.0], [2.0, 3.0]).amounts, [-10.0, 10.0])
    # two clients are always equally far from each other
    assert_allclose(
        pay(SquaredDistance(), Statistics.of_gram([[9.0, 1.0], [1.0, 4.0]])).amounts, [0, 0]
    )


def test_individual_prices_follow_their_formula():
    rng = np.random.default_rng(5)
    n, c = rng.exponential(size=6), rng.exponential(size=6)
    expected = [c[i] * n[i] - np.mean(np.delete(c * n, i)) for i in range(6)]
    assert_allclose(pay(SquaredNorm(), n, c).amounts, expected)


def test_allowances_shift_payments_and_keep_the_balance():
    kappa = [2.0, -0.5, -1.5]
    with_them = pay(SquaredNorm(), [4.0, 1.0, 1.0], 0.5, allowances=kappa).amounts
    assert_allclose(with_them, np.array([1.5, -0.75, -0.75]) - kappa)
    partly = pay(SquaredNorm(), [4.0, 1.0, 1.0], present=[True, True, False], allowances=kappa)
    assert partly.amounts.sum() == pytest.approx(0)
    assert_allclose(partly.amounts, [3 - 1.25, -3 + 1.25, 0])


def by_gram(gram):
    return pay(SquaredDistance(), Statistics(gram=gram))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pay(SquaredNorm(), []), r"N ≥ 1, got shape \(0,\)"),
        (lambda: pay(SquaredNorm(), 3.0), r"N ≥ 1, got shape \(\)"),
        (lambda: pay(SquaredNorm(), [1, -2, 3]), "norms of client 1 is -2, must be ≥ 0"),
        (lambda: pay(SquaredNorm(), [1, np.nan]), "norms of client 1 is nan"),
        (lambda: pay(SquaredNorm(), [np.inf, 1]), "norms of client 0 is inf"),
        (lambda: pay(SquaredNorm(), [1, 2], [1, 2, 3]), "does not fit"),
        (lambda: pay(SquaredNorm(), [1, 2], -1), "price of client 0 is -1, must be ≥ 0"),
        (lambda: pay(SquaredNorm(), [1, 2], np.nan), "price of client 0 is nan"),
        (lambda: pay(SquaredNorm(), [1, 1e300], 1e100), "client 1 is inf.*lower the price"),
        (lambda: pay(SquaredNorm(), [1, 2], present=[1, 0]), "mask of booleans"),
        (lambda: pay(SquaredNorm(), [1, 2], present=[True] * 3), "does not fit"),
        (lambda: pay(SquaredNorm(), [1, 2], allowances=[1, 1]), "sum to zero, these sum to 2"),
        (lambda: pay(SquaredDistance(), [1, 2]), "reads distances, which were not recorded"),
        (lambda: by_gram(np.ones((2, 3))), "square"),
        (lambda: by_gram([[1.0, 0.0], [0.0, -1.0]]), "squared norm of client 1 is -1"),
        (lambda: by_gram([[1, np.inf], [0, 1]]), "Gram entry of client 0 is inf"),
        (lambda: by_gram([[1, 0.5], [0, 1]]), "symmetric"),
        (lambda: spread([1.0], [3], 3), "client 3 is outside"),
        (lambda: spread([1.0, 2.0], [1, 1], 3), "twice"),
        (lambda: spread([1.0, 2.0], [1], 3), "need values of that length"),
        (lambda: spread([1.0], [0.5], 3), "whole numbers"),
    ],
)
def test_errors_name_the_client_and_the_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@dataclass(frozen=True)
class Contrast:
    """A rule as a user would write one: it reads inner products and may measure below zero."""

    name: ClassVar[str] = "contrast"
    reads: ClassVar[str] = "gram"
    fewest: ClassVar[int] = 2

    def measure(self, statistics, present):
        others = np.sum(statistics.gram, axis=-1) - statistics.norms
        return statistics.norms - others


@given(messages=rounds(), data=st.data())
def test_a_rule_of_the_users_own_balances(messages, data):
    n = len(messages)
    present = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    price = 10.0 ** np.array(data.draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)))
    found = pay(Contrast(), Statistics.of_gram(messages @ messages.T), price, present=present)
    size = n * np.max(np.sum(messages**2, axis=1)) * price.max()
    assert abs(found.amounts.sum()) <= 1e-12 * size
    assert_array_equal(found.amounts[~present], 0.0)
    assert bool(found.charged) == (present.sum() >= 2)
    # By definition: C_i n_i less the mean of the others' levies.
    if found.charged:
        here = messages[present]
        gram = here @ here.T
        levies = price[present] * (2 * np.diagonal(gram) - gram.sum(axis=1))
        others = (levies.sum() - levies) / (len(levies) - 1)
        assert_allclose(found.amounts[present], levies - others, rtol=1e-9, atol=1e-12 * size)


def test_a_rule_that_measures_another_number_of_clients_is_refused():
    class Short(Contrast):
        def measure(self, statistics, present):
            return np.zeros(1)

    with pytest.raises(ValueError, match=r"rule contrast measured \(1,\) for \(2,\) clients"):
        pay(Short(), Statistics.of_gram(np.eye(2)))
