"""The tree's store: one row for every 256 entries, written once, from which any node and any proof is read.

C2SP tlog-tiles (256 hashes to a tile, eight levels to a row of tiles) and RFC 9162 §2.1.

A **tile row** ``(0, n)`` is written by the append that brings entry ``256·(n+1)`` and is never changed. It holds the
256 leaf hashes of the tile, 8,192 bytes, then its **stem**: the hashes of the nodes at levels 8, 9, 10 … that the tile
completes (one for an even ``n``, more for an odd one, two in the mean). So node ``(8+j, i)`` is hash *j* of the stem of
tile ``(i+1)·2^j - 1``, one lookup, and tiles of the upper levels are put together from stems when they are asked for.
The leaves of the last, partial tile are nowhere but in the entries themselves. Appending costs nothing until a tile is
full, then one row; the right edge follows from the store and is not kept beside it.

``Leaves(first, last)`` returns the leaf hashes at indexes ``first`` up to ``last`` (excluded; the entries with
``first < seq <= last``). ``Stored(0, n)`` returns tile row *n* or ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deedbox.ledger.merkle import (
    HASH_SIZE,
    CompletedNode,
    RightEdge,
    consistency_proof,
    inclusion_proof,
    paired,
    root,
)
from deedbox.refusals import Fault, Refusal

TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
TILE_SIZE = TILE_WIDTH * HASH_SIZE
_LEVEL_SPAN = 40

Leaves = Callable[[int, int], Sequence[bytes]]
Stored = Callable[[int, int], bytes | None]


def place(level: int, index: int) -> int:
    """A tile's address as one integer that sorts by level, then by index."""
    return (level << _LEVEL_SPAN) | index


def completes(before: int, after: int) -> bool:
    """Whether growing from ``before`` to ``after`` entries fills a tile."""
    return after // TILE_WIDTH > before // TILE_WIDTH


def completed(before: int, after: int, leaves: Leaves, stored: Stored) -> list[CompletedNode]:
    """The tile rows ``(level, index, bytes)`` to insert when a ledger grows from ``before`` to ``after`` entries."""
    first, last = before // TILE_WIDTH, after // TILE_WIDTH
    if first == last:
        return []
    hashes = list(leaves(first * TILE_WIDTH, last * TILE_WIDTH))
    if len(hashes) != (last - first) * TILE_WIDTH:
        raise _damaged("leaf hashes are missing from the entries")
    tops = RightEdge.at(first, lambda level, index: _from_stem(level, index, stored))
    rows: list[CompletedNode] = []
    for index in range(first, last):
        start = (index - first) * TILE_WIDTH
        tile = hashes[start : start + TILE_WIDTH]
        stem = tops.append(root(tile))
        rows.append((0, index, b"".join(tile) + b"".join(node for _, _, node in stem)))
    return rows


class Tree:
    """The first ``size`` entries as a tree, read from tile rows and, at its end, from the entries.

    Rows read are kept for the life of the object: make one for an answer, not one for the process.
    """

    def __init__(self, size: int, leaves: Leaves, stored: Stored) -> None:
        self.size = size
        self._leaves = leaves
        self._stored = stored
        self._rows: dict[int, list[list[bytes]]] = {}

    def node(self, level: int, index: int) -> bytes:
        """The 32 bytes of a complete node; a ``Refusal`` if the tree does not reach so far or the store is damaged."""
        if not 0 <= level < 64 or not 0 <= index < self.size >> level:
            raise Refusal("outside_tree", 404, f"a tree of {self.size} entries has no node {level}/{index}")
        if level >= TILE_HEIGHT:
            return _from_stem(level - TILE_HEIGHT, index, self._stored)
        first = index << level
        rows = self._tile_rows(first // TILE_WIDTH)
        while len(rows) <= level:
            rows.append(paired(rows[-1]))
        return rows[level][first % TILE_WIDTH >> level]

    def root(self) -> bytes:
        """The root a checkpoint of this size signs."""
        return self.edge().root()

    def edge(self) -> RightEdge:
        """What growing on from here needs."""
        return RightEdge.at(self.size, self.node)

    def inclusion_proof(self, index: int) -> list[bytes]:
        """The path of the entry at ``index`` (its ``seq`` less one)."""
        return inclusion_proof(index, self.size, self.node)

    def consistency_proof(self, old: int) -> list[bytes]:
        """The proof that the first ``old`` entries are unchanged."""
        return consistency_proof(old, self.size, self.node)

    def tile(self, level: int, index: int) -> bytes:
        """A C2SP tile at C2SP level 0, 1, 2 …: 256 hashes, or as many as there are (a partial tile)."""
        width = min(TILE_WIDTH, (self.size >> TILE_HEIGHT * level) - index * TILE_WIDTH)
        first = index * TILE_WIDTH
        return b"".join(self.node(TILE_HEIGHT * level, first + i) for i in range(max(width, 0)))

    def _tile_rows(self, index: int) -> list[list[bytes]]:
        if index not in self._rows:
            start, end = index * TILE_WIDTH, min((index + 1) * TILE_WIDTH, self.size)
            if end - start == TILE_WIDTH:
                row = _row(index, self._stored)
                hashes = [row[at : at + HASH_SIZE] for at in range(0, TILE_SIZE, HASH_SIZE)]
            else:
                hashes = list(self._leaves(start, end))
            if len(hashes) != end - start:
                raise _damaged("leaf hashes are missing from the entries")
            self._rows[index] = [hashes]
        return self._rows[index]


def tile_path(level: int, index: int, width: int = TILE_WIDTH) -> str:
    """Where C2SP serves a tile, below the log's prefix: ``tile/0/x001/234``, with ``.p/W`` for a partial one."""
    parts = [f"{index % 1000:03d}"]
    while index := index // 1000:
        parts.insert(0, f"x{index % 1000:03d}")
    partial = f".p/{width}" if width < TILE_WIDTH else ""
    return f"tile/{level}/{'/'.join(parts)}{partial}"


def _from_stem(height: int, index: int, stored: Stored) -> bytes:
    """The node ``height`` levels above the tiles, from the tile that completed it."""
    at = TILE_SIZE + height * HASH_SIZE
    return _row((index + 1 << height) - 1, stored)[at : at + HASH_SIZE]


def _row(index: int, stored: Stored) -> bytes:
    row = stored(0, index)
    stem = (index ^ index + 1).bit_length()
    if row is None or len(row) != TILE_SIZE + stem * HASH_SIZE:
        raise _damaged(f"tile {index} is missing or has the wrong length")
    return row


def _damaged(detail: str) -> Refusal:
    return Refusal("ledger_damaged", 500, detail, next_step="deedbox ledger verify", fault=Fault.OURS)
