"""The verdict of an audit in a few sentences: what holds, what is not covered, advice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.amounts import money, number
from verax.audit.judge.candidates import Candidate
from verax.audit.judge.judgement import Judgement
from verax.audit.judge.noise import NOTICEABLE
from verax.audit.judge.windows import interval, seeds_needed
from verax.audit.judge.worth import range_words, worth_sentence
from verax.audit.plan import Plan
from verax.audit.show.tables import strongest_found

#: What no audit tries; the report says so.
_NEVER_TRIED = (
    "more than one identity per member",
    "deviations that react to the others' messages",
    "poisoned or invented data: messages are taken relative to what honest training would send",
    "a model that is worth more or less to a member than was entered (--worth), beyond the range "
    "that the verdict names",
)

#: The strongest hole that is known, for audits under FedSGD that do not try it.
KNOWN_HOLE = (
    "Not covered: under FedSGD with small batches, a member that averages its own updates or uses "
    "a full batch sends less noise and is charged less; on the embedded digits it gained 15 % of "
    "its loss by that at the price profile (docs/theory/limits.md)."
)


def verdict(judgement: Judgement, tables: dict[str, Any]) -> list[str]:
    """The audit in a few sentences; `tables` are those of the summary."""
    sentences = _price(judgement, tables)
    sentences += _other_rules(judgement) + _undeterred(judgement) + _second_order(tables)
    quiet = judgement.plan.deviations.momenta and judgement.plan.deviations.batches
    if judgement.description.message == "gradient" and not quiet:
        sentences.append(KNOWN_HOLE)
    sentences += _spot(tables)
    sentences.append(worth_sentence(judgement.plan, judgement.subject.names))
    sentences.append(_without_payments(judgement))
    constant = judgement.schedules["constant"]
    deters_constant = all(not window.empty for window in constant.windows_constant)
    if deters_constant and not constant.holds:
        sentences.append(
            "A constant price deters each member's constant misreports, but not timing: "
            + reason_of(judgement, constant)
        )
    return sentences + _precision(judgement) + _noise(judgement, tables) + _advice(judgement)


def not_tried(plan: Plan, tables: dict[str, Any]) -> list[str]:
    """What the audit did not try, as the report lists it; `tables` are those of the summary."""
    missing = ["three or more members deviating together", *_NEVER_TRIED]
    if not tables["pairs"]:
        missing.insert(0, "two members deviating together")
    if plan.app.folder:
        missing.insert(0, "other samples than the app's own, such as a larger batch")
    if not plan.deviations.momenta:
        missing.insert(0, "a moving average of own updates, which sends less noise")
    return missing


def why_not(judgement: Judgement, tables: dict[str, Any]) -> str | None:
    """Why the proposed price does not hold; None if it holds."""
    best = judgement.best
    if not best.holds:
        return reason_of(judgement, best)
    if not judgement.holds:
        low, high = best.common
        return (
            f"the multiple that was chosen on other seeds, {judgement.multiplier:.3g}, lies "
            f"outside of the window of the judging seeds, {low:.3g} to {high:.3g}."
        )
    if strongest_found(tables) is not None:
        return "a policy that the search found gains more than the tolerance."
    return None


def reason_of(judgement: Judgement, candidate: Candidate) -> str:
    """Why no multiple of a price deters everything that was tried."""
    for client, window in zip(judgement.plan.deviators, candidate.windows, strict=True):
        if window.empty:
            return f"for {judgement.subject.names[client]}, {window.reason}."
    low, high = candidate.common
    return (
        f"the members' windows do not overlap (lower ends up to {low:.3g}, upper ends down to "
        f"{high:.3g}); each would need a price of its own."
    )


def _price(judgement: Judgement, tables: dict[str, Any]) -> list[str]:
    """Whether the proposed price holds, and what still gains at it, the strongest first."""
    best, multiple = judgement.best, judgement.multiplier
    listed, searched = _largest(judgement, harmful=True), _searched(judgement, tables)
    low, high = best.common
    end = "∞" if math.isinf(high) else f"{high:.3g}"
    unit = "times the profile" if best.kind.endswith("profile") else "as C"
    window = f"the {best.kind} price holds from {low:.3g} to {end} {unit}"
    if judgement.worth_range is not None and strongest_found(tables) is None:
        words = (
            f"{window[0].upper()}{window[1:]} against the misreports tried. At {multiple:.3g} it "
            f"holds {range_words(*judgement.worth_range)}, and "
        )
        if listed is None:
            words += "none of them gains anything at the others' expense."
        else:
            words += f"at that price {listed[1]}."
        sentences = [words, *(words for _, words in searched)]
    else:
        gains = list(searched)
        if listed is not None:
            gains.append((listed[0], f"At the proposed price {listed[1]}."))
        sentences = [words for _, words in sorted(gains, key=lambda gain: -gain[0])]
        if judgement.worth_range is not None:
            sentences.append(
                f"Against the list of misreports alone, {window}. No price was judged against "
                "what the search found."
            )
        elif best.holds:
            sentences.append(
                f"That price was chosen on other seeds, {multiple:.3g} times the {best.kind}; on "
                f"the judging seeds it takes {low:.3g} to {high:.3g} times."
            )
        else:
            reason = reason_of(judgement, best)
            sentences.append(f"No price deters all of the misreports tried: {reason}")
    helpful = _largest(judgement, harmful=False)
    if helpful is not None:
        sentences.append(
            f"Without costing the others more than the tolerance, {helpful[1]}; that is a matter "
            "of the protocol, not of a price."
        )
    return sentences + _together(tables["pairs"])


def _searched(judgement: Judgement, tables: dict[str, Any]) -> list[tuple[float, str]]:
    """The most that a searched policy gains at the others' expense at the proposed price.

    At most one pair: the gain as a share of the honest reward, and a sentence.
    """
    found = [one for one in tables["search"] if one["price"] == "proposed"]
    if not found and judgement.plan.deviations.search == "off":
        return []
    if not found:
        words = "No policy was searched, because a run takes long; --search thorough does it."
        return [(0.0, words)]
    begin = f"A search of {found[0]['runs']} runs for each member's best policy found"
    harmful = [one for one in found if one["harmful"] and one["gain_share"] > 0]
    if not harmful:
        most = max(one["gain_share"] for one in found)
        words = f"{begin} none that gains at the others' expense; the best gains {most:.2%}."
        return [(0.0, words)]
    worst = max(harmful, key=lambda one: one["gain_share"])
    gain, low, high = worst["gain"].values()
    currency = judgement.plan.prices.currency
    words = (
        f"{begin} that {worst['name']} gains {money(gain, currency)} [{number(low)}, "
        f"{number(high)}], {worst['gain_share']:.2%} of its honest reward, at the others' expense "
        f"({worst['words']})."
    )
    return [(worst["gain_share"], words)]


def searched_lines(summary: dict[str, Any]) -> list[str]:
    """What the search found at the proposed price, as comments of the terms."""
    alone = [one for one in summary["search"] if one["price"] == "proposed"]
    everybody = [one for one in summary["everybody"] if one["price"] == "proposed"]
    lines = [
        f"  searched policy: {one['name']} gains {one['gain_share']:+.2%} by “{one['words']}”"
        + (", at the others' expense" if one["harmful"] else "")
        for one in alone
    ]
    for one in summary["pairs"]:
        names = " and ".join(one["names"])
        words = f"  two members together: {names} gain {one['gain_share']['mean']:+.2%}"
        if one["others_share"]:
            words += f", all others {one['others_share']['mean']:+.2%}"
        lines.append(words)
    lines += [
        f"  everybody strategic, from scale {one['start']:g}: all rewards together "
        f"{one['rise']['mean']:+.2%}"
        for one in everybody
    ]
    if strongest_found(summary) is not None:
        lines.append("A searched policy GAINS MORE than the tolerance at the others' expense.")
    return lines


def _together(pairs: list[dict[str, Any]]) -> list[str]:
    """The most that a pair of members gains."""
    if not pairs:
        return []
    alone = [one for one in pairs if one["others_share"] is None]
    if alone:
        mean, low, high = alone[0]["gain_share"].values()
        return [
            f"Both members together were found to gain {mean:.2%} of their honest rewards "
            f"[{low:.2%}, {high:.2%}]; there is nobody else."
        ]
    harmful = [one for one in pairs if one["harmful"] and one["gain_share"]["mean"] > 0]
    if not harmful:
        most = max(one["gain_share"]["mean"] for one in pairs)
        return [
            "Of the pairs of members that deviate together, none was found to gain at the others' "
            f"expense; the best gains {most:.2%} of its honest rewards."
        ]
    worst = max(harmful, key=lambda one: one["gain_share"]["mean"])
    mean, low, high = worst["gain_share"].values()
    return [
        f"Together, {' and '.join(worst['names'])} were found to gain {mean:.2%} of their honest "
        f"rewards [{low:.2%}, {high:.2%}], at the others' expense."
    ]


def _undeterred(judgement: Judgement) -> list[str]:
    """Rounds that the profile does not deter; neighbouring blocks share a sentence."""
    ranges = judgement.plan.blocks.ranges
    merged: list[tuple[int, int, str]] = []
    for k, reason in judgement.main.profile.undeterred:
        first, last = ranges[k]
        if merged and merged[-1][1:] == (first - 1, reason):
            first = merged.pop()[0]
        merged.append((first, last, reason))
    return [
        f"{f'Round {first} is' if first == last else f'Rounds {first} to {last} are'} not deterred "
        f"by the profile: {reason}."
        for first, last, reason in merged
    ]


def _second_order(tables: dict[str, Any]) -> list[str]:
    """Where both directions away from honesty together gain, so that it is no maximum."""
    rows = [one for one in tables["second_order"] if one["second_difference"]["low"] > 0]
    if not rows:
        return []
    most = max(rows, key=lambda one: one["second_difference"]["mean"])
    return [
        f"In {len(rows)} of {len(tables['second_order'])} blocks of rounds and members honesty is "
        f"stationary but no maximum, most of all for {most['name']} in rounds {most['first']} to "
        f"{most['last']}: scale {most['scale']:g} there gains {most['gain_share']['mean']:.2%}."
    ]


def _other_rules(judgement: Judgement) -> list[str]:
    """The rule that leaves less than the proposed one, if there is one."""
    least = judgement.recommended
    if least is None:
        return []
    return [
        f"Of all rules and prices that were judged, “{least.name}” leaves least at the others' "
        f"expense, {least.worst_share:.2%} of the honest reward. {_how_to_use(least.name)}"
    ]


def _spot(tables: dict[str, Any]) -> list[str]:
    """Which spot checks would hold, and what they cost."""
    spot = tables["spot"]
    if spot is None:
        return []
    chosen = spot["chosen"]
    what = "with these prices" if chosen["with_price"] else "in place of these prices"
    leaves = max(chosen["worst_share"], chosen["searched_share"] or 0.0)
    return [
        f"Spot checks (fine = {chosen['fine']:g}, rounds = {spot['rounds']} in [spot] of the "
        f"terms) {what} leave {leaves:.2%} of the honest reward to everything that was tried or "
        f"searched, directions included. They take {spot['calls']} client calls after a run of "
        f"{spot['run_calls']}; `terms.toml` holds the section as a comment, with fees."
    ]


def _how_to_use(name: str) -> str:
    if name.startswith("smoothed-norm"):
        return "It is measured in simulations only; a larger batch or local epochs serve live runs."
    return f"With --rules {name.partition(',')[0]} its terms are proposed."


def _noise(judgement: Judgement, tables: dict[str, Any]) -> list[str]:
    """What is paid for sending less noise, and what a larger batch would change."""
    leaking = [one for one in tables["noise"] if one["predicted"] > NOTICEABLE]
    if not leaking:
        return []
    most = max(leaking, key=lambda one: one["predicted"])
    least = min(min(one["signal_share"]) for one in leaking)
    larger = f"about {most['predicted_in_batches_4_times_as_large']:.1%}"
    measured = most["measured_in_batches_4_times_as_large"]
    if measured is not None:
        larger = f"{measured:.1%} (from two runs with such batches)"
    gradients = judgement.description.message == "gradient"
    epochs = "; local epochs (--protocol fedavg) leave even less" if gradients else ""
    return [
        f"Advice: batches are small. As little as {least:.0%} of a squared norm is signal, the "
        f"rest is noise, and {most['name']} would be paid {most['predicted']:.1%} of its loss for "
        f"leaving the noise out ({most['measured']:.1%} measured). Batches 4 times as large would "
        f"bring that to {larger}{epochs}."
    ]


def _largest(judgement: Judgement, *, harmful: bool) -> tuple[float, str] | None:
    """Who gains most at the proposed price by harmful or by other misreports.

    The gain as a share of the honest reward, and the words for it.
    """
    best, deviators = judgement.best, judgement.plan.deviators
    sizes = judgement.evidence.reward_sizes[list(deviators)]
    choices = [
        best.best_response(judgement.multiplier, k, harmful=harmful) for k in range(len(deviators))
    ]
    k = int(np.argmax([gain / size for (_, gain), size in zip(choices, sizes, strict=True)]))
    label, gain = choices[k]
    if gain <= 0:
        return None
    where = " at the others' expense" if harmful else ""
    return gain / sizes[k], (
        f"{judgement.subject.names[deviators[k]]} gains "
        f"{money(gain, judgement.plan.prices.currency)}{where} by “{label}”, {gain / sizes[k]:.2%} "
        "of its honest reward"
    )


def _without_payments(judgement: Judgement) -> str:
    """Who gains most without payments, and who is hurt."""
    evidence, names, plan = judgement.evidence, judgement.subject.names, judgement.plan
    currency = plan.prices.currency
    free = evidence.gains.mean(axis=2)
    k, d = (int(i) for i in np.unravel_index(int(np.argmax(free)), free.shape))
    client = plan.deviators[k]
    gain, low, high = interval(evidence.gains[k, d])
    if gain <= evidence.tolerances[client]:
        return "Without payments no member gains more than the tolerance by what was tried."
    share = gain / evidence.reward_sizes[client]
    text = (
        f"Without payments {names[client]} gains {money(gain, currency)} [{number(low)}, "
        f"{number(high)}], {share:.1%} of its honest reward, by “{evidence.labels[d]}”"
    )
    steering = evidence.steering(k, d)
    if steering is not None:
        part = money(float(steering.mean()), currency)
        text += f", of which {part} is steering, the rest faster learning"
    hurt = evidence.harm[k, d].mean(axis=0)
    hurt[client] = -np.inf
    victim = int(np.argmax(hurt))
    if hurt[victim] > 0:
        text += f"; {names[victim]} is hurt most: its loss rises by {number(hurt[victim])}"
        if plan.prices.worth != (1.0,):
            lost = -float(evidence.reward_rises[k, d, :, victim].mean())
            text += f", which costs it {money(lost, currency)}"
    return text + "."


def _precision(judgement: Judgement) -> list[str]:
    """How many seeds it takes, where the best misreport's gain is not known to its tolerance."""
    plan, evidence = judgement.plan, judgement.evidence
    gains = evidence.gains - judgement.multiplier * judgement.best.rises
    widest, needed, tolerance = 0.0, 0, 0.0
    for k, client in enumerate(plan.deviators):
        best = gains[k, int(np.argmax(gains[k].mean(axis=1)))]
        half = interval(best).high - float(best.mean())
        limit = float(evidence.tolerances[client])
        if half > limit > 0 and (seeds := seeds_needed(best, limit)) > needed:
            widest, needed, tolerance = half, seeds, limit
    if not needed:
        return []
    currency = plan.prices.currency
    return [
        f"Precision: on {plan.seeds.judge} seeds the gain of the best misreport is known to "
        f"± {money(widest, currency)}, and the tolerance is {money(tolerance, currency)}. It takes "
        f"about {needed} seeds to know it to the tolerance (--judging-seeds {needed})."
    ]


def _advice(judgement: Judgement) -> list[str]:
    """What the operator can do about a step that is too small."""
    if judgement.larger_step is None:
        return []
    factor, gains = judgement.larger_step
    plan = judgement.plan
    share = float(np.mean(gains / judgement.evidence.reward_sizes))
    remedy = f"try --step {plan.protocol.make().step * factor:.3g}"
    if plan.app.folder:
        remedy = "try a larger learning rate in the app's configuration"
    return [
        f"Advice: the step is small for {plan.rounds} rounds. {factor:.2f} times as large it would "
        f"serve every member better by itself ({share:.0%} of the loss on average), so part of the "
        f"temptation is the protocol's own; {remedy}."
    ]
