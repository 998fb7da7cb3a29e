"""How the door answers: a run, a dry run, a document, or a no (OIP 1.2 §16.6, §16.10, §16.11, §14.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from deedbox import Ended, Object, Operation, Outcome, Output, Receipt, Refusal
from deedbox.canonical import canonical, sha256_hex
from deedbox.clock import parse_instant
from deedbox.govern.material import material_of, result_text
from deedbox.logs import redacted_text
from deedbox_dispatch.affordances import affordances, computed_for, described, grant_of, self_description
from deedbox_dispatch.asking import Claims
from deedbox_dispatch.invocation import Run, argument_text, invocation_event, yielded
from deedbox_dispatch.links import VERSION, Links

if TYPE_CHECKING:
    from deedbox import Node

INSTRUCTION = "relay say_to_user; report ok:false as a failure"
SOON = 120
"""Seconds of life left below which a caller is warned."""


def denial(no: Refusal | Outcome, links: Links) -> dict[str, Any]:
    """The body of a no: its code as ``error``, its status, what it names, and what to do (OIP 1.2 §16.6)."""
    told: dict[str, Any] = {"error": no.code, "status": no.status}
    if no.detail:
        told["note"] = no.detail
    if no.next_step:
        told["next_step"] = no.next_step
    told |= no.extra
    if no.code == "unknown_object":
        near = [{"key": key, "read": links.describe(key)} for key in told.get("did_you_mean", ())]
        fix = "nothing ran; pick one of did_you_mean" if near else "nothing ran; the registry lists what there is"
        told |= {"error": "unknown_key", "ran": False, "did_you_mean": near, "fix": fix}
    return told


class Answer:
    """What the phrasings of the door share: members, and the receipt beside them when it is known."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._links = Links(node.kernel.base_url)
        self._told: dict[str, Any] = {}

    def answer(self, operation: Operation, output: Output, receipt: Receipt | None) -> bytes:
        if receipt is not None:
            self._told["receipt"] = receipt.public()
            self._place(receipt)
        return canonical(self._told)

    def _place(self, receipt: Receipt) -> None:
        """Where an answer names its receipt in members of its own."""

    def _denied(self, outcome: Outcome) -> Output:
        return self._tell(denial(outcome, self._links))

    def _tell(self, told: dict[str, Any]) -> Output:
        self._told = told
        return words(canonical(told))


def words(body: bytes, **said: Any) -> Output:
    """The words of an answer, their hash, and what the receipt shall say besides."""
    return Output(body, sha256_hex(body), said=said)


class DocumentAnswer(Answer):
    """The answer of an object that is read, made or ended; ``_status`` in a value is the answer's own status."""

    status = 200

    def output(self, operation: Operation, outcome: Outcome) -> Output:
        if not outcome.ok:
            return self._denied(outcome)
        self._told = dict(outcome.value)
        self.status = self._told.pop("_status", 200)
        token = self._told.get("share_token")
        # What holds a token is told once and leaves no trace, not even in a hash.
        return words(
            canonical({name: text for name, text in self._told.items() if not token or token not in str(text)})
        )

    def _place(self, receipt: Receipt) -> None:
        if "mint_event_id" in self._told:
            self._told["mint_event_id"] = receipt.id


