"""Bytes changed at random, for fuzzing; how many cases, and from which seed."""

import os

#: Another seed tries other cases: `VERAX_FUZZ_SEED=7 make test-all`.
SEED = int(os.environ.get("VERAX_FUZZ_SEED", "0"))


def mutated(data, rng, pieces):
    """The bytes with a few changes: flipped, cut out, repeated, or replaced."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(0, len(changed) + 1))
        length = int(rng.integers(0, 12))
        kind = int(rng.integers(0, 5))
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = changed[at : at + length] * int(rng.integers(1, 40))
        elif kind == 3:
            changed[at : at + length] = rng.bytes(length)
        else:
            changed[at : at + length] = pieces[int(rng.integers(0, len(pieces)))]
    return bytes(changed)
