"""The notices."""

from __future__ import annotations

from alembic import op

from deedbox.storage.columns import integer, number, text

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("noticeboard_notice", number("id"), integer("at"), text("who"), text("text"))