class RunAnswer(Answer):
    """The answer of an object that was run, or would have been."""

    def __init__(self, node: Node, claims: Claims) -> None:
        super().__init__(node)
        self._claims = claims

    def output(self, operation: Operation, outcome: Outcome) -> Output:
        found = operation.object
        if outcome.code == "replay_rejected":
            return self._repeated(outcome)
        if found is None or outcome.ended in (Ended.REFUSED, Ended.HELD):
            return self._held(outcome) if outcome.ended is Ended.HELD else self._denied(outcome)
        if outcome.ended is Ended.SHAPED:
            return self._shaped(operation, found)
        return self._ran(operation, outcome, found)

    def _ran(self, operation: Operation, outcome: Outcome, found: Object[Any]) -> Output:
        result = result_text(outcome)
        material = material_of(result)
        run = Run(operation, found, result, material, self._claims, grant_of(outcome), self._node.domain)
        who = computed_for(operation, run.grant)
        event = invocation_event(run, self._links, self._node.kernel.zone)
        self._told = {
            "ok": not material.failed,
            "ran": True,
            "kind": "invocation_result",
            "trace": event["trace_id"],
            "result": result,
            "cost": 0,
            "proof": self._proof(run),
            "invocation": event,
            "affordances": affordances(who, found, self._links),
            "yield": {**event["yield"], "material": material.material, "waste": False},
            "_self": self_description(found, who, self._links),
            "_oip": {"version": VERSION, "object": described(found, self._links)},
        }
        hashes = run.fingerprints
        return words(
            result.encode(), inputs_sha256=hashes["input"], contract=found.contract, material=material.material
        )

    def _proof(self, run: Run) -> dict[str, Any]:
        invocation, proven, key = run.operation.invocation, run.material.proven, run.found.key
        confirm = self._links.confirm(str(invocation))
        said = f"✓ {key} ran." if proven else f"✗ {key} ran and brought nothing about."
        told: dict[str, Any] = {
            "ok": proven,
            "shaped": False,
            "did": f"ran {key}",
            "invocation_id": invocation,
            "public_receipt": confirm,
            "confirm": confirm,
            "receipt": confirm,
            "say_to_user": f"{said} Receipt: {confirm}",
            "instruction_to_model": INSTRUCTION,
        }
        return told | ({"token": token_life(run.grant, run.operation.now)} if run.grant else {})

    def _shaped(self, operation: Operation, found: Object[Any]) -> Output:
        text = redacted_text(argument_text(operation))
        result = f"SHAPED:{found.descriptor['runner']} {found.key}({orjson.dumps([text]).decode()})"
        material = material_of(result)
        self._told = {
            "ok": False,
            "ran": False,
            "kind": "shaped_dry_run",
            "trace": operation.intent.request_id or None,
            "result": result,
            "cost": 0,
            "proof": {
                "ok": False,
                "shaped": True,
                "did": f"dry run of {found.key}",
                "invocation_id": None,
                "confirm": None,
                "receipt": None,
                "say_to_user": f"✗ Nothing ran. Prepared call: {result}",
            },
            "yield": {**yielded(material), "material": False, "waste": False},
        }
        return words(result.encode(), contract=found.contract, material=False)

    def _held(self, outcome: Outcome) -> Output:
        return self._tell({"ok": False, "ran": False, "pending": True, **denial(outcome, self._links)})

    def _repeated(self, outcome: Outcome) -> Output:
        original = outcome.extra.get("original")
        if isinstance(original, dict):
            return self._tell(deduped(original.get("invocation_id"), self._links))
        reused = Refusal("idempotency_key_reused", 409, "this key stood for another call", extra={"ran": False})
        return self._tell(denial(reused, self._links))

    def _place(self, receipt: Receipt) -> None:
        event = self._told.get("invocation")
        if isinstance(event, dict):
            place = f"entry:{receipt.seq}" if receipt.seq is not None else f"event:{receipt.event}"
            event["event_id"] = event["postcondition"]["ledger_event_id"] = place


def deduped(invocation: str | None, links: Links) -> dict[str, Any]:
    """The answer to a call that is running already under the same key (OIP 1.2 §16.9)."""
    confirm = links.confirm(invocation) if invocation else None
    see = f"; see {confirm}" if confirm else ""
    return {
        "ok": True,
        "ran": False,
        "already_ran": True,
        "deduped": True,
        "note": "collapsed into the first run",
        "proof": {
            "ok": True,
            "did": "duplicate of a run in progress",
            "invocation_id": invocation,
            "confirm": confirm,
            "receipt": confirm,
            "say_to_user": f"✓ This call had just run{see}",
        },
    }


def token_life(grant: dict[str, Any], now: int) -> dict[str, Any]:
    """How long the capability of a run still lives (OIP 1.2 §16.11)."""
    left = max(0, (parse_instant(grant["expires_at"]) or 0) - now) // 1000
    told = {"expires_at": grant["expires_at"], "remaining_seconds": left, "expired": left == 0}
    return told | ({"warn": "this capability is about to expire"} if left < SOON else {})
