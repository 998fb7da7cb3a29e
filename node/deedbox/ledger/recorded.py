"""Where the receipt of a run is read again: an invocation's entry or event, with the salt of its commitment.

The words are gone once they were redacted; that something was recorded stays (kernel-notes §5.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from deedbox.clock import parse_instant
from deedbox.ledger.tree import Asking

_FIND = (
    "select i.seq, i.event, n.header, n.leaf as entry_leaf, p.salt as entry_salt, p.payload,"
    " e.ts, e.leaf as event_leaf, e.salt as event_salt, e.event as body"
    " from ledger_invocation i left join ledger_entry n on n.seq = i.seq"
    " left join ledger_payload p on p.seq = i.seq left join ledger_event e on e.id = i.event where i.id = :id"
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run as the ledger holds it; ``said`` and ``salt`` are empty after a redaction; ``at`` in milliseconds."""

    invocation: str
    at: int
    seq: int | None
    event: int | None
    leaf: bytes
    salt: bytes
    said: Mapping[str, Any]


def recorded(source: Asking, invocation: str) -> Recorded | None:
    """The record of an invocation, or nothing if there never was one."""
    row = source.one(_FIND, id=invocation) if "\0" not in invocation else None  # PostgreSQL has no such text
    if row is None:
        return None
    if row.seq is None:
        said = orjson.loads(bytes(row.body))
        return Recorded(invocation, row.ts, None, row.event, bytes(row.event_leaf), bytes(row.event_salt), said)
    at = parse_instant(orjson.loads(bytes(row.header))["ts"]) or 0
    said = orjson.loads(bytes(row.payload)) if row.payload else {}
    return Recorded(invocation, at, row.seq, None, bytes(row.entry_leaf), bytes(row.entry_salt or b""), said)
