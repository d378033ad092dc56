"""Which samples a client uses in which round.

Each client walks through its samples in random order, epoch by epoch; the order of an epoch depends
only on (seed, client, epoch). So any round can be computed without those before it, and neither the
batching of runs nor a resumed audit changes which samples are seen. With a given number of local
steps a round takes the next samples of this walk; with local epochs it takes whole epochs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def batch_indices(
    sizes: NDArray[np.intp],
    seed: int,
    first: int,
    rounds: int,
    steps: int,
    batch: int,
    first_client: int = 0,
) -> NDArray[np.int32]:
    """Sample positions of `rounds` rounds from `first` (0-based) on, (rounds, N, steps, batch).

    `sizes` are the numbers of samples of the N clients from `first_client` on.
    """
    per_round = steps * batch
    result = np.empty((len(sizes), rounds * per_round), dtype=np.int32)
    begin, end = first * per_round, (first + rounds) * per_round
    for client, size in enumerate(sizes):
        if size == 1:  # there is one order only; drawing it anew for every epoch takes long
            result[client] = 0
            continue
        epochs = range(begin // size, -(-end // size))
        order = np.concatenate(
            [
                np.random.default_rng([seed, first_client + client, epoch]).permutation(size)
                for epoch in epochs
            ]
        )
        skip = begin - epochs.start * size
        result[client] = order[skip : skip + end - begin]
    shaped = result.reshape(len(sizes), rounds, steps, batch)
    return np.ascontiguousarray(np.swapaxes(shaped, 0, 1))


def epoch_indices(
    sizes: NDArray[np.intp], seed: int, first: int, rounds: int, epochs: int, batch: int
) -> NDArray[np.int32]:
    """Sample positions of rounds of whole epochs, (rounds, N, L, batch).

    An epoch is a new random order of the client's samples, cut into batches. Samples that do not
    fill a batch are left out, other ones in every epoch. L is the number of steps of the largest
    client; the positions of steps that a smaller client does not take are zero.
    """
    per_epoch = sizes // batch
    result = np.zeros((rounds, len(sizes), epochs * int(per_epoch.max()), batch), dtype=np.int32)
    for client, (size, count) in enumerate(zip(sizes, per_epoch, strict=True)):
        for t in range(rounds):
            for e in range(epochs):
                rng = np.random.default_rng([seed, client, (first + t) * epochs + e])
                order = rng.permutation(size)[: count * batch].reshape(count, batch)
                result[t, client, e * count : (e + 1) * count] = order
    return result


def participants(
    clients: int, share: float, seed: int, first: int, rounds: int
) -> NDArray[np.bool_]:
    """Who takes part, (rounds, N): each round a fresh draw of share · N clients, at least one."""
    if share >= 1:
        return np.ones((rounds, clients), dtype=np.bool_)
    count = max(1, round(share * clients))
    present = np.zeros((rounds, clients), dtype=np.bool_)
    for t in range(rounds):
        rng = np.random.default_rng([seed, first + t])
        present[t, rng.choice(clients, size=count, replace=False)] = True
    return present
