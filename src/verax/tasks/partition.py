"""Splitting one data set among clients; every split is a list of sample positions per client."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Positions = list[NDArray[np.intp]]

#: The splits that a plan can name.
SPLITS = ("dirichlet", "iid", "by-size", "by-label")


def iid(labels: NDArray[np.int32], clients: int, rng: np.random.Generator) -> Positions:
    """Equal shares at random: the clients hardly differ."""
    return _sorted(np.array_split(rng.permutation(len(labels)), clients))


def by_size(labels: NDArray[np.int32], clients: int, rng: np.random.Generator) -> Positions:
    """Random shares in proportion 1 : 2 : … : N: clients differ in size alone."""
    ends = np.cumsum(np.arange(1, clients + 1)) / (clients * (clients + 1) / 2) * len(labels)
    return _sorted(np.split(rng.permutation(len(labels)), ends[:-1].astype(int)))


def by_label(labels: NDArray[np.int32], clients: int, rng: np.random.Generator) -> Positions:
    """Classes dealt out in contiguous groups: clients share no label."""
    classes = np.unique(labels)
    if len(classes) < clients:
        raise ValueError(f"{len(classes)} labels cannot be dealt out to {clients} clients")
    groups = np.array_split(classes, clients)
    return _sorted([rng.permutation(np.flatnonzero(np.isin(labels, own))) for own in groups])


def dirichlet(
    labels: NDArray[np.int32], clients: int, rng: np.random.Generator, alpha: float = 1.0
) -> Positions:
    """Each class is shared out by a draw from Dirichlet(α): the smaller α, the more they differ.

    Drawn anew (from the same generator) until every client has at least five samples.
    """
    if not alpha > 0:
        raise ValueError(f"alpha is {alpha:g}, must be > 0")
    for _ in range(100):
        parts: list[list[NDArray[np.intp]]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            own = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(clients, alpha))
            ends = (np.cumsum(shares)[:-1] * len(own)).astype(int)
            for part, piece in zip(parts, np.split(own, ends), strict=True):
                part.append(piece)
        split = _sorted([np.concatenate(part) for part in parts])
        if min(map(len, split)) >= 5:
            return split
    raise ValueError(
        f"{len(labels)} samples cannot be split among {clients} clients at alpha {alpha:g} with "
        "five samples each; raise alpha or lower the number of clients"
    )


def train_test(
    positions: Positions, rng: np.random.Generator, share: float = 0.8
) -> tuple[Positions, Positions]:
    """Within each client a random `share` to train on, the rest to test on; at least one each."""
    train: Positions = []
    test: Positions = []
    for client, own in enumerate(positions):
        if len(own) < 2:
            raise ValueError(
                f"client {client} has {len(own)} sample(s), needs at least 2: one to train on and "
                "one to test on; lower the number of clients"
            )
        mixed = rng.permutation(own)
        cut = min(max(round(share * len(own)), 1), len(own) - 1)
        train.append(np.sort(mixed[:cut]))
        test.append(np.sort(mixed[cut:]))
    return train, test


def _sorted(parts: list[NDArray[np.intp]]) -> Positions:
    return [np.sort(part) for part in parts]
