"""A peer's document as all processes of the node share it: fresh for its life, then stale, gone when the peer says so.

The document is kept as it came, so that every process reads it by the same rules, also after an upgrade.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deedbox import Unit
from deedbox_wellknown.records import Unresolved, read_document
from deedbox_wellknown.tables import PEERS

RENEWED_AFTER = 800
"""Thousandths of a document's life after which it is fetched again."""


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
