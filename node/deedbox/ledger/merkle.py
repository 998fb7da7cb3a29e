"""The tree over the ledger: one root for all entries, short proofs that one is in it and that none was rewritten.

RFC 9162 §2.1: a leaf is SHA-256(``00`` ‖ data), a node SHA-256(``01`` ‖ left ‖ right), an odd node moves up
unchanged, the empty tree is SHA-256 of nothing.

A node is addressed ``(level, index)``: ``(0, i)`` is leaf *i*, ``(L, i)`` covers the leaves ``i·2^L`` up to
``(i+1)·2^L`` and exists only when all of them do. A ``Node`` function returns the 32 bytes of such a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import chain, islice

from deedbox.refusals import Refusal

HASH_SIZE = 32
EMPTY_ROOT = sha256(b"").digest()

Node = Callable[[int, int], bytes]
CompletedNode = tuple[int, int, bytes]
"""Level, index and hash of a node whose last leaf has just arrived."""

_GROUP = 1024


def leaf_hash(data: bytes) -> bytes:
    """The leaf of an entry's bytes."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The parent of two neighbouring nodes."""
    return sha256(b"\x01" + left + right).digest()


def paired(hashes: list[bytes]) -> list[bytes]:
    """The parents of an even row of nodes; a last odd one is left out."""
    each = iter(hashes)
    return [sha256(b"\x01" + left + right).digest() for left, right in zip(each, each, strict=False)]


def root(leaves: Iterable[bytes]) -> bytes:
    """The root over leaf hashes, read once and never held together."""
    edge = RightEdge()
    each = iter(leaves)
    while group := list(islice(each, _GROUP)):
        edge.extend(group)
    return edge.root()


class RightEdge:
    """All that growing a tree needs: the complete subtrees still waiting for a right-hand neighbour.

    At most 64 hashes, one for each bit of ``size``; appending costs two hashes a leaf in the long run.
    """

    __slots__ = ("_waiting", "size")

    def __init__(self) -> None:
        self.size = 0
        self._waiting: list[bytes] = []  # by level; empty where the size has no such bit

    def append(self, leaf: bytes) -> list[CompletedNode]:
        """Take one leaf hash; returns every node it completed, the leaf first."""
        completed = [(0, self.size, leaf)]
        level, index, node = 0, self.size, leaf
        while index & 1:
            node = node_hash(self._waiting[level], node)
            self._waiting[level] = b""
            level, index = level + 1, index >> 1
            completed.append((level, index, node))
        self._wait(level, node)
        self.size += 1
        return completed

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Take many leaf hashes at once, a row of the tree at a time."""
        level, index, nodes = 0, self.size, list(leaves)
        self.size += len(nodes)
        while nodes:
            if index & 1:
                nodes.insert(0, self._waiting[level])
                self._waiting[level] = b""
            if len(nodes) & 1:
                self._wait(level, nodes.pop())
            nodes = paired(nodes)
            level, index = level + 1, index >> 1

    def _wait(self, level: int, node: bytes) -> None:
        while len(self._waiting) <= level:
            self._waiting.append(b"")
        self._waiting[level] = node

    def root(self) -> bytes:
        """The root of the tree so far."""
        joined = b""
        for node in filter(None, self._waiting):
            joined = node_hash(node, joined) if joined else node
        return joined or EMPTY_ROOT

    def copy(self) -> RightEdge:
        """An edge that grows apart from this one."""
        other = RightEdge()
        other.size, other._waiting = self.size, self._waiting.copy()
        return other

    def to_bytes(self) -> bytes:
        """Size as 8 bytes, big-endian, then the waiting hashes from the smallest subtree to the largest."""
        return self.size.to_bytes(8, "big") + b"".join(self._waiting)

    @classmethod
    def at(cls, size: int, node: Node) -> RightEdge:
        """The edge of the first ``size`` leaves of a tree whose nodes are stored."""
        edge = cls()
        edge.size = size
        edge._waiting = [
            node(level, (size >> level) - 1) if size >> level & 1 else b"" for level in range(size.bit_length())
        ]
        return edge

    @classmethod
    def from_bytes(cls, raw: bytes) -> RightEdge:
        """The edge that ``to_bytes`` wrote; a ``Refusal`` if it is not one."""
        edge = cls()
        edge.size = int.from_bytes(raw[:8], "big")
        if len(raw) != 8 + HASH_SIZE * edge.size.bit_count():
            raise Refusal("ledger_damaged", 500, "the stored edge of the tree does not fit its size")
        hashes = (raw[at : at + HASH_SIZE] for at in range(8, len(raw), HASH_SIZE))
        edge._waiting = [next(hashes) if edge.size >> level & 1 else b"" for level in range(edge.size.bit_length())]
        return edge


def subtree_root(start: int, end: int, node: Node) -> bytes:
    """The root over leaves ``start`` to ``end`` (excluded) of a range that the RFC's recursion splits off."""
    joined, position = b"", end
    for level in range((end - start).bit_length()):
        if (end - start) >> level & 1:
            position -= 1 << level
            left = node(level, position >> level)
            joined = node_hash(left, joined) if joined else left
    return joined or EMPTY_ROOT


