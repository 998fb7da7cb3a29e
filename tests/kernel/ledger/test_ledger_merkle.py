"""The tree against the recursion of RFC 9162 as its oracle, and proofs that no single bit may differ from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbox.ledger.merkle import (
    EMPTY_ROOT,
    RightEdge,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)
from deedbox.refusals import Refusal

LEAVES = [leaf_hash(number.to_bytes(4, "big")) for number in range(3000)]


def split(count: int) -> int:
    """The largest power of two smaller than ``count``."""
    power = 1
    while power * 2 < count:
        power *= 2
    return power


@cache
def mth(start: int, end: int) -> bytes:
    """MTH of RFC 9162 §2.1.1, word for word, over a range of the leaves above."""
    if start == end:
        return sha256().digest()
    if end - start == 1:
        return LEAVES[start]
    middle = start + split(end - start)
    return sha256(b"\x01" + mth(start, middle) + mth(middle, end)).digest()


def path(index: int, start: int, end: int) -> list[bytes]:
    """PATH of RFC 9162 §2.1.3.1."""
    if end - start == 1:
        return []
    power = split(end - start)
    if index < power:
        return [*path(index, start, start + power), mth(start + power, end)]
    return [*path(index - power, start + power, end), mth(start, start + power)]


def subproof(old: int, start: int, end: int, whole: bool) -> list[bytes]:
    """SUBPROOF of RFC 9162 §2.1.4.1."""
    if old == end - start:
        return [] if whole else [mth(start, end)]
    power = split(end - start)
    if old <= power:
        return [*subproof(old, start, start + power, whole), mth(start + power, end)]
    return [*subproof(old - power, start + power, end, False), mth(start, start + power)]


def node(level: int, index: int) -> bytes:
    return mth(index << level, (index + 1) << level)


def flips(hashes: Sequence[bytes], which: int) -> list[bytes]:
    """The same hashes with one bit the other way."""
    at, bit = divmod(which % (len(hashes) * 256), 256)
    flipped = bytearray(hashes[at])
    flipped[bit // 8] ^= 1 << bit % 8
    return [*hashes[:at], bytes(flipped), *hashes[at + 1 :]]


@pytest.mark.parametrize("size", [*range(66), 127, 128, 129, 1000, 2047, 2048, 3000])
def test_root_is_the_recursion(size: int) -> None:
    assert root(LEAVES[:size]) == mth(0, size)


def test_known_roots() -> None:
    """The eight inputs of the certificate-transparency test suite and two of their roots (Apache-2.0)."""
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [leaf_hash(bytes.fromhex(text)) for text in inputs]
    assert root([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert root(leaves[:1]).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert root(leaves).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.case("fed:D5")
def test_trees_that_must_not_share_a_root() -> None:
    a, b, c = (leaf_hash(letter) for letter in (b"A", b"B", b"C"))
    assert root([a, b, c]) != root([a, b, c, c])
    assert root([a, b, c]) == node_hash(node_hash(a, b), c)
    assert root([leaf_hash(a + b)]) != root([a, b])
    assert root([a]) == a == sha256(b"\x00A").digest()
    assert root([a]) != sha256(b"A").digest()
    assert root([]) == EMPTY_ROOT == sha256(b"").digest()


def test_every_proof_of_small_trees_is_the_recursion_and_verifies() -> None:
    for size in range(1, 40):
        for index in range(size):
            proof = inclusion_proof(index, size, node)
            assert proof == path(index, 0, size)
            assert verify_inclusion(index, size, LEAVES[index], proof, mth(0, size))
        for old in range(1, size + 1):
            proof = consistency_proof(old, size, node)
            assert proof == subproof(old, 0, size, True)
            assert verify_consistency(old, size, mth(0, old), mth(0, size), proof)


sizes = st.integers(2, len(LEAVES)).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size)))


@given(sizes, st.integers(0))
@settings(max_examples=200, deadline=None)
def test_inclusion_fails_on_any_flipped_bit(place: tuple[int, int], which: int) -> None:
    index, size = place
    proof, leaf, top = inclusion_proof(index, size, node), LEAVES[index], mth(0, size)
    assert proof == path(index, 0, size)
    assert verify_inclusion(index, size, leaf, proof, top)
    first, *others, last = flips([leaf, *proof, top], which)
    assert not verify_inclusion(index, size, first, others, last)


@given(sizes, st.integers(0), st.integers(0, 4000))
@settings(max_examples=200, deadline=None)
def test_inclusion_fails_elsewhere_and_with_more_or_fewer_hashes(
    place: tuple[int, int], cut: int, elsewhere: int
) -> None:
    index, size = place
    proof, leaf, top = inclusion_proof(index, size, node), LEAVES[index], mth(0, size)
    assert elsewhere == index or not verify_inclusion(elsewhere, size, leaf, proof, top)
    at = cut % len(proof)
    assert not verify_inclusion(index, size, leaf, proof[:at] + proof[at + 1 :], top)
    assert not verify_inclusion(index, size, leaf, [*proof, top], top)
    assert not verify_inclusion(index, size, leaf, [*proof[:at], proof[at][:31], *proof[at + 1 :]], top)


@given(sizes, st.integers(0))
@settings(max_examples=200, deadline=None)
def test_consistency_fails_on_any_flipped_bit(place: tuple[int, int], which: int) -> None:
    old, new = place[0] + 1, place[1]
    proof, before, after = consistency_proof(old, new, node), mth(0, old), mth(0, new)
    assert proof == subproof(old, 0, new, True)
    assert verify_consistency(old, new, before, after, proof)
    first, *others, last = flips([before, *proof, after], which)
    assert not verify_consistency(old, new, first, last, others)
    assert not verify_consistency(old, new, before, after, [*proof, after])
    if proof:
        assert not verify_consistency(old, new, before, after, proof[:-1])


def test_consistency_at_its_ends() -> None:
    assert verify_consistency(0, 0, EMPTY_ROOT, EMPTY_ROOT, [])
    assert verify_consistency(0, 5, EMPTY_ROOT, mth(0, 5), [])
    assert not verify_consistency(0, 5, LEAVES[0], mth(0, 5), [])
    assert not verify_consistency(0, 5, EMPTY_ROOT, mth(0, 5), [LEAVES[0]])
    assert not verify_consistency(0, 0, EMPTY_ROOT, LEAVES[0], [])
    assert not verify_consistency(5, 5, mth(0, 5), mth(0, 4), [])
    assert not verify_consistency(6, 5, mth(0, 6), mth(0, 5), [])
    assert not verify_consistency(3, 5, mth(0, 3), mth(0, 5), [])
    assert not verify_consistency(4, 5, mth(0, 4), mth(0, 5), [])
    assert consistency_proof(0, 5, node) == []


def test_a_proof_belongs_to_trees_of_its_own_shape() -> None:
    assert verify_inclusion(0, 2, LEAVES[0], path(0, 0, 2), mth(0, 2))
    assert not verify_inclusion(0, 8, LEAVES[0], path(0, 0, 2), mth(0, 2))
    assert verify_inclusion(7, 8, LEAVES[7], path(7, 0, 8), mth(0, 8))
    assert not verify_inclusion(1, 2, LEAVES[7], path(7, 0, 8), mth(0, 8))
    assert verify_consistency(2, 4, mth(0, 2), mth(0, 4), subproof(2, 0, 4, True))
    assert not verify_consistency(2, 8, mth(0, 2), mth(0, 4), subproof(2, 0, 4, True))
    assert verify_consistency(7, 8, mth(0, 7), mth(0, 8), subproof(7, 0, 8, True))
    assert not verify_consistency(3, 4, mth(0, 7), mth(0, 8), subproof(7, 0, 8, True))


def test_a_rewritten_leaf_has_no_consistency_proof() -> None:
    changed = [*LEAVES[:10], leaf_hash(b"other"), *LEAVES[11:100]]
    proof = consistency_proof(50, 100, node)
    assert not verify_consistency(50, 100, mth(0, 50), root(changed), proof)


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0)])
def test_no_proof_outside_the_tree(index: int, size: int) -> None:
    with pytest.raises(Refusal, match="outside_tree"):
        inclusion_proof(index, size, node)
    assert not verify_inclusion(index, size, LEAVES[0], [], LEAVES[0])


def test_no_consistency_proof_with_a_larger_tree() -> None:
    with pytest.raises(Refusal, match="outside_tree"):
        consistency_proof(4, 3, node)


@given(st.lists(st.integers(0, 400), max_size=8))
@settings(max_examples=60, deadline=None)
def test_an_edge_grown_in_any_groups_is_the_same_edge(groups: list[int]) -> None:
    edge, singly = RightEdge(), RightEdge()
    for count in groups:
        edge.extend(LEAVES[edge.size : edge.size + count])
        for leaf in LEAVES[singly.size : edge.size]:
            for level, index, found in singly.append(leaf):
                assert found == node(level, index)
        assert edge.size == singly.size
        assert edge.root() == singly.root() == mth(0, edge.size)
        assert edge.to_bytes() == singly.to_bytes() == RightEdge.at(edge.size, node).to_bytes()
        assert len(edge.to_bytes()) == 8 + 32 * edge.size.bit_count()


def test_an_edge_completes_two_nodes_a_leaf_in_the_long_run() -> None:
    edge = RightEdge()
    assert sum(len(edge.append(leaf)) for leaf in LEAVES[:2048]) == 2 * 2048 - 1


def test_an_edge_survives_storage_and_copies_grow_apart() -> None:
    edge = RightEdge()
    edge.extend(LEAVES[:777])
    again = RightEdge.from_bytes(edge.to_bytes())
    twin = edge.copy()
    again.extend(LEAVES[777:1500])
    twin.append(LEAVES[0])
    assert again.root() == mth(0, 1500)
    assert edge.root() == mth(0, 777) != twin.root()
    with pytest.raises(Refusal, match="ledger_damaged"):
        RightEdge.from_bytes(edge.to_bytes()[:-1])
    with pytest.raises(Refusal, match="ledger_damaged"):
        RightEdge.from_bytes(b"\x00" * 5)
