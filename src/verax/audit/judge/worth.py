"""What a unit of the reward is worth to each member, and how wrong that number may be.

An audit takes a unit of member i's reward to be worth v_i, so that a misreport gains ΔR − ΔP, both
in money, against a tolerance ε. If the true worth is w times what was entered, it gains w ΔR − ΔP
against a tolerance w ε. A harmful misreport is therefore deterred as long as

    w (ΔR − ε) ≤ ΔP.

Whether a misreport is harmful depends on the others' worths, not on the deviator's own. So each w_i
may be another number in the range in which all harmful misreports are deterred.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verax.amounts import money
from verax.audit.plan import Plan

Array = NDArray[np.float64]

# Of more members than this, only the extremes are named.
_MANY = 20


def worth_range(above: Array, rises: Array) -> tuple[float, float]:
    """The true worth over the entered one, as far as no misreport gains more than the tolerance.

    Args:
        above: ΔR − ε of each harmful misreport.
        rises: ΔP of each; what the misreport pays more.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = rises / above
    return (
        float(np.max(ratios, initial=0.0, where=above < 0)),
        float(np.min(ratios, initial=math.inf, where=above > 0)),
    )


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
