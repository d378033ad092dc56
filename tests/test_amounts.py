"""Amounts of money in words."""

import pytest

from verax.amounts import money


@pytest.mark.parametrize(
    ("amount", "currency", "words"),
    [
        (12_400.3, "EUR", "12,400 EUR"),
        (0.01234, "credits", "0.0123 credits"),
        (-1_234_567.0, "EUR", "−1,234,567 EUR"),
        (4.4e-5, "EUR", "4.40·10⁻⁵ EUR"),
        (0.0, "EUR", "0 EUR"),
    ],
)
def test_three_figures(amount, currency, words):
    assert money(amount, currency) == words


def test_signs_and_all_figures():
    assert money(2.0, "EUR", sign=True) == "+2.00 EUR"
    assert money(8_125.5, "EUR", exact=True) == "8,125.5 EUR"
    assert money(1.0, "credits", exact=True) == "1 credit"
    assert money(1.0, "EUR", exact=True) == "1 EUR"
