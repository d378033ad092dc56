"""The price over the rounds, C_{t,i}: the one form in which audit, terms and charges state it.

    C_{t,i} = values[block of t][i] · (1 − discount)^{rounds − t}

Three kinds are used: *constant*, one number for all rounds; *discounted*, which rises toward the
end as the influence of an update on the final model does; and a *profile*, one price per block of
rounds (`verax.mechanism.profile`). Each may differ by member.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Row = tuple[float, ...]


@dataclass(frozen=True)
class Blocks:
    """Consecutive blocks that cover rounds 1 … T.

    Attributes:
        starts: the first round of each block, beginning with 1, strictly rising.
        rounds: T.
    """

    starts: tuple[int, ...]
    rounds: int

    def __post_init__(self) -> None:
        if not self.starts or self.starts[0] != 1:
            raise ValueError(f"the first block must start at round 1, starts are {self.starts}")
        if any(a >= b for a, b in zip(self.starts, self.starts[1:], strict=False)):
            raise ValueError(f"block starts must rise, got {self.starts}")
        if self.starts[-1] > self.rounds:
            raise ValueError(f"block start {self.starts[-1]} is after the last round {self.rounds}")

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> NDArray[np.intp]:
        """Rounds in each block, shape (K,)."""
        return np.diff(np.append(self.starts, self.rounds + 1)).astype(np.intp)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """First and last round of each block."""
        ends = [start - 1 for start in self.starts[1:]] + [self.rounds]
        return list(zip(self.starts, ends, strict=True))

    @property
    def of_round(self) -> NDArray[np.intp]:
        """The block (0 … K − 1) of each round, shape (T,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def sums(self, values: ArrayLike, axis: int = 0) -> Array:
        """Sums over the rounds of each block; the rounds' axis of length T becomes one of K."""
        starts = np.asarray(self.starts) - 1
        return np.add.reduceat(np.asarray(values, dtype=np.float64), starts, axis=axis)


def refined_blocks(rounds: int, per_halving: int = 1) -> Blocks:
    """Blocks that halve toward the end, the last three rounds alone.

    Boundaries lie where T·2^{−k/h} rounds remain, h = `per_halving`: an update's influence on the
    final model is largest, and changes fastest, in the last rounds.

    Example:
        >>> refined_blocks(100).starts
        (1, 51, 76, 88, 95, 98, 99, 100)
    """
    if rounds < 1 or per_halving < 1:
        raise ValueError(f"rounds {rounds} and per_halving {per_halving} must be ≥ 1")
    halvings = np.arange(0, np.log2(rounds) * per_halving + 1) / per_halving
    remaining = {round(float(left)) for left in rounds * 2.0**-halvings} | {1, 2, 3}
    return Blocks(tuple(sorted(rounds - left + 1 for left in remaining if left <= rounds)), rounds)


@dataclass(frozen=True)
class Price:
    """C_{t,i}; a constant price may leave `rounds` open (0).

    Attributes:
        values: one row per block, each with one number for all members or one per member.
        starts: the first round of each block.
        discount: r; the price of round t is multiplied by (1 − r)^{rounds − t}.
        rounds: T, or 0 for a constant price of any number of rounds.
    """

    values: tuple[Row, ...]
    starts: tuple[int, ...] = (1,)
    discount: float = 0.0
    rounds: int = 0

    def __post_init__(self) -> None:
        check_rows("price.values", self.values, len(self.starts), low=0.0)
        if not 0 <= self.discount < 1:
            raise ValueError(f"price.discount is {self.discount:g}, must be in [0, 1)")
        if (self.discount or len(self.starts) > 1) and self.rounds < 1:
            raise ValueError("price.rounds is missing: a price that changes needs the last round")
        try:
            Blocks(self.starts, self.rounds or 1)
        except ValueError as error:
            raise ValueError(f"price.starts: {error}") from None

    @classmethod
    def constant(cls, value: float | Row, rounds: int = 0) -> Price:
        """The same price in every round: one number, or one per member."""
        row = tuple(map(float, value)) if isinstance(value, tuple) else (float(value),)
        return cls((row,), rounds=rounds)

    @classmethod
    def discounted(cls, value: float, rate: float, rounds: int) -> Price:
        """C (1 − r)^{T−t}: a price that rises at the rate r toward C in the last round."""
        return cls(((float(value),),), discount=rate, rounds=rounds)

    @classmethod
    def profile(cls, blocks: Blocks, values: ArrayLike) -> Price:
        """Prices per block, (K,) or (K, N)."""
        rows = np.asarray(values, dtype=np.float64).reshape(len(blocks), -1)
        return cls(tuple(map(tuple, rows.tolist())), blocks.starts, rounds=blocks.rounds)

    def times(self, factor: float) -> Price:
        """The same price, multiplied."""
        rows = tuple(tuple(factor * value for value in row) for row in self.values)
        return replace(self, values=rows)

    def at(self, round_: int) -> Array:
        """C of a round, shape (1,) or (N,)."""
        block = self.block(round_)
        return np.asarray(self.values[block]) * (1 - self.discount) ** (self.rounds - round_)

    def per_round(self) -> Array:
        """C of all rounds, shape (T, 1) or (T, N)."""
        blocks = Blocks(self.starts, self.rounds)
        factors = (1 - self.discount) ** np.arange(self.rounds - 1, -1, -1.0)
        return np.asarray(self.values)[blocks.of_round] * factors[:, None]

    def block(self, round_: int) -> int:
        """Which block a round belongs to."""
        if round_ < 1 or (self.rounds and round_ > self.rounds):
            last = self.rounds or "∞"
            raise ValueError(f"round {round_} is outside the terms' rounds 1 … {last}")
        return bisect_right(self.starts, round_) - 1


def check_rows(name: str, rows: tuple[Row, ...], blocks: int, low: float = -math.inf) -> None:
    """Refuse rows of numbers that do not fit the blocks, differ in length or are not finite."""
    if len(rows) != blocks:
        raise ValueError(f"{name} has {len(rows)} rows for {blocks} block(s) of rounds")
    if not rows or any(not row or len(row) != len(rows[0]) for row in rows):
        raise ValueError(f"{name} needs rows of the same length, one number or one per member")
    for row in rows:
        for value in row:
            if not math.isfinite(value) or value < low:
                raise ValueError(f"{name} holds {value:g}, must be a finite number ≥ {low:g}")
