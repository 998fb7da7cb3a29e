"""Telling a holder, or who may read, what a capability can still do and why not more (OIP 1.2 §14.13)."""

from __future__ import annotations

from typing import Any

from deedbox import Arguments, Kernel, Operation, Refusal, Unit
from deedbox.clock import server_law
from deedbox_capabilities.bearer import held
from deedbox_capabilities.chain import Chain, walk
from deedbox_capabilities.gates import Row, record_of
from deedbox_capabilities.tables import CAPABILITIES
from deedbox_capabilities.tokens import Token, TokenKey, fingerprint, is_fingerprint

PROTOCOL = {"protocol": "OIP", "version": "1.2.0", "kind": "capability"}


class Subject(Arguments):
    """Whose limits: a fingerprint, or nothing for the token that is held up."""

    fingerprint: str | None = None


class Explain:
    """The runner of CAPABILITY_EXPLAIN."""

    def __init__(self, kernel: Kernel, key: TokenKey) -> None:
        self._kernel = kernel
        self._key = key

    def run(self, unit: Unit, subject: Subject, operation: Operation) -> dict[str, Any]:
        if subject.fingerprint is not None:
            if not is_fingerprint(subject.fingerprint):
                raise Refusal("bad fingerprint", 400, "a fingerprint is cap_ and 16 hexadecimal digits")
            return self._recorded(unit, subject.fingerprint, unit.fact(CAPABILITIES, subject.fingerprint))
        text = held(operation.intent)
        if not text:
            raise Refusal("nothing to explain", 400, "hold up a token, or name a fingerprint")
        token = self._key.read(text)
        if token is None:
            return _unsaid(fingerprint(text), "bad_signature")
        return self._recorded(unit, token.fingerprint, record_of(unit, token), token)

    def _recorded(self, unit: Unit, named: str, row: Row | None, token: Token | None = None) -> dict[str, Any]:
        if row is None:
            late = token is not None and token.expired(unit.now)
            told = _unsaid(named, "expired" if late else "unknown_capability")
            told["capability"]["legacy_token_no_record"] = token is not None
            return told
        chain = walk(unit, named)
        reason = _reason(row, chain, unit.now)
        return {
            **PROTOCOL,
            "valid": reason is None,
            "reason": reason,
            "capability": self._capability(row, chain, unit.now),
            "ledger": {"mint_event": row["mint_event_id"]},
            "how_to_use": {
                "explain": f"{self._door}?explain=1&share=<THIS-TOKEN>",
                "note": "act strictly inside the verbs above",
            },
        }

    @property
    def _door(self) -> str:
        return f"{self._kernel.base_url}/api/dispatch"

    def _capability(self, row: Row, chain: Chain, now: int) -> dict[str, Any]:
        zone = self._kernel.zone
        return {
            "fingerprint": row["fingerprint"],
            "issuer": row["issuer"],
            "actor": row["actor"],
            "purpose": row["purpose"],
            "scope": row["scope"],
            "allowed": {
                "endpoint": self._door,
                "row_key": row["row_key"],
                "verbs": verbs(row["scope"]),
                "body_fixed": row["body_fixed"],
            },
            "risk_ceiling": row["risk_ceiling"],
            "resource_limits": {"max_body_bytes": row["max_body_bytes"] or "unlimited"},
            "contract_pin": _pin(row["contract_hash"]),
            "owner_gate_required": bool(row["owner_gate"]),
            "minted_at": server_law(row["ts"], zone),
            "expires_at": server_law(row["expires_at"], zone),
            "remaining_ttl_seconds": max(0, (row["expires_at"] - now) // 1000),
            "uses": uses(row),
            "revoked": bool(row["revoked"]),
            "legacy_token_no_record": False,
            "delegation": _delegation(row, chain),
            "audience": row["audience"],
            "tenant_id": row["tenant_id"],
        }


def _unsaid(named: str, reason: str) -> dict[str, Any]:
    """Of what is not ours or not recorded nothing is told (OIP 1.2 §29 W33)."""
    return {**PROTOCOL, "valid": False, "reason": reason, "capability": {"fingerprint": named}}


def _reason(row: Row, chain: Chain, now: int) -> str | None:
    if row["expires_at"] <= now:
        return "expired"
    if not chain.live:
        return chain.reason
    return "use_exhausted" if uses(row)["remaining"] == 0 else None


def uses(row: Row) -> dict[str, Any]:
    most, used, reserved = row["max_uses"], row["uses_consumed"], row["uses_reserved"]
    left = max(0, most - used - reserved) if most else "unlimited"
    return {"max": most or "unlimited", "used": used, "reserved_for_children": reserved, "remaining": left}


def verbs(scope: str) -> list[str]:
    """What a scope lets its holder do, in words."""
    kind, _, named = scope.partition(":")
    return {
        "read": ["READ documents"],
        "act": ["INVOKE any listed object", "READ documents"],
        "row": [f"INVOKE {named} only"],
        "rows": [f"INVOKE {key}" for key in named.split(",")],
        "pfx": [f"INVOKE keys that begin with {named}"],
    }.get(kind, [])


def _pin(contract: str | None) -> dict[str, str] | None:
    if contract is None:
        return None
    return {"algorithm": "sha-256", "hash": contract, "rule": "a changed contract makes this token refuse"}


def _delegation(row: Row, chain: Chain) -> dict[str, Any]:
    return {
        "parent_fingerprint": row["parent_fingerprint"],
        "depth": row["delegation_depth"],
        "ancestor_chain_valid": chain.live,
        "ancestor_chain_reason": chain.reason,
        "ancestor_fingerprints": list(chain.fingerprints),
        "law": "a child is never wider than its parent",
    }
