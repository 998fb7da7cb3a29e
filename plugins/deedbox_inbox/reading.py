"""The federation ledger and the conversations as objects: public disclosures, receipted like the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import Field

from deedbox import Arguments, Effect, Inside, Object, Operation, Unit
from deedbox.envelope.message import PROTOCOL
from deedbox_inbox import looks


class LedgerQuery(Arguments):
    """`?msg=` or a listing."""

    msg: str | None = Field(None, max_length=200)
    limit: int = Field(25, ge=1, le=100)


class ConversationQuery(Arguments):
    """`?id=` or a listing."""

    id: str | None = Field(None, max_length=200)
    limit: int = Field(25, ge=1, le=100)


class Reading:
    """The two readers, bound to a node's name and zone."""

    def __init__(self, domain: str, zone: ZoneInfo) -> None:
        self._domain = domain
        self._zone = zone

    def objects(self) -> Iterator[Object[Any]]:
        shared: dict[str, Any] = {
            "effect": Effect.DISCLOSURE,
            "public": True,
            "listed": False,
            "kind": "system",
            "category": "oip",
            "safe": True,
            "idempotent": True,
        }
        yield Object(
            key="FED_LEDGER",
            summary="What was received and sent, by message id.",
            arguments=LedgerQuery,
            runner=Inside(self.ledger),
            **shared,
        )
        yield Object(
            key="FED_CONVERSATION",
            summary="A conversation, by its id.",
            arguments=ConversationQuery,
            runner=Inside(self.conversation),
            **shared,
        )

    def ledger(self, unit: Unit, asked: LedgerQuery, operation: Operation) -> dict[str, Any]:
        if asked.msg is None:
            discreet = operation.principal.kind != "owner"
            rows = looks.newest(unit, asked.limit)
            records = [looks.record(row, self._zone, discreet=discreet) for row in rows]
            return {"ok": True, "node": self._domain, "count": len(records), "records": records}
        rows = looks.records_of(unit, asked.msg)
        found: dict[str, Any] = {
            "ok": bool(rows),
            "node": self._domain,
            "join_note": "join on the message id and body_sha256",
            "msg": asked.msg,
            "records": [looks.record(row, self._zone) for row in rows],
            "record": looks.peer_record(rows[0]) if rows else None,
        }
        return found if rows else {**found, "error": "not_found", "_status": 404}

    def conversation(self, unit: Unit, asked: ConversationQuery, operation: Operation) -> dict[str, Any]:
        if asked.id is not None:
            found = looks.conversation(unit, asked.id)
            if found is None:
                return {"ok": False, "error": "conversation_not_found", "id": asked.id, "_status": 404}
            return {"ok": True, "protocol": PROTOCOL, "conversation": found}
        owner = operation.principal.kind == "owner"
        listed = looks.conversations(unit, asked.limit, owner=owner)
        note = "participants are shown to the owner; ask for one conversation by its id"
        return {"ok": True, "protocol": PROTOCOL, "count": len(listed), "conversations": listed, "note": note}
