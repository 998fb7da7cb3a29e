"""The outbox: messages until they have arrived or are given up, and every attempt."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import Column

from deedbox.storage.columns import flag, integer, number, text

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table("envelope_message", *_what_is_sent(), *_how_it_stands())
    unique = ["msg_id", "recipient", "sender"]
    op.create_index("uq_envelope_message_msg_id_recipient_sender", "envelope_message", unique, unique=True)
    op.create_index("ix_envelope_message_ended_at", "envelope_message", ["ended_at"])
    op.create_table(
        "envelope_attempt",
        number("id"),
        integer("message"),
        integer("number"),
        integer("at"),
        integer("ended", null=True),
        text("detail", null=True),
        integer("status", null=True),
        flag("sent"),
    )
    op.create_index("uq_envelope_attempt_message_number", "envelope_attempt", ["message", "number"], unique=True)


def _what_is_sent() -> tuple[Column[Any], ...]:
    return (
        number("id"),
        text("msg_id"),
        text("kind"),
        text("sender"),
        text("recipient"),
        text("conversation"),
        text("in_reply_to", null=True),
        text("body_sha256"),
        text("contents", null=True),
        text("key", null=True),
        text("summary", null=True),
        text("decision", null=True),
        text("cause"),
        integer("life"),
        integer("created_at"),
    )


def _how_it_stands() -> tuple[Column[Any], ...]:
    return (
        integer("queued_at"),
        integer("not_after"),
        integer("next_at"),
        text("state"),
        integer("attempts"),
        integer("notices"),
        flag("uncertain"),
        integer("ended_at", null=True),
        text("detail", null=True),
        integer("status", null=True),
        text("response_id", null=True),
        text("response_kind", null=True),
        text("response", null=True),
        flag("response_verified"),
    )
