"""Making a capability: the owner's terms, clamped, recorded, and told once together with the token (OIP 1.2 §14.5)."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from pydantic import AliasChoices, Field, field_validator

from deedbox import Arguments, Catalog, Kernel, Operation, Receipt, Refusal, Stated, Unit
from deedbox.canonical import b64url
from deedbox.clock import server_law
from deedbox.domains import wire_domain
from deedbox.identity.agent_id import parse_agent_id
from deedbox_capabilities.scopes import scope_of
from deedbox_capabilities.tables import CAPABILITIES
from deedbox_capabilities.tokens import NONCE_BYTES, Token, TokenKey

LIFE = (60, 604_800)
MOST_USES = 999_999
LARGEST_BODY = 1_000_000
SAID = (
    *("scope", "max_uses", "expires_at", "purpose", "actor", "issuer", "risk_ceiling", "owner_gate"),
    *("max_body_bytes", "contract_hash", "audience"),
)
AUDIENCE_NOTE = "works only inside a verified signed invoke from this audience"


class Terms(Arguments):
    """The parameters of a mint (OIP 1.2 §14.5). ``ttl`` in seconds; ``uses`` and ``max_body_bytes`` 0 mean no limit."""

    scope: str = "read"
    key: str = ""
    keys: tuple[str, ...] = ()
    prefix: str = ""
    workspace: str = ""
    role: str = "observer"
    ttl: int = 86_400
    uses: int = 0
    purpose: str = Field("", max_length=500)
    actor: str = Field("", max_length=320)
    risk_ceiling: str = "low"
    owner_gate: bool = False
    body_fixed: str = Field("", max_length=LARGEST_BODY)
    max_body_bytes: int = 0
    aud: str = Field("", max_length=320, validation_alias=AliasChoices("aud", "audience"))
    unlimited: bool = False

    @field_validator("keys", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        return tuple(given.split(",")) if isinstance(given, str) else given


class Mint:
    """The runner of CAPABILITY_MINT, and the observer that notes which receipt a capability began with."""

    name = "capability-minted"
    changes_rows = False

    def __init__(self, kernel: Kernel, key: TokenKey, object_key: str) -> None:
        self._kernel = kernel
        self._key = key
        self.transitions = frozenset({object_key})

    def run(self, unit: Unit, terms: Terms, operation: Operation) -> Stated:
        """Record the grant; the answer holds the token, which is kept nowhere. Refuses terms that mean nothing."""
        scope = scope_of(
            terms.scope,
            key=terms.key,
            keys=terms.keys,
            prefix=terms.prefix,
            workspace=terms.workspace,
            role=terms.role,
        )
        uses = _clamped(terms.uses, 0, MOST_USES)
        if scope == "act" and not uses and not terms.unlimited:
            detail = "a capability for everything, for ever: say unlimited=1 or name the uses"
            raise Refusal("unlimited_not_explicit", 400, detail)
        life = _clamped(terms.ttl, *LIFE)
        token = self._token(unit, scope, uses, unit.now // 1000 + life)
        row = self._row(unit, terms, token, _pin(scope, terms.body_fixed, operation.catalog))
        unit.put(CAPABILITIES, row)
        told = answer(row, token, life, self._kernel.base_url, self._kernel.zone)
        return Stated(told, {"capability": token.fingerprint, "terms": {name: row[name] for name in SAID}})

    def observe(self, unit: Unit, receipt: Receipt) -> None:
        fingerprint = receipt.written.get("capability")
        row = unit.fact(CAPABILITIES, fingerprint) if fingerprint else None
        if row is not None and row["mint_event_id"] is None:
            unit.put(CAPABILITIES, {**row, "mint_event_id": receipt.id})

    def _token(self, unit: Unit, scope: str, uses: int, expires_at: int) -> Token:
        """A token whose fingerprint no other has."""
        while True:
            nonce = b64url(self._kernel.ids.secret(NONCE_BYTES))
            token = self._key.issue(expires_at=expires_at, scope=scope, uses=uses, nonce=nonce)
            if unit.fact(CAPABILITIES, token.fingerprint) is None:
                return token

    def _row(self, unit: Unit, terms: Terms, token: Token, contract: str | None) -> dict[str, Any]:
        return {
            "fingerprint": token.fingerprint,
            "nonce": token.nonce,
            "ts": unit.now,
            "expires_at": token.expires_at * 1000,
            "scope": token.scope,
            "row_key": token.scope.removeprefix("row:") if token.scope.startswith("row:") else None,
            "max_uses": token.uses,
            "uses_consumed": 0,
            "uses_reserved": 0,
            "purpose": terms.purpose,
            "actor": terms.actor,
            "issuer": "owner",
            "risk_ceiling": "high" if terms.risk_ceiling == "high" else "low",
            "owner_gate": terms.owner_gate,
            "body_fixed": terms.body_fixed or None,
            "max_body_bytes": _clamped(terms.max_body_bytes, 0, LARGEST_BODY),
            "revoked": False,
            "revoked_ts": None,
            "mint_event_id": None,
            "tenant_id": None,
            "parent_fingerprint": None,
            "delegation_depth": 0,
            "contract_hash": contract,
            "audience": _audience(terms.aud),
        }


def _clamped(value: int, least: int, most: int) -> int:
    return max(least, min(most, value))


def _pin(scope: str, body_fixed: str, catalog: Catalog | None) -> str | None:
    """The contract a capability for one object is bound to; an object that is not offered has none."""
    if not scope.startswith("row:"):
        return None
    found = catalog.get(scope.removeprefix("row:")) if catalog else None
    if found is None or not found.listed:
        raise Refusal("unknown_capability", 404, "there is no such object to open")
    if body_fixed:
        found.accept(body_fixed)
    return found.contract


def _audience(given: str) -> str | None:
    """An agent or a domain, in lower case; one that can never match is a slip of the pen, and refused."""
    if not given:
        return None
    if "@" in given and parse_agent_id(given) is None:
        raise Refusal("bad_audience", 400, "an audience is name@domain or a domain")
    return given.lower() if "@" in given else wire_domain(given, development=True)


def answer(row: dict[str, Any], token: Token, life: int, base: str, zone: ZoneInfo) -> dict[str, Any]:
    """What the owner is told; the links that hold the token are the one deliberate place where it is shown."""
    door = f"{base}/api/dispatch"
    told: dict[str, Any] = {
        "ok": True,
        "fingerprint": row["fingerprint"],
        "scope": row["scope"],
        "short_code": None,
        "short_url": None,
        "tenant_id": row["tenant_id"],
        "max_uses": row["max_uses"] or "unlimited",
        "expires_at": server_law(row["expires_at"], zone),
        "ttl_seconds": life,
        "purpose": row["purpose"],
        "actor": row["actor"],
        "risk_ceiling": row["risk_ceiling"],
        "owner_gate_required": row["owner_gate"],
        "body_fixed": row["body_fixed"],
        "max_body_bytes": row["max_body_bytes"] or "unlimited",
        "contract_hash": row["contract_hash"],
        "share_token": token.text,
        "explain_url": f"{door}?explain=1&share={token.text}",
        "revoke_url": f"{door}?revoke={row['fingerprint']}",
        "mint_event_id": None,
        "audience": row["audience"],
    }
    if row["audience"]:
        told["audience_note"] = AUDIENCE_NOTE
    return told | _invoke_links(row["scope"], door, token.text)


def _invoke_links(scope: str, door: str, token: str) -> dict[str, Any]:
    kind, _, named = scope.partition(":")
    if kind == "row":
        return {
            "invoke_url": f"{door}?invoke={named}&share={token}",
            "invoke_url_with_body": f"{door}?invoke={named}&body=<ARGS>&share={token}",
        }
    if kind in ("rows", "pfx"):
        allowed = named.split(",") if kind == "rows" else f"{named}*"
        return {"allowed": allowed, "invoke_url_template": f"{door}?invoke=<KEY>&body=<ARGS>&share={token}"}
    return {"registry_url": f"{door}?registry=1"}
