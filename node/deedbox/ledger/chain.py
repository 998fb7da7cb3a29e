"""Appending to the ledger: entries in one chain, events beside it, all inside the unit that decided them.

An entry's header is canonical JSON; its RFC 9162 leaf hash is the next entry's ``prev`` (decision 27, kernel-notes
§5.1). The head is read in the group's transaction and never kept across groups (decision 34).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deedbox.canonical import canonical
from deedbox.clock import Ids, utc_z
from deedbox.ledger import tiles
from deedbox.ledger.entry import ENTRIES, EVENTS, INVOCATIONS, PAYLOADS, TILES
from deedbox.ledger.leaf import NO_ENTRY, commit_actor, commit_payload, commit_subject, event_leaf, header_bytes
from deedbox.ledger.merkle import leaf_hash
from deedbox.ledger.receipt import Receipt
from deedbox.storage.group import Group
from deedbox.storage.unit import Unit

_ENDS = (
    "select e.seq, e.leaf, (select id from ledger_event order by id desc limit 1) as event,"
    " (select note from ledger_checkpoint order by size desc limit 1) as note"
    " from (select 1) one left join (select seq, leaf from ledger_entry order by seq desc limit 1) e on true"
)


class Head:
    """The ledger's end inside one group, and what the group adds to it."""

    def __init__(self, unit: Unit) -> None:
        (last,) = unit.all(_ENDS)
        self.seq: int = last.seq or 0
        self.leaf: bytes = bytes(last.leaf) if last.leaf else NO_ENTRY
        self.event: int = last.event or 0
        self.checkpoint: str | None = last.note
        self._began = self.seq
        self._entries: list[tuple[int, bytes, bytes]] = []
        self._payloads: list[tuple[int, bytes, bytes]] = []
        self._events: list[tuple[int, int, bytes, bytes, bytes]] = []

    def link(self, header: bytes, leaf: bytes, salt: bytes, payload: bytes) -> None:
        self.seq, self.leaf = self.seq + 1, leaf
        self._entries.append((self.seq, header, leaf))
        self._payloads.append((self.seq, salt, payload))

    def unlink(self, leaf: bytes) -> None:
        self.seq, self.leaf = self.seq - 1, leaf
        self._entries.pop()
        self._payloads.pop()

    def add_event(self, ts: int, leaf: bytes, salt: bytes, event: bytes) -> int:
        self.event += 1
        self._events.append((self.event, ts, leaf, salt, event))
        return self.event

    def drop_event(self) -> None:
        self.event -= 1
        self._events.pop()

    def flush(self, group: Group) -> None:
        connection = group.connection
        if self._entries:
            connection.insert(ENTRIES, self._entries)
            connection.insert(PAYLOADS, self._payloads)
            self._store_tiles(group)
        if self._events:
            connection.insert(EVENTS, self._events)

    def _store_tiles(self, group: Group) -> None:
        if not tiles.completes(self._began, self.seq):
            return
        connection = group.connection

        def leaves(first: int, last: int) -> list[bytes]:
            asked = "select leaf from ledger_entry where seq > :first and seq <= :last order by seq"
            return [bytes(row.leaf) for row in connection.rows(asked, {"first": first, "last": last})]

        def stored(level: int, index: int) -> bytes | None:
            found = connection.having({TILES: (tiles.place(level, index),)})[TILES]
            return bytes(found[0][1]) if found else None

        made = tiles.completed(self._began, self.seq, leaves, stored)
        connection.insert(TILES, [(tiles.place(level, index), hashes) for level, index, hashes in made])


class Ledger:
    """The node's own log; its origin is the node's domain."""

    def __init__(self, origin: str, ids: Ids) -> None:
        self.origin = origin
        self._ids = ids

    def head(self, unit: Unit) -> Head:
        return unit.part("ledger", Head)

    def entry(
        self,
        unit: Unit,
        kind: str,
        actor: str,
        payload: Mapping[str, Any],
        *,
        subject: str | None = None,
        refs: Sequence[str] = (),
        invocation: str | None = None,
    ) -> Receipt:
        """Append an entry with a place of its own in the chain; kept if the unit is kept."""
        head = self.head(unit)
        salt = self._ids.secret(32)
        body = canonical(payload)
        header = header_bytes(
            seq=head.seq + 1,
            ts=utc_z(unit.now),
            kind=kind,
            prev=head.leaf,
            actor=commit_actor(salt, actor),
            subject=commit_subject(salt, subject) if subject is not None else None,
            payload=commit_payload(salt, body),
            refs=refs,
        )
        leaf = leaf_hash(header)
        before = head.leaf
        head.link(header, leaf, salt, body)
        unit.on_undo(lambda: head.unlink(before))
        if invocation:
            unit.note(INVOCATIONS, (invocation, head.seq, None))
        return Receipt(leaf, seq=head.seq, checkpoint=head.checkpoint, invocation=invocation, written=payload)

    def event(self, unit: Unit, event: Mapping[str, Any], *, invocation: str | None = None) -> Receipt:
        """Write an event, committed at once and sealed into a later batch (decision 32)."""
        head = self.head(unit)
        salt = self._ids.secret(32)
        body = canonical(event)
        leaf = event_leaf(salt, body)
        number = head.add_event(unit.now, leaf, salt, body)
        unit.on_undo(head.drop_event)
        if invocation:
            unit.note(INVOCATIONS, (invocation, None, number))
        return Receipt(leaf, event=number, invocation=invocation, written=event)
