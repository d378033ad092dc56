"""Data changed at random, for fuzzing, and how long the fuzzing of `make test-all` takes."""

import os
import secrets
import time
from contextlib import contextmanager

import numpy as np

#: The seconds of all slow fuzzing tests together; each takes a part of them.
SECONDS = float(os.environ.get("VERAX_FUZZ_SECONDS", "600"))


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


#: What a field may become, whatever it was.
VALUES = (
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**9, 0.0, -0.0,
    0.5, 1.0, 1e-9, 5e-324, 1e300, "", " ", "a", "b", "North", "first", "missing", "norms", "gram",
    "checked", "0" * 64, "A" * 43 + "=", "A" * 86 + "==", "\ud800", "x" * 501, [], [0], [1, 2],
    [0.5], [[1.0]], {}, {"1": 0.5}, {"2": "missing"}, {"01": 1},
)  # fmt: skip


def change_field(document, rng):
    """Change one field of a document in place, at any depth; it remains a document."""
    places = list(_places(document))
    holder, key = places[int(rng.integers(len(places)))]
    old, kind = holder[key], int(rng.integers(0, 8))
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.append(old)
    elif kind < 4:  # something of the same type that stands elsewhere
        others = [h[k] for h, k in places if type(h[k]) is type(old) and h[k] != old]
        holder[key] = others[int(rng.integers(len(others)))] if others else None
    elif kind < 6 and type(old) in (int, float):
        holder[key] = old + type(old)(rng.choice([-1, 1, 10, 1000])) * rng.choice([1, 0.5]).item()
        holder[key] = type(old)(holder[key])
    elif kind < 6 and isinstance(old, str) and old:
        at = int(rng.integers(len(old)))
        holder[key] = old[:at] + str(rng.choice(list("aB0/=+ é\n"))) + old[at + 1 :]
    else:
        holder[key] = VALUES[int(rng.integers(len(VALUES)))]


def _places(node):
    """Every value in a document, as what holds it and its key there."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(pairs):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def fuzz_seed(capsys):
    """A seed that was not tried before, printed at once; `VERAX_FUZZ_SEED` repeats another."""
    seed = int(os.environ.get("VERAX_FUZZ_SEED") or secrets.randbits(32))
    with capsys.disabled():
        print(f"\n[VERAX_FUZZ_SEED={seed}]", end="", flush=True)
    return seed


def until(seconds):
    """0, 1, 2, … until so many seconds have passed."""
    end, k = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield k
        k += 1


@contextmanager
def case(seed, k):
    """A generator for one case, which an error names: the case can be repeated alone."""
    try:
        yield np.random.default_rng([seed, k])
    except BaseException as error:
        error.add_note(f"in case {k} with VERAX_FUZZ_SEED={seed}")
        raise
