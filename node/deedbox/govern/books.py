"""The ledger as something to ask: a receipt with its proof, and the redaction of what a receipt said.

Reading a receipt gives the proof as soon as there is one (decision 32). Redaction deletes an entry's payload with its
salt and appends who did it and why; the entry, the chain and the tree stand (kernel-notes §5.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from deedbox.catalog import Arguments, Inside, Object
from deedbox.intent import Effect, Operation
from deedbox.ledger.chain import Ledger
from deedbox.ledger.proving import Proven, prove_entry, prove_event
from deedbox.refusals import Refusal
from deedbox.storage.unit import Unit

RECEIPT, REDACT = "RECEIPT", "LEDGER_REDACT"
NOT_REDACTED = ("batch", "redact")
"""Kinds of entry whose payload others depend on: the root over events, and the reason of a redaction."""


class Named(Arguments):
    """A receipt's id: `entry:12`, `event:3456`, or a run's `inv_…`."""

    id: str = Field(min_length=1, max_length=80, pattern=r"^(entry:[1-9][0-9]{0,15}|event:[1-9][0-9]{0,15}|inv_.+)$")


class Redaction(Arguments):
    """Which entry, by which rule, and why."""

    seq: int = Field(ge=1)
    rule: str = Field(min_length=1, max_length=120)
    why: str = Field(min_length=1, max_length=500)


class Books:
    """The two objects, bound to a node's ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def objects(self) -> Iterator[Object[Any]]:
        shared: dict[str, Any] = {"listed": False, "kind": "system", "category": "ledger", "facet": "kernel"}
        yield Object(
            key=RECEIPT,
            summary="A receipt, and the proof that it stands in the ledger.",
            effect=Effect.DISCLOSURE,
            arguments=Named,
            runner=Inside(self.receipt),
            public=True,
            safe=True,
            idempotent=True,
            **shared,
        )
        yield Object(
            key=REDACT,
            summary="Delete what an entry said; that it was said stays.",
            effect=Effect.EXECUTION,
            arguments=Redaction,
            runner=Inside(self.redact),
            **shared,
        )

    def receipt(self, unit: Unit, asked: Named, operation: Operation) -> dict[str, Any]:
        seq, event = _place(unit, asked.id)
        shown: dict[str, Any] = {"id": asked.id, "proof": None, "note": None}
        try:
            proven = prove_entry(unit, seq) if seq else prove_event(unit, event or 0)
        except Refusal as refusal:
            if refusal.code not in ("not_yet_sealed", "not_yet_signed"):
                raise
            return {**shown, "seq": seq, "event": event, "note": refusal.code}
        return {**shown, "seq": seq, "event": event, **_shown(proven)}

    def redact(self, unit: Unit, asked: Redaction, operation: Operation) -> dict[str, Any]:
        ledger = self._ledger
        row = unit.one("select header from ledger_entry where seq = :seq", seq=asked.seq)
        if row is None:
            raise Refusal("unknown_entry", 404, f"there is no entry {asked.seq}")
        if any(f'"kind":"{kind}"'.encode() in bytes(row.header) for kind in NOT_REDACTED):
            raise Refusal("not_redactable", 409, "what this entry says holds up other entries or events")
        if not unit.change("delete from ledger_payload where seq = :seq", seq=asked.seq):
            raise Refusal("already_redacted", 409, f"entry {asked.seq} says nothing any more")
        said = {"seq": asked.seq, "rule": asked.rule, "why": asked.why, "actor": operation.principal.id}
        refs = (f"entry:{asked.seq}",)
        receipt = ledger.entry(unit, "redact", operation.principal.id, said, subject=refs[0], refs=refs)
        return {"redacted": refs[0], "receipt": receipt.public()}


def _place(unit: Unit, name: str) -> tuple[int | None, int | None]:
    """The entry or the event a receipt's id means."""
    kind, _, number = name.partition(":")
    if number:
        return (int(number), None) if kind == "entry" else (None, int(number))
    row = unit.one("select seq, event from ledger_invocation where id = :id", id=name)
    if row is None:
        raise Refusal("unknown_receipt", 404, "there is no such receipt")
    return row.seq, row.event


def _shown(proven: Proven) -> dict[str, Any]:
    header = proven.header.decode() or None
    return {"leaf": proven.leaf.hex(), "header": header, "proof": str(proven.proof)}
