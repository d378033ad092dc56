"""The terms that an audit proposes: the price that was judged, allowances, and their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verax import __version__
from verax.amounts import money
from verax.audit.judge.judgement import Judgement
from verax.audit.judge.tried import strongest_misreports
from verax.audit.judge.windows import interval
from verax.audit.judge.worth import range_words, worth_sentence
from verax.mechanism import Audited, FailurePolicy, Price, Terms, Weights
from verax.mechanism.rules import rule_text


def propose(judgement: Judgement) -> Terms:
    """The price that holds best, exactly as it was judged, with allowances.

    Allowances stand per block of rounds, so that the price is written per block, too; the blocks of
    a constant or discounted price all have the same value.
    """
    price, blocks = judgement.best.price.times(judgement.multiplier), judgement.plan.blocks
    if price.starts != blocks.starts:
        price = replace(price, values=price.values * len(blocks), starts=blocks.starts)
    assert isinstance(price, Price)
    rows = [[float(value) for value in row[:-1]] for row in judgement.allowances]
    return Terms(
        price=price,
        rule=rule_text(judgement.main.rule),
        members=judgement.subject.names,
        allowances=tuple((*row, -sum(row)) for row in rows),
        weights=Weights(judgement.description.weights),
        policy=absence_policy(judgement)[0],
        currency=judgement.plan.prices.currency,
        worth=judgement.plan.prices.worth,
        audited=_audited(judgement),
    )


def absence_policy(judgement: Judgement) -> tuple[FailurePolicy, str]:
    """What a missing update should cost, and why, in a sentence.

    Absence is excused, because machines and networks fail, unless one that was tried pays at the
    others' expense. Then it costs what the largest update of the round costs.
    """
    rows = [row for row in strongest_misreports(judgement) if row.kind == "absence"]
    if not rows:
        return FailurePolicy(), "No absence was tried; a missing update is excused."
    (row,) = rows
    gain, name = float(row.gains.mean()), judgement.subject.names[row.client]
    pays = row.harmful and gain > judgement.plan.prices.tolerance
    words = f"The strongest absence tried ({name}: {row.label}) gains {gain:+.2%} of its reward"
    if pays:
        return FailurePolicy(
            missing="largest"
        ), f"{words}, so that a missing update costs the largest."
    return (
        FailurePolicy(),
        f"{words}{'' if row.harmful else ' and helps the others'}: it is excused.",
    )


def _audited(judgement: Judgement) -> Audited:
    """What the price was judged for."""
    plan, described = judgement.plan, judgement.description
    own = {"verax": __version__, "numpy": judgement.versions["numpy"]}
    low, high = judgement.band.T
    return Audited(
        message=described.message,
        protocol=described.protocol,
        local_work=described.local_work,
        rounds=plan.rounds,
        weights=described.weights,
        members=plan.task.clients,
        starts=plan.blocks.starts,
        lowest=tuple(low.tolist()),
        highest=tuple(high.tolist()),
        audit=judgement.subject.name,
        digest=judgement.digest,
        versions=", ".join(f"{name} {version}" for name, version in own.items()),
    )


def terms_toml(judgement: Judgement, searched: Sequence[str] = ()) -> str:
    """`terms.toml` with what it rests on as comments; `searched` says what the search found."""
    plan, best = judgement.plan, judgement.best
    names, (low, high) = judgement.subject.names, best.common
    lines = [
        f"Proposed by an audit of {judgement.subject.name}: {plan.rounds} rounds, "
        f"{judgement.description.protocol}.",
        f"Prices: {best.name}, times {judgement.multiplier:.4g}, set on {plan.seeds.set} seeds, "
        f"chosen on {plan.seeds.choose} others, judged on {plan.seeds.judge} further ones,",
        f"against {len(judgement.evidence.deviations)} misreports of each of "
        f"{len(plan.deviators)} clients.",
    ]
    lines.append(worth_sentence(plan, names))
    if judgement.worth_range is not None:
        lines.append(
            f"No misreport of the list gains more than {plan.prices.tolerance:.3g} of the honest "
            f"reward from {low / judgement.multiplier:.4g} to {high / judgement.multiplier:.4g} "
            "times these prices."
        )
        lines.append(f"They hold {range_words(*judgement.worth_range)}.")
    else:
        lines.append("NO PRICE of those tried deters everything; these come closest. See report.")
    lines.append("The strongest of each kind, at these prices, in shares of honest rewards:")
    for one in strongest_misreports(judgement):
        lines.append(
            f"  {one.kind}: {names[one.client]} gains {one.gains.mean():+.2%} by “{one.label}”, "
            f"all others {one.others.mean():+.2%}"
        )
    lines += searched
    for client, window in zip(plan.deviators, best.windows, strict=True):
        a, b = window.low_interval
        c, d = window.high_interval
        lines.append(
            f"  {names[client]}: window {window}; 95 % of resampled seeds have the lower end in "
            f"[{a:.3g}, {b:.3g}], the upper in [{c:.3g}, {d:.3g}]"
        )
    paid = best.honest.sum(axis=0) * judgement.multiplier
    lines.append(
        "Allowances take off what honest members would pay in expectation over the run: "
        + ", ".join(
            f"{name} {money(float(value), plan.prices.currency, sign=True)}"
            for name, value in zip(names, paid, strict=True)
        )
        + "."
    )
    lines.append(absence_policy(judgement)[1])
    mean, lower, upper = interval(judgement.evidence.honest_losses.mean(axis=1))
    lines.append(f"Mean honest test loss {mean:.4g} [{lower:.4g}, {upper:.4g}].")
    return propose(judgement).to_toml("\n".join(lines))
