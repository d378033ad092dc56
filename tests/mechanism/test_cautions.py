"""What terms allow that one should know: payments lost in rounding, and a constant price."""

import pytest

from verax.mechanism import Audited, Blocks, Price, Terms, cautions


def audited(low, high, rounds=8):
    return Audited(
        "model difference", "FedAvg", "one step", rounds, "reported", 3, (1, 5),
        (low, low / 4), (high, high / 4), "digits", "0" * 64, "verax 0.1.0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scale", "warned"),
    [(2, True), (4, True), (5, False)],
)
def test_payments_of_few_units_are_a_warning(scale, warned):
    """In the second block 0.01 × (0.1 + 0.3) / 2 / 4 = 0.0005: 0.05, 5 and 50 units."""
    known = audited(0.1, 0.3)
    found = cautions(Terms(Price.constant(0.01), scale=scale, audited=known))
    assert [("rounds 5 to 8 a typical update costs" in text) for text in found] == [True] * warned
    if warned:
        assert f"{0.0005 * 10**scale:.2g} of the smallest unit of credits" in found[0]


def test_a_constant_price_of_many_rounds_is_a_warning():
    constant = Terms(Price.constant(0.5))
    assert cautions(constant) == []
    assert cautions(constant, rounds=9) == []
    (text,) = cautions(constant, rounds=10)
    assert "the same in all of 10 rounds" in text
    assert "%" not in text, "nothing is known of the norms"
    assert cautions(Terms(Price.constant((0.5, 0.2)), members=("a", "b")), rounds=50)
    assert cautions(Terms(Price.constant(0.5, rounds=100)))


@pytest.mark.parametrize(("rounds", "share"), [(12, 67), (20, 50)])
def test_the_figure_of_the_warning_follows_from_the_audited_norms(rounds, share):
    """Norms of a quarter from round 5 on: 4 rounds of 1 before 8 or 16 of 1/4 cost 4 of 6 or 8."""
    terms = Terms(Price.constant(0.5), audited=audited(0.1, 0.3, rounds))
    (text,) = [each for each in cautions(terms) if "is the same" in each]
    assert f"by the audited norms {share} % of its levies before round 5" in text


@pytest.mark.parametrize(
    "price",
    [
        Price.discounted(0.5, 0.01, 100),
        Price.profile(Blocks((1, 50), 100), [0.1, 0.5]),
        Price.constant(0.0),
    ],
)
def test_other_prices_are_not(price):
    assert cautions(Terms(price), rounds=100) == []
