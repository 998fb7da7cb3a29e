"""The sealed index of the past, and forgetting what had its time: two jobs (kernel-notes §4.5, decision 37).

Ids that peers choose are indexed only in tables that are pruned. For everything older there is a row a span: sorted
pairs of a message id's hash prefix and its exchange's number, found by binary search.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deedbox import Job, Unit

if TYPE_CHECKING:
    from deedbox import Node

SPAN = 65_536
"""Exchanges in a span at most."""
HOUR = 3_600_000
WAITS = 23 * HOUR
"""How long an exchange waits for its span to fill: it is indexed while its claim, kept for a day, still tells of it."""
KEPT_VERIFIED, KEPT_UNVERIFIED = 30 * 24 * HOUR, 24 * HOUR
PRUNED_AT_ONCE = 300
EVERY = 600_000
_PREFIX, _PAIR = 8, 16
_WAITING = "select id, msg_id, coalesce(responded_at, at) as at from inbox_exchange where id > :before order by id"


def jobs() -> Iterator[Job]:
    yield Job("inbox_index", write_spans, every=EVERY)
    yield Job("inbox_prune", prune, every=EVERY)


# --- writing -----------------------------------------------------------------------------------------------------


async def write_spans(node: Node, payload: Mapping[str, Any]) -> None:
    """Index every span that is full, or whose first exchange has waited long enough."""
    now = node.kernel.clock.now()
    while span := await node.database.read(_gathered, now):
        if not await node.database.run(_kept, span):
            return


def _gathered(reader: Any, now: int) -> dict[str, Any] | None:
    """The next span, if there is one to write."""
    before = _covered(reader)
    oldest = reader.one(f"{_WAITING} limit 1", before=before)
    newest = reader.one("select id from inbox_exchange order by id desc limit 1")
    if oldest is None or (newest.id - before < SPAN and oldest.at > now - WAITS):
        return None
    rows = reader.all(f"{_WAITING} limit :most", before=before, most=SPAN)
    return {
        "first": before + 1,
        "last": rows[-1].id,
        "begins": min(row.at for row in rows),
        "ends": max(row.at for row in rows),
        "pairs": b"".join(sorted(_prefix(row.msg_id) + row.id.to_bytes(8, "big") for row in rows)),
    }


def _covered(reader: Any) -> int:
    """The number of the last exchange that stands in a span."""
    last = reader.one("select last from inbox_span order by first desc limit 1")
    return last.last if last else 0


def _kept(unit: Unit, span: dict[str, Any]) -> bool:
    """Write it, unless another worker has."""
    if _covered(unit) + 1 != span["first"]:
        return False
    unit.change(
        "insert into inbox_span (first, last, begins, ends, pairs) values (:first, :last, :begins, :ends, :pairs)",
        **span,
    )
    return True


def _prefix(msg_id: str) -> bytes:
    return hashlib.sha256(msg_id.encode()).digest()[:_PREFIX]


# --- finding -----------------------------------------------------------------------------------------------------


def found_in_spans(reader: Any, msg_id: str, most: int) -> list[int]:
    """Numbers of exchanges whose message id has this one's prefix, spans from newest back."""
    numbers: list[int] = []
    for span in reader.all("select first from inbox_span order by first desc"):
        row = reader.one("select pairs from inbox_span where first = :first", first=span.first)
        numbers += reversed(list(_matching(bytes(row.pairs), _prefix(msg_id))))
    return numbers[:most]


def _matching(pairs: bytes, wanted: bytes) -> Iterator[int]:
    def prefix(place: int) -> bytes:
        return pairs[place * _PAIR : place * _PAIR + _PREFIX]

    count = len(pairs) // _PAIR
    place = bisect_left(range(count), wanted, key=prefix)
    while place < count and prefix(place) == wanted:
        yield int.from_bytes(pairs[place * _PAIR + _PREFIX : (place + 1) * _PAIR], "big")
        place += 1


# --- forgetting --------------------------------------------------------------------------------------------------


async def prune(node: Node, payload: Mapping[str, Any]) -> None:
    """Forget threads, sealed blocks and the places of indexed exchanges, a few hundred rows a group."""
    while await node.database.run(pruned):
        pass


def pruned(unit: Unit) -> int:
    """One group's share; how many rows went."""
    old_threads = (
        "delete from inbox_thread where key in (select key from inbox_thread"
        " where verified = :verified and updated_at < :old order by updated_at limit :most)"
    )
    gone = 0
    for verified, kept in ((True, KEPT_VERIFIED), (False, KEPT_UNVERIFIED)):
        gone += unit.change(old_threads, verified=verified, old=unit.now - kept, most=PRUNED_AT_ONCE)
    gone += unit.change(
        "delete from inbox_block where sha256 in"
        " (select sha256 from inbox_block where kept_until < :now order by kept_until limit :most)",
        now=unit.now,
        most=PRUNED_AT_ONCE,
    )
    return gone + unit.change(
        "delete from inbox_recent where exchange in"
        " (select exchange from inbox_recent where exchange <= :covered order by exchange limit :most)",
        covered=_covered(unit),
        most=PRUNED_AT_ONCE,
    )
