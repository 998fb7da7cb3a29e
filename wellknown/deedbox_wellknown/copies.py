"""A peer's document as all processes of the node share it: fresh for its life, then stale, gone when the peer says so.

The document is kept as it came, so that every process reads it by the same rules, also after an upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deedbox import Unit
from deedbox_wellknown.records import Unresolved, read_document
from deedbox_wellknown.tables import PEERS

if TYPE_CHECKING:
    from deedbox import Node

RENEWED_AFTER = 800
"""Thousandths of a document's life after which it is fetched again."""
STALE = 48 * 3_600_000
"""Milliseconds an old document serves while its peer is down; nothing is kept longer."""
KEPT = 256 * 1024 * 1024
"""Characters of all documents together that are kept: whoever has a name has any number of names below it."""
FORGOTTEN_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Copy:
    """A document at hand: its entries by agent id, and its times in milliseconds; ``fresh`` within its life."""

    entries: dict[str, dict[str, Any]]
    fetched_at: int
    until: int
    renew_at: int
    fresh: bool = True

    @classmethod
    def within_life(cls, entries: dict[str, dict[str, Any]], fetched_at: int, life: int) -> Copy:
        """``life`` in seconds."""
        return cls(entries, fetched_at, fetched_at + life * 1000, fetched_at + life * RENEWED_AFTER)


def stored(reader: Any, domain: str) -> Any:
    """The row of a domain, or nothing."""
    return reader.one("select * from wellknown_peer where domain = :domain", domain=domain)


def is_alive(row: Any, now: int) -> bool:
    """Whether there is a document within its life."""
    return row is not None and row.document is not None and now < row.fetched_at + row.max_age * 1000


def copy_of(row: Any, domain: str) -> Copy:
    """The document of a row that has one."""
    return Copy.within_life(read_document(row.document, domain), row.fetched_at, row.max_age)


def store_document(unit: Unit, domain: str, text: str, etag: str | None, life: int) -> int:
    """Keep a document; the instant its life of so many seconds counts from."""
    times = {"fetched_at": unit.now, "max_age": life, "failure": None, "failed_at": 0, "temporary": False}
    unit.put(PEERS, {"domain": domain, "document": text, "etag": etag, **times})
    return unit.now


def store_failure(unit: Unit, domain: str, failure: Unresolved) -> None:
    """Keep a failure; one that will not pass takes the old document with it."""
    row = unit.fact(PEERS, domain) or {"domain": domain, "document": None, "etag": None, "fetched_at": 0, "max_age": 0}
    if not failure.temporary:
        row = {**row, "document": None, "etag": None}
    said = {"failure": failure.reason, "failed_at": unit.now, "temporary": failure.temporary}
    unit.put(PEERS, {**row, **said})


async def prune(node: Node, payload: Mapping[str, Any]) -> None:
    """Forget what serves nothing any more, and of the rest the largest documents, so many that the others fit."""
    gone = await node.database.read(_surplus, node.kernel.clock.now() - STALE)
    for start in range(0, len(gone), FORGOTTEN_AT_ONCE):
        await node.database.run(_forget, gone[start : start + FORGOTTEN_AT_ONCE])


def _surplus(reader: Any, old: int) -> list[str]:
    rows = reader.all(
        "select domain from (select domain, fetched_at, failed_at, sum(coalesce(length(document), 0))"
        " over (order by coalesce(length(document), 0), fetched_at desc, domain) as together from wellknown_peer) p"
        " where together > :kept or (fetched_at < :old and failed_at < :old)",
        kept=KEPT,
        old=old,
    )
    return [row.domain for row in rows]


def _forget(unit: Unit, domains: Sequence[str]) -> None:
    for domain in domains:
        unit.change("delete from wellknown_peer where domain = :domain", domain=domain)
