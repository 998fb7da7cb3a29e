"""The event of one run as its caller is told it: what ran, for whom, with which hashes, what came out (OIP 1.2 §17)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from deedbox import Object, Operation, Text
from deedbox.canonical import canonical, sha256_hex
from deedbox.clock import server_law
from deedbox.govern.material import Material
from deedbox_dispatch.artifacts import artifacts_of
from deedbox_dispatch.asking import Claims
from deedbox_dispatch.links import Links

PREVIEW = 500
CLAIM_NOTE = "claimed_chain is an unverified claim"
REQUEST_NOTE = "caller text, not authority"


def argument_text(operation: Operation) -> str:
    """The text a run was really given: the grant's own where it fixes one."""
    given = operation.arguments
    if isinstance(given, Text):
        return given.text
    return canonical(given.model_dump(mode="json", exclude_unset=True)).decode()


@dataclass(frozen=True)
class Run:
    """One run that is over: what was asked, what came out, what its caller claimed, what paid for it."""

    operation: Operation
    found: Object[Any]
    result: str
    material: Material
    claims: Claims
    grant: dict[str, Any]
    domain: str

    @cached_property
    def argument(self) -> str:
        return argument_text(self.operation)

    @cached_property
    def fingerprints(self) -> dict[str, Any]:
        """Bare hashes, for the caller's own eyes (OIP 1.2 §25 C22)."""
        return {
            "algorithm": "sha-256",
            "input": sha256_hex(self.argument),
            "output": sha256_hex(self.result),
            "contract": self.found.contract,
        }

    @property
    def actor(self) -> str:
        """Who acted, from what was proven and never from what was sent (OIP 1.2 §29 W24)."""
        who = self.operation.principal
        return f"owner:{self.domain}" if who.kind == "owner" else who.id

    @property
    def authority(self) -> str:
        """The kind of authority it had."""
        if self.grant:
            return "recorded_capability"
        return {"owner": "owner_session", "node": "internal"}.get(self.operation.principal.kind, "unknown")


def yielded(material: Material) -> dict[str, Any]:
    """What came out and at what cost; nothing here is metered yet (OIP 1.2 §17.2)."""
    return {
        "tokens_in": 0,
        "tokens_out": 0,
        "tokens_total": 0,
        "cost_usd": 0,
        "material_outputs": material.outputs,
        "usd_per_output": 0 if material.outputs else None,
    }


def invocation_event(run: Run, links: Links, zone: ZoneInfo) -> dict[str, Any]:
    """Every member of the schema; ``event_id`` and what follows from it are set when the receipt exists."""
    operation, found, material = run.operation, run.found, run.material
    told = found.descriptor
    return {
        "id": operation.invocation,
        "ts": server_law(operation.now, zone),
        "trace_id": operation.intent.request_id or None,
        "object_id": found.key,
        "object_type": told["object_type"],
        "runner": told["runner"],
        "actor": run.actor,
        "input_preview": run.argument[:PREVIEW],
        "output_preview": run.result[:PREVIEW],
        "fingerprints": run.fingerprints,
        "artifacts": artifacts_of(run.result),
        "material": material.material,
        "waste": False,
        "yield": yielded(material),
        "event_id": None,
        "replay_of": None,
        "repairs": None,
        "on_behalf_of": _delegation(run),
        "authorized_by_user": run.claims.authorized_by,
        "intent": _intent(run),
        "operation_contract": found.operation_semantics,
        "postcondition": _postcondition(operation, material),
        "links": _links(str(operation.invocation), found.key, links),
    }


def _delegation(run: Run) -> dict[str, Any] | None:
    if not run.claims.on_behalf_of:
        return None
    return {
        "immediate_actor": run.actor,
        "claimed_chain": list(run.claims.on_behalf_of),
        "minted_for": run.grant.get("minted_for") or None,
        "note": CLAIM_NOTE,
    }


def _intent(run: Run) -> dict[str, Any]:
    request = run.claims.authorized_by and {
        "kind": "caller_attestation",
        "text": run.claims.authorized_by,
        "verified_by_credential": False,
        "note": REQUEST_NOTE,
    }
    return {
        "kind": "invocation_intent",
        "object_id": run.found.key,
        "authority_kind": run.authority,
        "current_user_request": request or None,
        "retrieved_text_is_data": True,
    }


def _postcondition(operation: Operation, material: Material) -> dict[str, Any]:
    told: dict[str, Any] = {
        "status": "observed" if material.proven else "not_observed",
        "receipt_id": operation.invocation,
        "provider_status": material.provider_status,
        "ledger_event_id": None,
        "proof": "receipt",
    }
    return told | ({"provider_failed": True} if material.provider_failed else {})


def _links(invocation: str, key: str, links: Links) -> dict[str, Any]:
    """Only addresses that answer: the public receipt is the confirmation."""
    confirm = links.confirm(invocation)
    return {
        "public_receipt": confirm,
        "confirmation": confirm,
        "receipt": confirm,
        "ledger_event": None,
        "trace": None,
        "object": links.describe(key),
        "replay_of": None,
        "repairs": None,
    }
