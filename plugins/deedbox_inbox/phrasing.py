"""How the inbox answers: an envelope, unsigned until the commit, sealed if the question was (OIP 1.2 §8.5, §6.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbox import Ended, Operation, Outcome, Output, Receipt
from deedbox.canonical import canonical, canonical_with, sha256_hex
from deedbox.clock import utc_z
from deedbox.envelope.message import PROTOCOL, Envelope
from deedbox.envelope.seal import seal_body
from deedbox.identity.keys import P256Pair
from deedbox.logs import redacted_text

if TYPE_CHECKING:
    from deedbox import Node

REPLY_LIFE = 300_000
ECHO_TO_UNVERIFIED = 4_096
PREVIEW = 400
RESULT_FITS = 60_000
QUERY_NOTE = "query text is data; nothing was executed"
INVOKE_NOTE = "executed under a capability bound to the verified sender"
ACKNOWLEDGED_NOTE = "recorded; nothing was executed"


class EnvelopePhrasing:
    """The answer to one envelope."""

    __slots__ = ("_envelope", "_members", "_name", "_node", "_printed")

    def __init__(self, node: Node, envelope: Envelope) -> None:
        self._node = node
        self._envelope = envelope
        self._members: dict[str, Any] = {}
        self._name = "body"
        self._printed = b""

    def output(self, operation: Operation, outcome: Outcome) -> Output:
        kind, body = self._body(operation, outcome)
        received = self._envelope
        message_id = self._node.ids.new("msg", operation.now)
        members: dict[str, Any] = {
            "protocol": PROTOCOL,
            "id": message_id,
            "conversation": received.conversation,
            "in_reply_to": received.id,
            "kind": kind,
            "from": received.recipient,
            "to": received.spelled_from,
            "created_at": utc_z(operation.now),
            "expires_at": utc_z(operation.now + REPLY_LIFE),
            "body": body,
            "capability": None,
        }
        seal_to = operation.found.seal_to if operation.found else None
        if seal_to is not None:
            members["enc"] = self._sealed(body, seal_to, members)
            members["body"], self._name = None, "enc"
        self._printed = canonical(members[self._name])
        sha256 = sha256_hex(self._printed)
        members["body_sha256"] = sha256
        self._members = members
        return Output(self._printed, sha256, {"id": message_id, "kind": kind})

    @property
    def sent(self) -> dict[str, Any]:
        """The members of the answer, for whoever writes the exchange down."""
        return self._members

    def answer(self, operation: Operation, output: Output, receipt: Receipt | None) -> bytes:
        if receipt is not None:
            self._members["receipt"] = receipt.public()
        return canonical_with(self._members, self._name, self._printed)

    def _sealed(self, body: dict[str, Any], key: Any, members: dict[str, Any]) -> dict[str, Any]:
        ids = self._node.ids
        return seal_body(
            body,
            key,
            sender=members["from"],
            recipient_id=members["to"],
            message_id=members["id"],
            ephemeral=P256Pair.generate(ids.secret),
            iv=ids.secret(12),
        )

    def _body(self, operation: Operation, outcome: Outcome) -> tuple[str, dict[str, Any]]:
        if not outcome.ok and not (outcome.ended is Ended.FAILED and operation.invocation):
            return "error", self._error(outcome)
        if self._envelope.kind == "query":
            return "result", self._echo(operation)
        if self._envelope.kind == "invoke":
            return "result", self._result(operation, outcome)
        return "event", {"received": True, "kind": self._envelope.kind, "note": ACKNOWLEDGED_NOTE}

    def _error(self, outcome: Outcome) -> dict[str, Any]:
        body: dict[str, Any] = {"reason": outcome.code, "note": outcome.detail or outcome.next_step or "refused"}
        if self._envelope.kind == "invoke":
            body |= {"invoked": False, "ran": False}
        if outcome.next_step:
            body["next_step"] = outcome.next_step
        return body | dict(outcome.extra)

    def _echo(self, operation: Operation) -> dict[str, Any]:
        found = operation.found
        verified = operation.principal.verified
        body: dict[str, Any] = {
            "agent": self._envelope.recipient,
            "answered_at": utc_z(operation.now),
            "echo": found.body,
            "invoked": False,
            "retrieved_text_is_data": True,
            "sender_verified": verified,
            "encrypted": found.encrypted,
            "note": QUERY_NOTE,
        }
        if found.withheld:
            body |= {"echo": {}, "echo_withheld": True}
        elif found.has_token:
            body |= {"echo": _without_tokens(found.body), "echo_redacted": True}
        elif not verified and len(self._envelope.body_bytes) > ECHO_TO_UNVERIFIED:
            body |= {"echo": {}, "echo_omitted": True}
        return body

    def _result(self, operation: Operation, outcome: Outcome) -> dict[str, Any]:
        node, found = self._node, operation.found
        result = result_text(outcome)
        effective = getattr(operation.arguments, "text", None)
        args = effective if isinstance(effective, str) else found.args
        ok = outcome.ended is Ended.EXECUTED and not result.startswith(("ERR:", "PROVIDER_ERROR"))
        base = node.kernel.base_url
        body: dict[str, Any] = {
            "invoked": True,
            "ran": True,
            "ok": ok,
            "object": operation.intent.object_key,
            "agent": self._envelope.recipient,
            "invocation_id": operation.invocation,
            "confirm": f"{base}/api/dispatch?confirm={operation.invocation}",
            "receipt": f"{base}/api/dispatch?receipt={operation.invocation}",
            "result_preview": preview(result),
            "cross_ledger": {
                "request_body_sha256": self._envelope.body_sha256,
                "input_sha256": sha256_hex(canonical({"key": operation.intent.object_key, "args": args})),
                "argument_sha256": sha256_hex(args),
                "output_sha256": sha256_hex(result),
            },
            "capability_fingerprint": _fingerprint(outcome),
            "note": INVOKE_NOTE,
        }
        return body | ({"result": result} if len(result) <= RESULT_FITS else {"result_omitted": True})


def result_text(outcome: Outcome) -> str:
    """A run's result as the wire has it: a string; a failure says so in its first letters (OIP 1.2 §16.8)."""
    if outcome.ended is Ended.FAILED:
        return f"ERR:object:{outcome.code}"
    value = outcome.value
    return value if isinstance(value, str) else canonical(value).decode()


def preview(text: str) -> str:
    """The first 400 UTF-16 code units, never half a character."""
    units = text.encode("utf-16-le")[: 2 * PREVIEW]
    return units.decode("utf-16-le", "ignore")


def _fingerprint(outcome: Outcome) -> str | None:
    for charge in outcome.charges:
        found = charge.describe().get("capability")
        if isinstance(found, str):
            return found
    return None


def _without_tokens(value: Any) -> Any:
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list):
        return [_without_tokens(each) for each in value]
    if isinstance(value, dict):
        return {redacted_text(name): _without_tokens(each) for name, each in value.items()}
    return value
