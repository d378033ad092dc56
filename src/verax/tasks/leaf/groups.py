"""Meta-clients: LEAF's users in k groups of equal size.

The paper groups them without regard to what they hold, so that groups of many users hardly
differ. `by-similarity` makes groups that differ: users are sorted along the first principal
component of their label shares and the sequence is cut.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verax.tasks.leaf.cache import Leaf

#: How users become clients.
GROUPINGS = ("shuffled", "by-order", "by-similarity", "users")


def group_users(leaf: Leaf, clients: int, grouping: str, seed: int) -> list[NDArray[np.intp]]:
    """The users of each client, as places in `leaf.users`.

    Args:
        leaf: the data.
        clients: k; for `users` every user with test data is a client and k says how many of them
            (0: all).
        grouping: one of `GROUPINGS`.
        seed: of the shuffle.
    """
    count = len(leaf.users)
    if grouping == "users":
        able = np.flatnonzero(leaf.test.sizes > 0)
        if not 0 <= clients <= len(able):
            raise ValueError(f"clients is {clients}, must be 0 … {len(able)}: users with test data")
        return [np.array([user]) for user in able[: clients or len(able)]]
    if not 2 <= clients <= count:
        raise ValueError(f"clients is {clients}, must be 2 … {count}, the number of users")
    match grouping:
        case "by-order":
            order = np.arange(count)
        case "shuffled":
            order = np.random.default_rng(seed).permutation(count)
        case "by-similarity":
            order = _along_difference(leaf.train.label_shares(leaf.kind.classes))
        case _:
            raise ValueError(f"split is {grouping!r}, must be one of {', '.join(GROUPINGS)}")
    groups = np.array_split(order, clients)
    for number, group in enumerate(groups):
        if not leaf.test.sizes[group].sum():
            raise ValueError(
                f"client {number} has no test data; use --split shuffled or fewer clients"
            )
    return groups


def _along_difference(shares: NDArray[np.float64]) -> NDArray[np.intp]:
    """Users in the order of the first principal component of what they hold."""
    centred = shares - shares.mean(axis=0)
    axis = np.linalg.svd(centred, full_matrices=False)[2][0]
    # The sign of a singular vector is free: its largest entry is made positive.
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))])
    return np.argsort(np.round(centred @ axis, 9), kind="stable")
