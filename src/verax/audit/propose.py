"""The terms that an audit proposes: prices inside the window, allowances, and what they rest on."""

from __future__ import annotations

import numpy as np

from verax.audit.judge import Judgement
from verax.audit.windows import interval
from verax.mechanism import Price, Terms, Weights

__all__ = ["propose", "terms_toml"]


def propose(judgement: Judgement) -> Terms:
    """The schedule that holds best, at its best price, with honest payments expected to be zero."""
    blocks = judgement.profile.blocks
    prices = judgement.multiplier * judgement.best.prices[np.asarray(blocks.starts) - 1]
    if judgement.best.name == "discounted":
        # Within a block the discounted price is charged at its mean over the block.
        prices = blocks.sums(judgement.multiplier * judgement.best.prices)
        prices = prices / blocks.lengths[:, None]
    rows = tuple(tuple(map(float, row)) for row in judgement.allowances)
    return Terms(
        price=Price.profile(blocks, prices),
        members=judgement.task.names,
        allowances=tuple((*row[:-1], -float(sum(row[:-1]))) for row in rows),
        weights=Weights("equal"),
    )


def terms_toml(judgement: Judgement) -> str:
    """`terms.toml` with what it rests on as comments."""
    plan, best = judgement.plan, judgement.best
    low, high = best.common
    lines = [
        f"Proposed by an audit of {judgement.task.name}: {plan.rounds} rounds, "
        f"{plan.make_protocol()}.",
        f"Prices: schedule “{best.name}” times {judgement.multiplier:.4g}, set on "
        f"{plan.setting_seeds} seeds and judged on {plan.judging_seeds} others,",
        f"against {len(judgement.evidence.deviations)} deviations of each of "
        f"{len(plan.deviators)} clients.",
    ]
    if best.holds:
        lines.append(
            f"No deviation tried gains more than {plan.tolerance:.3g} of the honest reward from "
            f"{low:.4g} to {high:.4g} times these prices over {judgement.multiplier:.4g}."
        )
    else:
        lines.append("NO PRICE of those tried deters everything; these come closest. See report.")
    for client, window in zip(plan.deviators, best.windows, strict=True):
        a, b = window.low_interval
        c, d = window.high_interval
        lines.append(
            f"  {judgement.task.names[client]}: window {window}; 95 % of resampled seeds have the "
            f"lower end in [{a:.3g}, {b:.3g}], the upper in [{c:.3g}, {d:.3g}]"
        )
    paid = best.honest.sum(axis=0) * judgement.multiplier
    lines.append(
        "Allowances take off what honest members would pay in expectation over the run: "
        + ", ".join(
            f"{name} {value:+.4g}" for name, value in zip(judgement.task.names, paid, strict=True)
        )
        + "."
    )
    mean, lower, upper = interval(judgement.evidence.honest_losses.mean(axis=1))
    lines.append(f"Mean honest test loss {mean:.4g} [{lower:.4g}, {upper:.4g}].")
    lines.append("Worth: a unit of loss is taken to be worth one unit of currency to each member.")
    return propose(judgement).to_toml("\n".join(lines))
