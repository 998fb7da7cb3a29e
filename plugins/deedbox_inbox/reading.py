"""The federation ledger and the conversations as objects: public disclosures, receipted like the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from deedbox import Arguments, Effect, Inside, Intent, Object, Operation, Unit
from deedbox.envelope.message import PROTOCOL
from deedbox_inbox import looks

MOST_LISTED = 100


class Listing(Arguments):
    """How many of a list; more than there may be is as many as there may be."""

    limit: int = Field(25, ge=1, le=MOST_LISTED)

    @field_validator("limit", mode="before")
    @classmethod
    def _within(cls, given: Any) -> Any:
        """Whole numbers are brought within bounds; anything else is left to be refused."""
        if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10:
            given = int(given)
        return min(max(given, 1), MOST_LISTED) if isinstance(given, int) else given


class LedgerQuery(Listing):
    """`?msg=` or a listing."""

    msg: str | None = Field(None, max_length=200)


class ConversationQuery(Listing):
    """`?id=` or a listing."""

    id: str | None = Field(None, max_length=200)


@dataclass(slots=True)
class Look(Intent):
    """An asking for one of these documents whose rows were read beforehand, on a read connection."""

    seen: Any = None


def look(reader: Any, asked: LedgerQuery | ConversationQuery) -> Any:
    """The rows a document is made of."""
    if isinstance(asked, LedgerQuery):
        return looks.newest(reader, asked.limit) if asked.msg is None else looks.records_of(reader, asked.msg)
    return looks.conversations(reader, asked.limit) if asked.id is None else looks.conversation(reader, asked.id)


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
        rows = _seen(unit, asked, operation)
        if asked.msg is None:
            discreet = operation.principal.kind != "owner"
            records = [looks.record(row, self._zone, discreet=discreet) for row in rows]
            return {"ok": True, "node": self._domain, "count": len(records), "records": records}
        found: dict[str, Any] = {
            "ok": bool(rows),
            "node": self._domain,
            "join_note": "join on the message id and body_sha256",
            "msg": asked.msg,
            "records": [looks.record(row, self._zone) for row in rows],
            "record": looks.peer_record(rows[0]) if rows else None,
        }
        return found if rows else {**found, "error": "not_found"}

    def conversation(self, unit: Unit, asked: ConversationQuery, operation: Operation) -> dict[str, Any]:
        seen = _seen(unit, asked, operation)
        if asked.id is not None:
            if seen is None:
                return {"ok": False, "error": "conversation_not_found", "id": asked.id}
            return {"ok": True, "protocol": PROTOCOL, "conversation": seen}
        owner = operation.principal.kind == "owner"
        listed = [looks.listed(row, owner=owner) for row in seen]
        note = "participants are shown to the owner; ask for one conversation by its id"
        return {"ok": True, "protocol": PROTOCOL, "count": len(listed), "conversations": listed, "note": note}


def _seen(unit: Unit, asked: LedgerQuery | ConversationQuery, operation: Operation) -> Any:
    intent = operation.intent
    return intent.seen if isinstance(intent, Look) else look(unit, asked)
