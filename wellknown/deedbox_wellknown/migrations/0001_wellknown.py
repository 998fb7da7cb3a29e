"""What peers published, and the keys first seen of their agents."""

from __future__ import annotations

from alembic import op

from deedbox.storage.columns import flag, integer, text

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "wellknown_peer",
        text("domain", key=True),
        text("document", null=True),
        text("etag", null=True),
        integer("fetched_at"),
        integer("max_age"),
        text("failure", null=True),
        integer("failed_at"),
        flag("temporary"),
    )
    op.create_table(
        "wellknown_pin",
        text("agent", key=True),
        text("thumbprint"),
        integer("first_seen"),
        text("changed_to", null=True),
    )
