"""A mod that pairs the runs of a rehearsal: each call draws from the seed that its message brings.

Without it a rehearsal works as well, but differences between runs carry the app's own randomness,
and need more seeds for the same precision.
"""

from __future__ import annotations

from typing import cast

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from verax.flower.randomness import SEED_RECORD, seeded


def paired(request: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """`ClientApp(mods=[paired])`: seed the global generators as the server of a rehearsal asks."""
    if not request.has_content() or SEED_RECORD not in request.content:
        return call_next(request, context)
    numbers = cast("list[int]", request.content[SEED_RECORD]["seed"])
    del request.content[SEED_RECORD]
    with seeded(*numbers):
        return call_next(request, context)
