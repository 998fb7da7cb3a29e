"""Anybody may ask whether a run took place: what ran, when, under which grant, and no contents (OIP 1.2 §18.2).

Hashes of short texts can be guessed, so the public view shows commitments: SHA-256 over the record's own salt in hex,
the word ``input`` or ``output``, and the text's SHA-256 in hex, U+241F between them (§29 W37). Whoever may read the
record has the salt.
"""

from __future__ import annotations

from typing import Any

from deedbox import Arguments, Kernel, Object, Operation, Unit
from deedbox.canonical import sha256_hex
from deedbox.clock import server_law
from deedbox.ledger.recorded import Recorded, recorded
from deedbox_dispatch.links import PROTOCOL, Links

SEPARATOR = "␟"
KEPT_AS = {"input": "inputs_sha256", "output": "output_sha256"}
LINEAGE = {"replay_of": None, "repairs": None, "repaired_by": None}


class Invocation(Arguments):
    """Which run."""

    invocation: str


class Confirm:
    """The runner of CONFIRM."""

    def __init__(self, kernel: Kernel) -> None:
        self._links = Links(kernel.base_url)
        self._domain = kernel.domain
        self._zone = kernel.zone

    def run(self, unit: Unit, asked: Invocation, operation: Operation) -> dict[str, Any]:
        found = recorded(unit, asked.invocation)
        if found is None or found.said.get("ended") not in (None, "executed", "failed", "interrupted"):
            return {
                "protocol": "OIP",
                "kind": "confirmation",
                "confirmed": False,
                "id": asked.invocation[:80],
                "note": "no such invocation",
                "_status": 404,
            }
        catalog = operation.catalog
        key = str(found.said.get("object", ""))
        return self._receipt(found, key, catalog.get(key) if catalog else None)

    def _receipt(self, found: Recorded, key: str, known: Object[Any] | None) -> dict[str, Any]:
        at = server_law(found.at, self._zone)
        material = found.said.get("ended") == "executed" and bool(found.said.get("material", True))
        core = self._invocation(found, key, known, at, material)
        words = "material" if material else "no material result"
        return {
            **PROTOCOL,
            "kind": "public_receipt/v2",
            "title": f"{key}: {words}",
            "confirmed": True,
            "ok": material,
            "status": "PROVEN_MATERIAL_RESULT" if material else "PROVEN_ATTEMPT_NO_MATERIAL_RESULT",
            "headline": f"{key} ran {'with output' if material else 'without output'}, {at}",
            "_links": self._addresses(found.invocation, key),
            "identity": {
                "invocation_id": found.invocation,
                "observed_at": at,
                "actor": core["actor"],
                "capability_fingerprint": core["capability_fingerprint"],
            },
            "execution": self._execution(core),
            "integrity": {
                "fingerprints": core["fingerprints"],
                "lineage": LINEAGE,
                "transparency": _place(found),
            },
            "invocation": core,
            "confirmation": {
                "confirmed": True,
                "invocation_id": found.invocation,
                "object_id": key,
                "observed_at": at,
                "actor": core["actor"],
                "material": material,
                "statement": f"recorded, {'with' if material else 'without'} material output",
            },
        }

    def _invocation(
        self, found: Recorded, key: str, known: Object[Any] | None, at: str, material: bool
    ) -> dict[str, Any]:
        told = known.descriptor if known else {}
        charges: list[dict[str, Any]] = found.said.get("charges", [])
        grant = next((each for each in charges if "capability" in each), {})
        fingerprint = grant.get("capability")
        actor = str(found.said.get("actor", ""))
        if fingerprint:
            actor = f"cap:{fingerprint}"
        elif actor == "owner":
            actor = f"owner:{self._domain}"
        return {
            "id": found.invocation,
            "object_id": key,
            "object_type": told.get("object_type"),
            "runner": told.get("runner"),
            "ts": at,
            "actor": actor,
            "capability_fingerprint": fingerprint,
            "material": material,
            "postcondition": {
                "status": "observed" if material else "not_observed",
                "receipt_id": found.invocation,
                "provider_status": None,
                "ledger_event_id": _place(found)["id"],
                "proof": "receipt",
            },
            "operation_contract": told.get("operation_semantics"),
            "fingerprints": commitments(found),
            "lineage": LINEAGE,
        }

    def _execution(self, core: dict[str, Any]) -> dict[str, Any]:
        key, outcome = core["object_id"], core["postcondition"]
        return {
            "object": {
                "id": key,
                "type": core["object_type"],
                "runner": core["runner"],
                "contract": self._links.describe(key),
            },
            "outcome": {"material": core["material"], "status": outcome["status"], "proof": outcome["proof"]},
            "operation_contract": core["operation_contract"],
        }

    def _addresses(self, invocation: str, key: str) -> dict[str, Any]:
        own = {"href": self._links.confirm(invocation), "rel": "self", "method": "GET", "auth": "public"}
        contract = {"href": self._links.describe(key), "rel": "describedby", "method": "GET", "auth": "public"}
        return {"self": own, "object_contract": contract}


def commitments(found: Recorded) -> dict[str, Any]:
    """Salted, so that nobody can find a short text by trying; the contract is public anyway."""

    def salted(name: str) -> str | None:
        bare = found.said.get(KEPT_AS[name])
        return sha256_hex(SEPARATOR.join((found.salt.hex(), name, bare))) if bare and found.salt else None

    return {
        "algorithm": "sha-256",
        "form": "sha256(salt ␟ name ␟ sha256(text))",
        "input": salted("input"),
        "output": salted("output"),
        "contract": found.said.get("contract"),
    }


def _place(found: Recorded) -> dict[str, Any]:
    """Where in the ledger: an entry with its leaf, or an event with its hash in a batch."""
    if found.seq is not None:
        return {"id": f"entry:{found.seq}", "seq": found.seq, "leaf": found.leaf.hex()}
    return {"id": f"event:{found.event}", "hash": found.leaf.hex()}
