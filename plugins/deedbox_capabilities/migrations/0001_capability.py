"""Capabilities, and where to find the children of one."""

from __future__ import annotations

from alembic import op

from deedbox.storage.columns import flag, integer, text

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "capabilities_capability",
        text("fingerprint", key=True),
        text("nonce"),
        integer("ts"),
        integer("expires_at"),
        text("scope"),
        text("row_key", null=True),
        integer("max_uses"),
        integer("uses_consumed"),
        integer("uses_reserved"),
        text("purpose"),
        text("actor"),
        text("issuer"),
        text("risk_ceiling"),
        flag("owner_gate"),
        text("body_fixed", null=True),
        integer("max_body_bytes"),
        flag("revoked"),
        integer("revoked_ts", null=True),
        text("mint_event_id", null=True),
        text("tenant_id", null=True),
        text("parent_fingerprint", null=True),
        integer("delegation_depth"),
        text("contract_hash", null=True),
        text("audience", null=True),
    )
    op.create_index("ix_capabilities_capability_parent_fingerprint", "capabilities_capability", ["parent_fingerprint"])
