"""The Merkle tree against RFC 6962's definition, its known vectors, and pymerkle."""

import hashlib

import pytest

from verax.ledger import tree

# The leaves and roots that implementations of RFC 6962 share as test vectors.
LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def by_the_rfc(leaves):
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + by_the_rfc(leaves[:k]) + by_the_rfc(leaves[k:])).digest()


def test_known_roots():
    hashes = [tree.leaf_hash(data) for data in LEAVES]
    assert [tree.root(hashes[:n]).hex() for n in range(len(ROOTS))] == ROOTS


def test_roots_are_those_of_the_recursion():
    hashes = [tree.leaf_hash(bytes([i])) for i in range(70)]
    for n in range(71):
        assert tree.root(hashes[:n]) == by_the_rfc(hashes[:n])


@pytest.fixture(scope="module")
def oracle():
    """An independent implementation."""
    pymerkle = pytest.importorskip("pymerkle")
    tree_ = pymerkle.InmemoryTree(algorithm="sha256")
    for i in range(40):
        tree_.append_entry(b"record %d" % i)
    return tree_


@pytest.fixture(scope="module")
def hashes():
    return [tree.leaf_hash(b"record %d" % i) for i in range(40)]


def test_roots_are_those_of_pymerkle(oracle, hashes):
    for n in range(1, 41):
        assert tree.root(hashes[:n]) == oracle.get_root(n)


def test_inclusion_proofs_are_those_of_pymerkle_and_verify(oracle, hashes):
    for n in range(1, 41):
        for i in range(n):
            proof = tree.inclusion_proof(hashes[:n], i)
            theirs = oracle.prove_inclusion(i + 1, n).serialize()["path"]
            assert [each.hex() for each in proof] == theirs[1:]
            assert tree.root_of_inclusion(hashes[i], i, n, proof) == tree.root(hashes[:n])


def test_consistency_proofs_verify_with_both(oracle, hashes):
    from pymerkle import verify_consistency

    for new in range(1, 41):
        for old in range(1, new + 1):
            proof = tree.consistency_proof(hashes[:new], old)
            roots = tree.root(hashes[:old]), tree.root(hashes[:new])
            assert tree.is_consistent(old, roots[0], new, roots[1], proof)
            verify_consistency(roots[0], roots[1], oracle.prove_consistency(old, new))


def test_wrong_proofs_are_refused(hashes):
    for new in range(2, 20):
        for old in range(1, new):
            proof = tree.consistency_proof(hashes[:new], old)
            good = (old, tree.root(hashes[:old]), new, tree.root(hashes[:new]))
            other = tree.leaf_hash(b"other")
            bad = [
                ((old, other, *good[2:]), proof),
                ((*good[:3], other), proof),
                (good, proof[:-1]),
                (good, [*proof, other]),
                ((old + 1, *good[1:]), proof),
            ]
            bad += [(good, [*proof[:k], other, *proof[k + 1 :]]) for k in range(len(proof))]
            for arguments, given in bad:
                if arguments[0] == new and given == [] and arguments[1] == arguments[3]:
                    continue
                assert not tree.is_consistent(*arguments, given), (arguments, given)
    assert not tree.is_consistent(0, hashes[0], 3, hashes[0], [])
    with pytest.raises(ValueError, match="too short"):
        tree.root_of_inclusion(hashes[0], 0, 5, [])
    with pytest.raises(ValueError, match="too long"):
        tree.root_of_inclusion(hashes[0], 0, 1, [hashes[1]])
