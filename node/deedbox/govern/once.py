"""Step 3, once: an id seen before is a repeat, with the stored reply; each surface phrases it by its own law."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from deedbox.govern.claims import CLAIMS, DONE, KEPT_AFTER_EXPIRY, claimed, was_handed
from deedbox.intent import Intent, Once, Operation, Outcome, Reply
from deedbox.refusals import Refusal
from deedbox.storage.unit import FactRow, Unit

if TYPE_CHECKING:
    from deedbox.node import Node

REPEATED = Refusal("replay_rejected", 409, "this id was spent before")


def once(unit: Unit, node: Node, intent: Intent) -> FactRow | None:
    """The earlier claim of this asking's id; a renewal keeps it longer."""
    if intent.once is None:
        return None
    row = claimed(unit, intent.once)
    if row is not None and row["digest"] == intent.once.digest:
        until = intent.once.expires_at + KEPT_AFTER_EXPIRY
        if until > row["kept_until"]:
            row = {**row, "kept_until": until}
            unit.put(CLAIMS, row)
    return row


def repeat(unit: Unit, node: Node, intent: Intent, once: Once, row: FactRow, operation: Operation) -> Reply:
    """What the road says of a repeat: the stored reply, and whether it was never handed out."""
    same = row["digest"] == once.digest
    undelivered = same and row["state"] == DONE and _never_left(unit, node, row)
    if undelivered:
        unit.put(CLAIMS, {**row, "owner": node.processes.own, "grp": unit.group, "undelivered": False})
        node.handout.expect(unit.group)
    return Reply(
        Outcome.refused(REPEATED),
        answer=bytes(row["reply"] or b"") if undelivered else b"",
        operation=operation,
        repeat=True,
        undelivered=undelivered,
        claim=once.key,
        group=unit.group if undelivered else 0,
        original=original_of(row) if same else {},
        stored=bytes(row["reply"] or b"") if same else None,
    )


def original_of(row: FactRow) -> dict[str, object]:
    """Which answer the id was spent on: `{response_id, invocation_id}` (decision 31)."""
    kept = orjson.loads(row["meta"] or "{}")
    response = kept.get("response") or {}
    return {"response_id": response.get("id"), "invocation_id": kept.get("invocation")}


def _never_left(unit: Unit, node: Node, row: FactRow) -> bool:
    """Marked undelivered by its process, or unmarked and that process is gone (decision 31)."""
    if row["undelivered"]:
        return True
    return not was_handed(unit, row) and not node.processes.alive(unit, row["owner"])
