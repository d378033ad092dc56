"""Common random numbers for code that draws from global generators.

Client apps shuffle and initialise with the global generators of `random`, NumPy, PyTorch and
TensorFlow. Inside `seeded(…)` those that are loaded are seeded by the given numbers, so that the
same call draws the same numbers in every run; afterwards the generators continue as if nothing had
happened. JAX has no global generator.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Message, MessageType

#: The name of the record in a message that carries the seed of a call.
SEED_RECORD = "verax.seed"


@contextmanager
def seeded(*numbers: int) -> Generator[None]:
    """Seed the global generators by these numbers, and restore their states afterwards.

    TensorFlow's state cannot be restored; it keeps the new seed.
    """
    torch: Any = sys.modules.get("torch")
    before = random.getstate(), np.random.get_state()
    torch_before: Any = None if torch is None else torch.get_rng_state()
    _seed(np.random.SeedSequence([number & 0xFFFFFFFF for number in numbers]))
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch is not None:
            torch.set_rng_state(torch_before)


def message_seed(
    replica: int, member: int, round_: int, message: Message
) -> tuple[int, int, int, int]:
    """The seed of one call: replica, member, round and kind of message.

    The round is the one that the message's configuration gives, as Flower's strategies do, and
    `round_` if it gives none.
    """
    for config in message.content.config_records.values():
        if isinstance(told := config.get("server-round"), int):
            round_ = told
    return replica, member, round_, zlib.crc32(message.metadata.message_type.encode())


def is_training(message: Message) -> bool:
    """Whether a message asks for training, under whatever name of the app's."""
    return message.metadata.message_type.split(".")[0] == MessageType.TRAIN


def _seed(sequence: np.random.SeedSequence) -> None:
    first, second, third, fourth = (int(word) for word in sequence.generate_state(4))
    random.seed(first)
    np.random.seed(second)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(third)
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(fourth)