def _split(start: int, end: int) -> int:
    """Where the recursion parts a range: after the largest power of two below its length."""
    return start + (1 << (end - start - 1).bit_length() - 1)


def inclusion_proof(index: int, size: int, node: Node) -> list[bytes]:
    """The sibling hashes from leaf ``index`` up to the root of the first ``size`` leaves (RFC 9162 §2.1.3.1)."""
    if not 0 <= index < size:
        raise Refusal("outside_tree", 404, f"a tree of {size} entries has no entry at index {index}")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = _split(start, end)
        if index < middle:
            path.append(subtree_root(middle, end, node))
            end = middle
        else:
            path.append(subtree_root(start, middle, node))
            start = middle
    return path[::-1]


def consistency_proof(old: int, new: int, node: Node) -> list[bytes]:
    """At most 63 hashes showing that the first ``old`` leaves of ``new`` are unchanged (RFC 9162 §2.1.4.1)."""
    if not 0 <= old <= new:
        raise Refusal("outside_tree", 404, f"a tree of {new} entries never had {old}")
    path: list[bytes] = []
    start, end, whole = 0, new, True
    while 0 < old < end:
        middle = _split(start, end)
        if old <= middle:
            path.append(subtree_root(middle, end, node))
            end = middle
        else:
            path.append(subtree_root(start, middle, node))
            start, whole = middle, False
    if not whole:
        path.append(subtree_root(start, end, node))
    return path[::-1]


def root_from_path(index: int, size: int, leaf: bytes, path: Sequence[bytes]) -> bytes | None:
    """The root an inclusion proof leads to, or ``None`` if the path cannot belong to that place and size."""
    if not 0 <= index < size or not _are_hashes(leaf, *path):
        return None
    first, last, node = index, size - 1, leaf
    for sibling in path:
        if not last:
            return None
        if first & 1 or first == last:
            node = node_hash(sibling, node)
            first, last = _skip_lonely(first, last)
        else:
            node = node_hash(node, sibling)
        first, last = first >> 1, last >> 1
    return None if last else node


def verify_inclusion(index: int, size: int, leaf: bytes, path: Sequence[bytes], root: bytes) -> bool:
    """Whether ``leaf`` stands at ``index`` of the tree with that size and root (RFC 9162 §2.1.3.2)."""
    return root_from_path(index, size, leaf, path) == root


def verify_consistency(old: int, new: int, old_root: bytes, new_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether the tree ``new`` is the tree ``old`` with leaves added, never changed (RFC 9162 §2.1.4.2)."""
    if not 0 <= old <= new or not _are_hashes(old_root, new_root, *path):
        return False
    if old in (0, new):
        expected = new_root if old else EMPTY_ROOT
        return not path and old_root == expected and (new > 0 or new_root == EMPTY_ROOT)
    hashes = iter(path if old & (old - 1) else chain([old_root], path))
    before = after = next(hashes, None)
    first, last = old - 1, new - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    for sibling in hashes:
        if not last or before is None or after is None:
            return False
        if first & 1 or first == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            first, last = _skip_lonely(first, last)
        else:
            after = node_hash(after, sibling)
        first, last = first >> 1, last >> 1
    return not last and before == old_root and after == new_root


def _skip_lonely(first: int, last: int) -> tuple[int, int]:
    """Pass the levels at which a last node had no sibling and moved up unchanged."""
    while first and not first & 1:
        first, last = first >> 1, last >> 1
    return first, last


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_SIZE for value in values)
