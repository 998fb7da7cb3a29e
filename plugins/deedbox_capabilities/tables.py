"""What is kept of a capability: its terms and how far they are used, never the token (OIP 1.2 §14.4)."""

from __future__ import annotations

from sqlmodel import Field

from deedbox import Rows, Table


class Capability(Table, table=True):
    """One grant. Instants in milliseconds; ``max_uses`` and ``max_body_bytes`` 0 mean no limit."""

    fingerprint: str = Field(primary_key=True)
    nonce: str
    ts: int
    expires_at: int
    scope: str
    row_key: str | None = None
    max_uses: int = 0
    uses_consumed: int = 0
    uses_reserved: int = 0
    purpose: str = ""
    actor: str = ""
    issuer: str
    risk_ceiling: str = "low"
    owner_gate: bool = False
    body_fixed: str | None = None
    max_body_bytes: int = 0
    revoked: bool = False
    revoked_ts: int | None = None
    mint_event_id: str | None = None
    tenant_id: str | None = None
    parent_fingerprint: str | None = None
    delegation_depth: int = 0
    contract_hash: str | None = None
    audience: str | None = None


CAPABILITIES = Rows(Capability, key="fingerprint")
