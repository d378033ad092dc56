"""Whether the first norms of a run lie in the band that was audited.

Prices fit the local training that was audited. With another optimiser, step or number of local
steps, norms differ by factors and the same prices charge too much or too little. So the effective
squared norms (N w_i)² ‖reply_i − sent‖² of the first rounds are compared with those of the audit.
"""

from __future__ import annotations

from collections.abc import Iterable

from verax.flower.round import Asked
from verax.mechanism import Audited

#: The rounds of a run that are compared: later norms also depend on how the training went.
FIRST_ROUNDS = 3

#: How far below and above the band a squared norm may lie. The band holds for the audit's seeds
#: alone, and new batches change norms, but not by a factor of two; a step or a number of local
#: steps that is twice as large multiplies squared norms by up to four.
TOLERANCE = 4.0


def outside_band(audited: Audited, round_: int, asked: Iterable[Asked]) -> list[str]:
    """A sentence for each ok member whose effective squared norm does not fit the audit."""
    low, high = audited.band(round_)
    sentences: list[str] = []
    for one in asked:
        value = one.weight**2 * one.norm
        if one.reply.status == "ok" and not low / TOLERANCE <= value <= high * TOLERANCE:
            sentences.append(
                f"round {round_}: {one.member.label} sent an update with effective squared norm "
                f"{value:.4g}, the audit saw {low:.4g} to {high:.4g} (tolerance: a factor of "
                f"{TOLERANCE:g}). Likely causes: another optimiser, step or number of local steps "
                f"than audited ({audited.protocol}; {audited.local_work})"
            )
    return sentences
