"""The Merkle tree as it stands in the database, read from tiles and from the entries of the last, partial one."""

from __future__ import annotations

from typing import Any, Protocol

from deedbox.ledger import tiles
from deedbox.ledger.tiles import Tree


class Asking(Protocol):
    """A unit or a read connection."""

    def one(self, sql: str, **values: Any) -> Any: ...

    def all(self, sql: str, **values: Any) -> list[Any]: ...


def tree(source: Asking, size: int) -> Tree:
    """The first ``size`` entries as a tree."""

    def leaves(first: int, last: int) -> list[bytes]:
        asked = "select leaf from ledger_entry where seq > :first and seq <= :last order by seq"
        return [bytes(row.leaf) for row in source.all(asked, first=first, last=last)]

    def stored(level: int, index: int) -> bytes | None:
        found = source.one("select hashes from ledger_tile where place = :place", place=tiles.place(level, index))
        return bytes(found.hashes) if found else None

    return Tree(size, leaves, stored)
