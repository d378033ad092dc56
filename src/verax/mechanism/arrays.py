"""Which arrays of a model are charged.

BatchNorm counts its batches in the model: the square of that count is far larger than all changes
of the weights together, and says nothing about them. An uncharged array is not measured. In return
it cannot change the model: the array that the server sent is used in place of a member's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Arrays:
    """Which arrays are not charged, by patterns of their names such as `bn?.*`.

    Example:
        >>> Arrays().is_charged("bn1.weight"), Arrays().is_charged("bn1.num_batches_tracked")
        (True, False)
    """

    uncharged: tuple[str, ...] = ("*num_batches_tracked",)

    def __post_init__(self) -> None:
        if "" in self.uncharged:
            raise ValueError("arrays.uncharged holds an empty text, must be patterns of names")

    def is_charged(self, name: str) -> bool:
        """Whether an array of this name is measured and charged."""
        return not any(fnmatchcase(name, pattern) for pattern in self.uncharged)
