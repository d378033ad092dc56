"""What a unit of the reward is worth to each member, and how wrong that number may be.

An audit takes a unit of member i's reward to be worth v_i, so that a misreport gains v_i ΔR − m ΔP
at the multiple m of a price, against a tolerance ε v_i |R_i|. If the true worth is w v_i, gain and
tolerance are w v_i ΔR − m ΔP and ε w v_i |R_i|; divided by w, they are those at the multiple m/w.
A price with the window low … high therefore deters as long as

    low ≤ m/w ≤ high,   that is   m/high ≤ w ≤ m/low.

Once the prices are fixed, a member's gain depends on its own worth alone: each w_i may be another
number in this range.
"""

from __future__ import annotations

import math

from verax.amounts import money
from verax.audit.plan import Plan

# Of more members than this, only the extremes are named.
_MANY = 20


def worth_range(multiple: float, low: float, high: float) -> tuple[float, float]:
    """(m/high, m/low): the true worth over the entered one, as far as the prices deter."""
    if multiple == 0:  # nothing is charged, and both gain and tolerance scale with the worth
        return 0.0, math.inf
    return multiple / high, multiple / low if low > 0 else math.inf


def range_words(low: float, high: float) -> str:
    """How long prices deter, as the end of a sentence."""
    if low == 0 and math.isinf(high):
        return "whatever the model is worth"
    if low == 0:
        words = f"at most {high:.3g}"
    elif math.isinf(high):
        words = f"at least {low:.3g}"
    else:
        words = f"between {low:.3g} and {high:.3g}"
    return f"as long as the model is worth {words} of what was entered"


def worth_sentence(plan: Plan, names: tuple[str, ...]) -> str:
    """What a unit of the reward is taken to be worth, in one sentence."""
    worth, unit = plan.prices.worth, plan.app.metric.partition(":")[0] or "loss"
    if plan.prices.reward != "own":
        unit = f"the reward {plan.prices.reward!r}"
    amounts = [money(value, plan.prices.currency, exact=True) for value in worth]
    if len(set(worth)) == 1:
        words = f"{amounts[0]} to each member"
    elif len(worth) > _MANY:
        ends = [money(end(worth), plan.prices.currency, exact=True) for end in (min, max)]
        words = f"{ends[0]} to {ends[1]}, which differs by member"
    else:
        words = ", ".join(f"{own} to {name}" for own, name in zip(amounts, names, strict=True))
    return f"A unit of {unit} is taken to be worth {words} (--worth)."
