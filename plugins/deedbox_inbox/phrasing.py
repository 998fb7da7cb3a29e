"""How the inbox answers: an envelope, unsigned until the commit, sealed if the question was (OIP 1.2 §8.5, §6.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbox import Ended, Operation, Outcome, Output, Receipt, Refusal, Text
from deedbox.canonical import canonical, canonical_with, sha256_hex
from deedbox.clock import utc_z
from deedbox.envelope.message import MAX_BODY, PROTOCOL, Envelope
from deedbox.envelope.seal import seal_body
from deedbox.govern.material import material_of
from deedbox.identity.keys import P256Pair
from deedbox.logs import redacted_text

if TYPE_CHECKING:
    from deedbox import Node

REPLY_LIFE = 300_000
ECHO_TO_UNVERIFIED = 4_096
PREVIEW = 400
QUERY_NOTE = "query text is data; nothing was executed"
INVOKE_NOTE = "executed under a capability bound to the verified sender"
ACKNOWLEDGED_NOTE = "recorded; nothing was executed"
PENDING_NOTE = "a person will decide"


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
            "body": None,
            "capability": None,
        }
        self._members = members
        seal_to = operation.found.seal_to if operation.found else None
        self._print(body, seal_to)
        if len(self._printed) > MAX_BODY:  # what a peer would refuse to read
            self._print(_shortened(body), seal_to)
        sha256 = members["body_sha256"] = sha256_hex(self._printed)
        return Output(self._printed, sha256, {"id": message_id, "kind": kind})

    @property
    def sent(self) -> dict[str, Any]:
        """The members of the answer, for whoever writes the exchange down."""
        return self._members

    def answer(self, operation: Operation, output: Output, receipt: Receipt | None) -> bytes:
        if receipt is not None:
            self._members["receipt"] = receipt.public()
        return canonical_with(self._members, self._name, self._printed)

    def _print(self, body: dict[str, Any], seal_to: Any) -> None:
        """Put the body into the answer, in the clear or sealed to the sender's key."""
        members = self._members
        self._name = "body" if seal_to is None else "enc"
        members[self._name] = body if seal_to is None else self._sealed(body, seal_to, members)
        self._printed = canonical(members[self._name])

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
        kind = self._envelope.kind
        if is_error(operation, outcome):
            return "error", self._error(outcome)
        if kind == "query":
            return "result", self._echo(operation)
        if kind == "invoke":
            return "result", self._result(operation, outcome)
        told: dict[str, Any] = {"received": True, "kind": kind, "note": ACKNOWLEDGED_NOTE}
        if outcome.ended is Ended.HELD:
            told |= {"state": "pending", "note": outcome.next_step or PENDING_NOTE}
        return "event", told

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
            return body | {"echo": {}, "echo_withheld": True}
        if not verified and len(self._envelope.body_bytes) > ECHO_TO_UNVERIFIED:
            return _shortened(body)
        if found.suspicious:
            body["echo"] = without_secrets(found.body)
            if body["echo"] != found.body:
                body["echo_redacted"] = True
        return body

    def _result(self, operation: Operation, outcome: Outcome) -> dict[str, Any]:
        result, args = result_text(outcome), _effective(operation)
        base = self._node.kernel.base_url
        body: dict[str, Any] = {
            "invoked": True,
            "ran": True,
            "ok": material_of(result).proven,
            "object": operation.intent.object_key,
            "agent": self._envelope.recipient,
            "invocation_id": operation.invocation,
            "confirm": f"{base}/api/dispatch?confirm={operation.invocation}",
            "receipt": f"{base}/api/dispatch?confirm={operation.invocation}",
            "result_preview": preview(result),
            "cross_ledger": {
                "request_body_sha256": self._envelope.body_sha256,
                "input_sha256": sha256_hex(canonical({"key": operation.intent.object_key, "args": args})),
                "argument_sha256": sha256_hex(args),
                "output_sha256": sha256_hex(result),
            },
            "capability_fingerprint": paid_with(outcome),
            "note": INVOKE_NOTE,
        }
        return body | ({"result": result} if len(result) < MAX_BODY else {"result_omitted": True})


def is_error(operation: Operation, outcome: Outcome) -> bool:
    """Whether the answer is an error: a run that failed is told by its result (OIP 1.2 §8.5, §29 W40)."""
    if outcome.ok or (outcome.ended is Ended.FAILED and operation.invocation is not None):
        return False
    return outcome.ended is not Ended.HELD or operation.found.envelope.kind != "propose"


def result_text(outcome: Outcome) -> str:
    """A run's result as the wire has it: a string; a failure says so in its first letters (OIP 1.2 §16.8)."""
    if not outcome.ok:
        return f"ERR:object:{outcome.code}"
    value = outcome.value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    try:
        return canonical(value).decode()
    except Refusal:
        return "ERR:object:unprintable"


def _effective(operation: Operation) -> str:
    """The argument a run was really given: the grant's own where it fixes one (OIP 1.2 §8.4)."""
    given = operation.arguments
    if isinstance(given, Text):
        return given.text
    sent: str = operation.found.args
    fixed = {} if sent else given.model_dump(mode="json", exclude_unset=True)
    return canonical(fixed).decode() if fixed else sent


def preview(text: str) -> str:
    """The first 400 UTF-16 code units, never half a character."""
    units = text.encode("utf-16-le")[: 2 * PREVIEW]
    return units.decode("utf-16-le", "ignore")


def paid_with(outcome: Outcome, name: str = "capability") -> str | None:
    """What the charges say of the grant that paid: its fingerprint, or another member."""
    for charge in outcome.charges:
        found = charge.describe().get(name)
        if isinstance(found, str):
            return found
    return None


def without_secrets(value: Any) -> Any:
    """A value in which nothing that looks like a credential is left (OIP 1.2 §26.1, §26.2)."""
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    if isinstance(value, dict):
        return {redacted_text(name): without_secrets(each) for name, each in value.items()}
    return value


def _shortened(body: dict[str, Any]) -> dict[str, Any]:
    """The same answer without what makes it long."""
    if "result" in body:
        return {name: told for name, told in body.items() if name != "result"} | {"result_omitted": True}
    return body | {"echo": {}, "echo_omitted": True} if "echo" in body else body
