"""Making proofs: the path from an entry, or from an event by way of its batch, to the newest signed head.

RFC 9162 §2.1.3 and C2SP tlog-proof; what is made here is checked by ``proof.py``, offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deedbox.ledger.checkpoint import SignedCheckpoint
from deedbox.ledger.merkle import Node, inclusion_proof, node_hash
from deedbox.ledger.proof import SealedEvent, TlogProof
from deedbox.ledger.tree import Asking, tree
from deedbox.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Proven:
    """A proof and the leaf hash it is about; ``header`` is the entry's, empty for an event."""

    proof: TlogProof
    leaf: bytes
    header: bytes = b""


def prove_entry(source: Asking, seq: int) -> Proven:
    """The proof of an entry; refuses ``unknown_entry``, or ``not_yet_signed`` where no signed head covers it."""
    row = source.one("select header, leaf from ledger_entry where seq = :seq", seq=seq)
    if row is None:
        raise Refusal("unknown_entry", 404, f"there is no entry {seq}")
    return Proven(_under_the_newest_head(source, seq), bytes(row.leaf), bytes(row.header))


def prove_event(source: Asking, number: int) -> Proven:
    """The proof of an event; refuses ``unknown_event``, or ``not_yet_sealed`` where no batch has it."""
    event = source.one("select leaf from ledger_event where id = :number", number=number)
    if event is None:
        raise Refusal("unknown_event", 404, f"there is no event {number}")
    batch = source.one(
        "select b.first, b.last, b.seq, e.header, p.salt, p.payload from ledger_batch b"
        " join ledger_entry e on e.seq = b.seq join ledger_payload p on p.seq = b.seq"
        " where b.first <= :number and b.last >= :number",
        number=number,
    )
    if batch is None:
        raise Refusal("not_yet_sealed", 404, "no batch has sealed this event yet", retry_after=3)
    rows = source.all(
        "select id, leaf from ledger_event where id between :first and :last order by id",
        first=batch.first,
        last=batch.last,
    )
    index = [row.id for row in rows].index(number)
    path = inclusion_proof(index, len(rows), _nodes([bytes(row.leaf) for row in rows]))
    sealed = SealedEvent(index, tuple(path), bytes(batch.header), bytes(batch.salt), bytes(batch.payload))
    return Proven(_under_the_newest_head(source, batch.seq, sealed.to_bytes()), bytes(event.leaf))


def _under_the_newest_head(source: Asking, seq: int, extra: bytes | None = None) -> TlogProof:
    head = source.one("select size, note from ledger_checkpoint order by size desc limit 1")
    if head is None or head.size < seq:
        raise Refusal("not_yet_signed", 404, f"no signed head covers entry {seq} yet", retry_after=2)
    path = tree(source, head.size).inclusion_proof(seq - 1)
    return TlogProof(seq - 1, tuple(path), SignedCheckpoint.parse(head.note), extra)


def _nodes(leaves: Sequence[bytes]) -> Node:
    """The complete nodes of a small tree, each made when it is asked for."""

    def node(level: int, index: int) -> bytes:
        return leaves[index] if not level else node_hash(node(level - 1, 2 * index), node(level - 1, 2 * index + 1))

    return node
