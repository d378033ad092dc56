"""LEAF's data as its own scripts write them: read in a stream, kept compact, split by user."""

from verax.tasks.leaf.cache import Leaf, Part, kind_of, load_leaf
from verax.tasks.leaf.groups import GROUPINGS, group_users
from verax.tasks.leaf.kinds import KINDS, Kind

__all__ = [
    "GROUPINGS",
    "KINDS",
    "Kind",
    "Leaf",
    "Part",
    "group_users",
    "kind_of",
    "load_leaf",
]
