"""How it stands with a message: delivered or not yet, every attempt, and what was answered (OIP 1.2 §12.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from deedbox.envelope.outbox.tables import DELIVERED, QUEUED
from deedbox.refusals import Refusal
from deedbox.storage.connection import Row


class Looking(Protocol):
    """A unit or a read connection."""

    def one(self, sql: str, **values: Any) -> Row | None: ...

    def all(self, sql: str, **values: Any) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt; ``ended`` is empty while it runs, ``status`` the peer's HTTP status if it answered."""

    number: int
    at: int
    ended: int | None
    detail: str
    status: int | None
    sent: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """The standing of one message; instants in milliseconds.

    ``response`` is the peer's envelope with its signature, or the first 1,500 characters of whatever else it said;
    ``response_verified`` whether it was proven to be the addressed agent's reply to this very message. ``sent`` and
    ``response_body`` are known to whoever sent it by himself: the redacted envelope, and the reply's body in the clear.
    """

    message_id: str
    kind: str
    sender: str
    recipient: str
    conversation: str
    body_sha256: str
    state: str
    detail: str
    status: int | None
    queued_at: int
    not_after: int
    next_at: int | None
    ended_at: int | None
    attempts: tuple[Tried, ...]
    response_id: str | None
    response_kind: str | None
    response: dict[str, Any] | str | None = field(repr=False)
    response_verified: bool
    sent: dict[str, Any] | None = field(default=None, repr=False)
    response_body: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether it arrived."""
        return self.state == DELIVERED


def message_status(reader: Looking, message_id: str) -> Delivery:
    """How it stands with a message of ours; refuses ``unknown_message``."""
    row = reader.one(
        "select * from envelope_message where msg_id = :msg_id order by id desc limit 1", msg_id=message_id
    )
    if row is None:
        raise Refusal("unknown_message", 404, "no message of ours has this id")
    tries = reader.all("select * from envelope_attempt where message = :id order by number", id=row.id)
    return Delivery(
        message_id=row.msg_id,
        kind=row.kind,
        sender=row.sender,
        recipient=row.recipient,
        conversation=row.conversation,
        body_sha256=row.body_sha256,
        state=row.state,
        detail=row.detail or "",
        status=row.status,
        queued_at=row.queued_at,
        not_after=row.not_after,
        next_at=row.next_at if row.state == QUEUED else None,
        ended_at=row.ended_at,
        attempts=tuple(
            Tried(each.number, each.at, each.ended, each.detail or "", each.status, bool(each.sent)) for each in tries
        ),
        response_id=row.response_id,
        response_kind=row.response_kind,
        response=orjson.loads(row.response) if row.response_kind else row.response,
        response_verified=bool(row.response_verified),
    )
