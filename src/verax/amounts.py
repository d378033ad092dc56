"""Numbers and amounts of money in words, written alike in verdicts, reports, terms and statements.

A number has three figures; large ones have separated thousands, very small and very large ones
powers of ten. An amount is a number with its currency: "0.0123 credits", "12,400 EUR".
"""

from __future__ import annotations

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, sign: bool = False) -> str:
    """Three figures, or whole numbers from 100 on; None stands for a number that is not known.

    Example:
        >>> number(12400.3), number(-0.01234), number(4.4e-5)
        ('12,400', '−0.0123', '4.40·10⁻⁵')
    """
    if value is None:
        return "–"
    head = "−" if value < 0 else "+" if sign and value > 0 else ""
    size = abs(value)
    if size == 0:
        return "0"
    if not 1e-4 <= size < 1e9:
        mantissa, exponent = f"{size:.2e}".split("e")
        return f"{head}{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return head + (f"{size:,.0f}" if size >= 100 else f"{size:#.3g}".rstrip("."))


def money(amount: float, currency: str, *, sign: bool = False, exact: bool = False) -> str:
    """An amount with its currency, in three figures or, if `exact`, in all the figures it has.

    Example:
        >>> money(12400.3, "EUR"), money(8125.5, "EUR", exact=True), money(1, "credits", exact=True)
        ('12,400 EUR', '8,125.5 EUR', '1 credit')
    """
    text = f"{amount:,.15g}" if exact else number(amount, sign)
    return f"{text} {'credit' if (text, currency) == ('1', 'credits') else currency}"
