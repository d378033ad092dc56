r"""The Merkle tree of RFC 6962 over the bytes of a federation's records.

    leaf = SHA-256(0x00 ‖ record),   node = SHA-256(0x01 ‖ left ‖ right),

where the left subtree of n > 1 leaves has the largest power of two below n. A short proof shows
that a record is in the book (inclusion), or that a book only grew (consistency), to somebody who
knows nothing but roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

Hashes = Sequence[bytes]


def leaf_hash(data: bytes) -> bytes:
    """The hash of a record in the tree."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


def root(leaves: Hashes) -> bytes:
    """The root over leaf hashes."""
    if not leaves:
        return sha256(b"").digest()
    level = list(leaves)
    # A last node without a partner moves up unchanged; this gives the same tree as the recursion.
    while len(level) > 1:
        pairs = [node_hash(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def inclusion_proof(leaves: Hashes, index: int) -> list[bytes]:
    """The audit path of leaf `index` = 0, 1, …, from the leaf up."""
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if index < k:
        return [*inclusion_proof(leaves[:k], index), root(leaves[k:])]
    return [*inclusion_proof(leaves[k:], index - k), root(leaves[:k])]


def root_of_inclusion(leaf: bytes, index: int, size: int, proof: Hashes) -> bytes:
    """The root that an inclusion proof leads to; raises ValueError if it has the wrong length."""
    if size == 1:
        if proof:
            raise ValueError("the inclusion proof is too long")
        return leaf
    if not proof:
        raise ValueError("the inclusion proof is too short")
    k = _split(size)
    if index < k:
        return node_hash(root_of_inclusion(leaf, index, k, proof[:-1]), proof[-1])
    return node_hash(proof[-1], root_of_inclusion(leaf, index - k, size - k, proof[:-1]))


def consistency_proof(leaves: Hashes, old: int) -> list[bytes]:
    """The proof that the tree of the first `old` ≥ 1 leaves is the beginning of this one."""
    return _subproof(leaves, old, True)


def _subproof(leaves: Hashes, old: int, complete: bool) -> list[bytes]:
    if old == len(leaves):
        return [] if complete else [root(leaves)]
    k = _split(len(leaves))
    if old <= k:
        return [*_subproof(leaves[:k], old, complete), root(leaves[k:])]
    return [*_subproof(leaves[k:], old - k, False), root(leaves[:k])]


def is_consistent(
    old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Whether a proof shows that a tree of size `new` begins with the one of size `old` ≥ 1."""
    if not 1 <= old <= new:
        return False
    rest = list(proof)
    try:
        roots = _roots(old, new, rest, old_root, True)
    except IndexError:
        return False
    return not rest and roots == (old_root, new_root)


def _roots(
    old: int, new: int, proof: list[bytes], old_root: bytes, complete: bool
) -> tuple[bytes, bytes]:
    """Both roots as the proof, which is used up from its end, gives them."""
    if old == new:
        known = old_root if complete else proof.pop()
        return known, known
    k = _split(new)
    sibling = proof.pop()
    if old <= k:
        before, after = _roots(old, k, proof, old_root, complete)
        return before, node_hash(after, sibling)
    before, after = _roots(old - k, new - k, proof, old_root, False)
    return node_hash(sibling, before), node_hash(sibling, after)


def _split(size: int) -> int:
    """The largest power of two below a size > 1."""
    return 1 << ((size - 1).bit_length() - 1)
