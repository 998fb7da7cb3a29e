"""Holding events against the batch that sealed them: each leaf recomputed, their count, range and root compared.

The form of events and batches is that of ``deedbox.ledger.leaf``; the root is RFC 9162's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from deedbox.ledger.leaf import SALT_SIZE, Batch, event_leaf, parse_batch
from deedbox.ledger.merkle import HASH_SIZE, RightEdge
from deedbox.ledger.records import EventRow
from deedbox.ledger.replay import BadEntry, is_canonical
from deedbox.refusals import Refusal


@dataclass(slots=True)
class SealedEvents:
    """The batch now open, and what was counted before; memory for one edge only."""

    form: bool = False
    """Whether events must also be canonical JSON."""
    batches: int = 0
    batches_without_events: int = 0
    opened: int = 0
    absent: int = 0
    unsealed: int = 0
    _seq: int = 0
    _batch: Batch | None = None
    _ids: tuple[int, int] = (0, 0)
    _last_sealed: int = 0
    _blind: bool = False
    """Whether a batch before was unreadable, so that events may belong to it."""
    _edge: RightEdge = field(default_factory=RightEdge)

    def open(self, seq: int, payload: bytes | None) -> None:
        """A batch entry was read; its events come next."""
        self.batches += 1
        self._seq, self._batch, self._edge, self._ids = seq, None, RightEdge(), (0, 0)
        if payload is None:
            self.batches_without_events += 1
            self._blind = True
            return
        try:
            batch = parse_batch(payload)
        except Refusal as refusal:
            raise BadEntry(seq, refusal.detail) from refusal
        if batch.first <= self._last_sealed:
            raise BadEntry(seq, f"its batch seals event {batch.first} again")
        self._batch = batch

    def take(self, rows: Sequence[EventRow]) -> None:
        """Events after the batch entry, or after them all."""
        for row in rows:
            self._take(row)

    def _take(self, row: EventRow) -> None:
        number, stored, salt, event = row
        leaf = self._leaf(number, stored, salt, event)
        batch = self._batch
        if batch is None or number > batch.last:
            self.unsealed += 1
            return
        if number < batch.first:
            if not self._blind:
                raise BadEntry(self._seq, f"event {number} lies between two batches and is sealed by neither")
            self.unsealed += 1
            return
        first, last = self._ids
        if number <= last:
            raise BadEntry(self._seq, f"event {number} is not in the order of ids")
        self._ids = (first or number, number)
        self._edge.append(leaf)
        if event is None:
            self.absent += 1
        else:
            self.opened += 1

    def _leaf(self, number: int, stored: bytes | None, salt: bytes | None, event: bytes | None) -> bytes:
        seq = self._seq if self._batch else None
        if event is None:
            if stored is None or len(stored) != HASH_SIZE:
                raise BadEntry(seq, f"event {number} has neither content nor leaf")
            return stored
        if salt is None or len(salt) != SALT_SIZE:
            raise BadEntry(seq, f"event {number} is shown without the 32 bytes of salt that would prove it")
        leaf = event_leaf(salt, event)
        if stored is not None and stored != leaf:
            raise BadEntry(seq, f"the stored leaf of event {number} is not the hash of its content")
        if self.form and not is_canonical(event):
            raise BadEntry(seq, f"event {number} is not canonical JSON")
        return leaf

    def close(self) -> None:
        """No more events of the open batch: its root must come out."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        self._last_sealed = batch.last
        if not self._edge.size:
            self.batches_without_events += 1
            return
        if self._edge.size != batch.size:
            raise BadEntry(self._seq, f"its batch sealed {batch.size} events, of which {self._edge.size} are there")
        if self._ids != (batch.first, batch.last) or self._edge.root() != batch.root:
            raise BadEntry(self._seq, "the events are not those its batch sealed: the root differs")
