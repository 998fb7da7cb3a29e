"""The tree read from tile rows against the tree computed from all leaves, and what each append may cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbox.ledger import tiles
from deedbox.ledger.merkle import leaf_hash, paired, root, verify_consistency, verify_inclusion
from deedbox.refusals import Refusal

LEAVES = [leaf_hash(number.to_bytes(4, "big")) for number in range(70_000)]


class Shelf:
    """The two tables a ledger keeps: leaf hashes of entries, and tile rows, which no one may write twice."""

    def __init__(self) -> None:
        self.leaves: list[bytes] = []
        self.rows: dict[int, bytes] = {}
        self.leaves_read = 0
        self.rows_read = 0

    def grow(self, count: int) -> None:
        before = len(self.leaves)
        self.leaves += LEAVES[before : before + count]
        for level, index, hashes in tiles.completed(before, len(self.leaves), self.between, self.stored):
            assert tiles.place(level, index) not in self.rows
            self.rows[tiles.place(level, index)] = hashes

    def between(self, first: int, last: int) -> Sequence[bytes]:
        self.leaves_read += last - first
        return self.leaves[first:last]

    def stored(self, level: int, index: int) -> bytes | None:
        self.rows_read += 1
        return self.rows.get(tiles.place(level, index))

    def tree(self, size: int | None = None) -> tiles.Tree:
        return tiles.Tree(len(self.leaves) if size is None else size, self.between, self.stored)


@pytest.fixture(scope="module")
def large() -> Shelf:
    shelf = Shelf()
    while len(shelf.leaves) < len(LEAVES):
        shelf.grow(1000)
    return shelf


@given(st.lists(st.integers(0, 700), max_size=8))
@settings(max_examples=40, deadline=None)
def test_any_groups_give_the_same_rows_and_the_right_root(groups: list[int]) -> None:
    shelf, at_once = Shelf(), Shelf()
    for count in groups:
        shelf.grow(count)
        assert shelf.tree().root() == root(shelf.leaves)
    at_once.grow(sum(groups))
    assert shelf.rows == at_once.rows
    assert len(shelf.rows) == len(shelf.leaves) // 256


def test_every_node_of_the_tree_is_read_right(large: Shelf) -> None:
    tree, row, level = large.tree(), large.leaves, 0
    while row:
        step = max(1, len(row) // 50)
        assert all(tree.node(level, index) == row[index] for index in [*range(0, len(row), step), len(row) - 1])
        row, level = paired(row), level + 1


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 69_999, 70_000])
def test_older_and_newer_roots(large: Shelf, size: int) -> None:
    assert large.tree(size).root() == root(LEAVES[:size])
    assert large.tree(size).edge().to_bytes()[:8] == size.to_bytes(8, "big")


@pytest.mark.parametrize("index", [0, 255, 256, 12_345, 65_535, 65_536, 69_887, 69_888, 69_999])
def test_proofs_from_tiles_verify(large: Shelf, index: int) -> None:
    tree = large.tree()
    assert verify_inclusion(index, 70_000, LEAVES[index], tree.inclusion_proof(index), tree.root())
    old = index + 1
    assert verify_consistency(old, 70_000, root(LEAVES[:old]), tree.root(), tree.consistency_proof(old))


def test_the_tiles_of_the_c2sp_page(large: Shelf) -> None:
    """Its example: 70,000 entries are 273 full tiles and one of 112, above them one and one of 17, then one of 1."""
    tree = large.tree()
    widths = [[len(tree.tile(level, index)) // 32 for index in range(276)] for level in range(4)]
    assert [(row.count(256), [width for width in row if 0 < width < 256]) for row in widths] == [
        (273, [112]),
        (1, [17]),
        (0, [1]),
        (0, []),
    ]
    assert tree.tile(0, 7) == b"".join(LEAVES[7 * 256 : 8 * 256])
    assert tree.tile(1, 1)[:32] == root(LEAVES[65_536 : 65_536 + 256])
    assert tree.tile(2, 0) == root(LEAVES[:65_536])


def test_appending_writes_one_row_a_tile_and_reads_little() -> None:
    shelf = Shelf()
    while len(shelf.leaves) < 64_000:
        shelf.grow(20)
    assert len(shelf.rows) == 250
    assert shelf.leaves_read == 250 * 256
    assert shelf.rows_read <= 250 * 5
    assert sum(map(len, shelf.rows.values())) <= 250 * (8192 + 64)


def test_a_proof_reads_a_few_rows(large: Shelf) -> None:
    large.rows_read = 0
    large.tree().inclusion_proof(12_345)
    assert large.rows_read <= 20


def test_only_a_full_tile_is_written() -> None:
    assert not tiles.completes(0, 255)
    assert tiles.completes(255, 256)
    assert not tiles.completes(256, 511)
    assert tiles.completes(0, 1000)


@pytest.mark.parametrize("length", [None, 0, 8192, 8192 + 32, 8192 + 96])
def test_a_damaged_store_is_refused_not_read(length: int | None) -> None:
    shelf = Shelf()
    shelf.grow(700)
    spoilt = None if length is None else (shelf.rows[tiles.place(0, 1)] + bytes(32))[:length]
    tree = tiles.Tree(700, shelf.between, lambda level, index: spoilt)
    for level, index in ((0, 300), (9, 0)):
        with pytest.raises(Refusal, match="ledger_damaged"):
            tree.node(level, index)
    with pytest.raises(Refusal, match="ledger_damaged"):
        tiles.completed(512, 768, lambda first, last: LEAVES[first:last], lambda level, index: spoilt)
    with pytest.raises(Refusal, match="ledger_damaged"):
        tiles.completed(512, 768, shelf.between, shelf.stored)
    with pytest.raises(Refusal, match="ledger_damaged"):
        tiles.Tree(900, shelf.between, shelf.stored).root()


def test_no_node_outside_the_tree(large: Shelf) -> None:
    for level, index in ((0, 70_000), (17, 0), (64, 0), (0, -1), (-1, 0), (8, 273)):
        with pytest.raises(Refusal, match="outside_tree"):
            large.tree().node(level, index)


@pytest.mark.parametrize(
    ("level", "index", "width", "path"),
    [
        (0, 0, 256, "tile/0/000"),
        (0, 1_234_067, 256, "tile/0/x001/x234/067"),
        (1, 999, 17, "tile/1/999.p/17"),
        (0, 1000, 256, "tile/0/x001/000"),
    ],
)
def test_paths_of_tiles(level: int, index: int, width: int, path: str) -> None:
    assert tiles.tile_path(level, index, width) == path
