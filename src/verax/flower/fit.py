"""Whether the prices of the terms fit what is charged; nothing is converted.

A reply in Flower is a model, so a model difference is charged. A gradient g and the difference −γg
that it causes have squared norms that differ by γ²: prices of gradients are too small by about
1/γ², 66 to 239 times where it was measured. Prices also fit only the local training that was
audited. With another optimiser, step or number of local steps, norms differ by factors. So the
effective squared norms ((1 + E_i) w_i)² ‖reply_i − sent‖² of the first rounds are compared with the
band that the audit saw.
"""

from __future__ import annotations

from collections.abc import Sequence

from verax.flower.log import log
from verax.flower.matching import Asked
from verax.mechanism import Terms, cautions

#: The rounds of a run that are compared: later norms also depend on how the training went.
FIRST_ROUNDS = 3

#: How far below and above the band a squared norm may lie. The band holds for the audit's seeds
#: alone, and other batches change a norm a little. A step or a number of local steps that is wrong
#: by a factor of two changes squared norms by up to four; larger mistakes are found.
TOLERANCE = 4.0


def check_fit(terms: Terms) -> None:
    """Refuse terms that were audited for other messages, weights or members."""
    audited = terms.audited
    if audited is None:
        return
    if audited.message != "model difference":
        raise ValueError(
            f'the terms were audited for messages of the kind "{audited.message}", but a reply in '
            "Flower is a model, and its difference from the model that was sent is charged: prices "
            "of gradients are too small for that, by about 1/step². Audit the app itself: "
            "`verax audit --app FOLDER`"
        )
    if audited.weights != terms.weights.kind:
        raise ValueError(
            f'the terms were audited with weights "{audited.weights}", and weights.kind is '
            f'"{terms.weights.kind}"; charge with the audited weights, or audit again'
        )
    if terms.members and audited.members != len(terms.members):
        raise ValueError(
            f"the terms were audited for {audited.members} members, and list "
            f"{len(terms.members)}; list the audited members, or audit again"
        )


def check_rounds(terms: Terms, rounds: int) -> None:
    """Refuse more rounds than have prices; warn of more than were audited, and of other risks."""
    last, audited = terms.price.rounds, terms.audited
    if last and rounds > last:
        raise ValueError(f"num_rounds is {rounds}, the terms have prices for {last} rounds")
    for text in cautions(terms, rounds):
        log.warning("Verax: %s", text)
    if audited is not None and rounds > audited.rounds:
        log.warning(
            "Verax: num_rounds is %d, the terms were audited for %d rounds; audit as many rounds "
            "as you run",
            rounds,
            audited.rounds,
        )


def check_norms(terms: Terms, round_: int, ok: Sequence[Asked]) -> None:
    """Log each norm of the first rounds that the audit did not see; stop if the terms say so."""
    audited = terms.audited
    if audited is None or round_ > FIRST_ROUNDS:
        return
    low, high = audited.band(round_)
    outside: list[str] = []
    for one in ok:
        value = one.effective_norm
        if not low / TOLERANCE <= value <= high * TOLERANCE:
            outside.append(
                f"{one.member.label} sent an update of effective squared norm {value:.4g}"
            )
            log.warning(
                "Verax: round %d: %s, the audit saw %.4g to %.4g (tolerance: a factor of %g). "
                "Likely causes: another optimiser, step or number of local steps than audited "
                "(%s; %s)",
                round_,
                outside[-1],
                low,
                high,
                TOLERANCE,
                audited.protocol,
                audited.local_work,
            )
    if outside and terms.policy.outside == "stop":
        raise ValueError(
            f"round {round_}: {', '.join(outside)}, the audit saw {low:.4g} to {high:.4g}, and "
            'policy.outside is "stop": nothing is charged. Train as audited, or audit again'
        )
