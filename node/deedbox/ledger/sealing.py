"""Sealing: events into batches, the tree's head into signed checkpoints; by any process, in a unit (decisions 32, 34).

A batch is sealed when 1,024 events wait or the oldest is two seconds old; a checkpoint is signed at most once a
second and only if the ledger grew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbox.clock import utc_z
from deedbox.ledger.checkpoint import sign_checkpoint
from deedbox.ledger.leaf import BATCH_KIND, EVENT_SCHEMA
from deedbox.ledger.merkle import root
from deedbox.ledger.tree import tree

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.storage.unit import Unit

BATCH_COUNT = 1_024
BATCH_AGE = 2_000
SEALER = "node"


async def keep_sealed(node: Node, *, whole: bool = False) -> None:
    """One turn of the sealer: all full batches, then an old one, then a checkpoint; ``whole`` seals what there is."""
    while await node.database.run(seal, node, whole):
        pass
    await node.database.run(sign_head, node)


def seal(unit: Unit, node: Node, whole: bool = False) -> bool:
    """Seal the oldest waiting events if there are enough or they are old enough; true if more may wait."""
    last = unit.one("select last from ledger_batch order by first desc limit 1")
    waiting = unit.all(
        "select id, ts, leaf from ledger_event where id > :last order by id limit :most",
        last=last.last if last else 0,
        most=BATCH_COUNT,
    )
    if not waiting:
        return False
    if len(waiting) < BATCH_COUNT and not whole and waiting[0].ts > unit.now - BATCH_AGE:
        return False
    payload = batch_payload(waiting, node.refusal_events.take_counts())
    receipt = node.ledger.entry(unit, BATCH_KIND, SEALER, payload)
    sealed = {"first": waiting[0].id, "last": waiting[-1].id, "seq": receipt.seq}
    unit.change("insert into ledger_batch (first, last, seq) values (:first, :last, :seq)", **sealed)  # seen at once
    return len(waiting) == BATCH_COUNT


def batch_payload(events: list[Any], dropped: dict[str, int]) -> dict[str, Any]:
    """What a batch entry commits to (``leaf.py`` gives the form)."""
    return {
        "first": events[0].id,
        "last": events[-1].id,
        "count": len(events),
        "root": root(bytes(event.leaf) for event in events).hex(),
        "from": utc_z(events[0].ts),
        "to": utc_z(events[-1].ts),
        "schema": EVENT_SCHEMA,
        "dropped": dropped,
    }


def sign_head(unit: Unit, node: Node) -> str | None:
    """Sign the tree's head if it grew since the last signature; the note, or nothing."""
    last = unit.one("select seq from ledger_entry order by seq desc limit 1")
    signed = unit.one("select size from ledger_checkpoint order by size desc limit 1")
    if last is None or (signed is not None and signed.size >= last.seq):
        return None
    pair = node.kernel.agents.ledger
    note = sign_checkpoint(node.domain, last.seq, tree(unit, last.seq).root(), pair.public.point, pair.sign)
    unit.change("insert into ledger_checkpoint (size, note) values (:size, :note)", size=last.seq, note=note)
    node.kernel.metrics.entries = last.seq
    return note
