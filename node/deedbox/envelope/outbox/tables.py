"""The outbox's tables: a message until it has arrived or is given up, and a row per attempt (decisions 14, 30)."""

from __future__ import annotations

from typing import Final

from sqlmodel import Field

from deedbox.storage.tables import Table

QUEUED, DELIVERED, UNDELIVERABLE, CANCELLED = "queued", "delivered", "undeliverable", "cancelled"
DELIVER: Final = "deliver"
"""The kind of job behind every queued message."""

HOUR: Final = 3_600_000
GIVEN_UP_AFTER: Final = 5 * 24 * HOUR
NOTICES: Final = (4 * HOUR, 24 * HOUR)
"""How long a message has been waiting when a notice says so."""
ENDED_KEPT: Final = 30 * 24 * HOUR


class Message(Table, table=True):
    """One message of ours. ``contents`` is locked, and empty once there is nothing left to send."""

    id: int | None = Field(default=None, primary_key=True)
    msg_id: str
    kind: str
    sender: str
    recipient: str
    conversation: str
    in_reply_to: str | None = None
    body_sha256: str
    contents: str | None = None
    key: str | None = None
    summary: str | None = None
    decision: str | None = None
    cause: str
    life: int
    created_at: int
    queued_at: int
    not_after: int
    next_at: int
    state: str
    attempts: int
    notices: int
    uncertain: bool
    ended_at: int | None = None
    detail: str | None = None
    status: int | None = None
    response_id: str | None = None
    response_kind: str | None = None
    response: str | None = None
    response_verified: bool


class Attempt(Table, table=True):
    """One try: ``sent`` once any of the message may have left; ``ended`` is empty while it runs."""

    id: int | None = Field(default=None, primary_key=True)
    message: int
    number: int
    at: int
    ended: int | None = None
    detail: str | None = None
    status: int | None = None
    sent: bool
