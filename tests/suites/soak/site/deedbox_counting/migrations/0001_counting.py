"""Where the facet ``counting`` notes its runs."""

from __future__ import annotations

from alembic import op

from deedbox.storage.columns import text

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("counting_run", text("invocation", key=True), text("name"))
