"""Exchanges, threads, sealed blocks, and where to find a message."""

from __future__ import annotations

from alembic import op

from deedbox.storage.columns import append_only, blob, flag, integer, text

revision = "0001"
down_revision = None


def upgrade() -> None:
    _exchanges()
    op.create_table(
        "inbox_thread",
        text("key", key=True),
        integer("id"),
        text("conversation"),
        text("home"),
        text("other"),
        flag("verified"),
        text("opened_by"),
        integer("created_at"),
        integer("updated_at"),
        text("state"),
        integer("messages"),
        text("commitments"),
        text("requests"),
        text("receipts"),
        text("final", null=True),
    )
    op.create_index("ix_inbox_thread_verified_updated_at", "inbox_thread", ["verified", "updated_at"])
    op.create_table("inbox_block", text("sha256", key=True), text("sender"), integer("kept_until"))
    op.create_index("ix_inbox_block_kept_until", "inbox_block", ["kept_until"])
    op.create_table("inbox_recent", integer("exchange", key=True), text("msg_id"), integer("at"))
    op.create_index("ix_inbox_recent_msg_id", "inbox_recent", ["msg_id"])
    op.create_table(
        "inbox_span", integer("first", key=True), integer("last"), integer("begins"), integer("ends"), blob("pairs")
    )


def _exchanges() -> None:
    op.create_table(
        "inbox_exchange",
        integer("id", key=True),
        integer("thread"),
        text("direction"),
        integer("at"),
        text("msg_id"),
        text("kind"),
        text("sender"),
        text("recipient"),
        text("in_reply_to", null=True),
        text("body_sha256"),
        flag("verified"),
        text("verdict"),
        integer("status"),
        text("reason", null=True),
        text("audience", null=True),
        text("capability", null=True),
        text("invocation", null=True),
        text("response_id", null=True),
        text("response_kind", null=True),
        text("response_sha256", null=True),
        flag("response_verified"),
        integer("responded_at", null=True),
    )
    op.create_index("ix_inbox_exchange_thread", "inbox_exchange", ["thread"])
    append_only("inbox_exchange")
