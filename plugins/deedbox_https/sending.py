"""Sending at the owner's word: queue a message, try it at once, and tell what came back (OIP 1.2 §12.1).

What the ledger is told are ids, kinds and hashes; a capability that travels along is told to nobody but its recipient.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field, field_validator

from deedbox import Allow, Arguments, Deny, Directory, Node, Operation, Stated, Unit
from deedbox.delivery import send_message
from deedbox.envelope.message import MAX_CAPABILITY, MAX_CONVERSATION
from deedbox.envelope.outbox import Letter, queue_message
from deedbox.envelope.seal import seal_body
from deedbox.identity.agent_id import parse_agent_id

SEND = "SEND"
DEADLINE = 60.0
BY_ITSELF = 30_000
"""Milliseconds after which a worker takes over a message whose sender went away before trying it."""
_SAID = (
    "message_id",
    "kind",
    "sender",
    "recipient",
    "conversation",
    "body_sha256",
    "state",
    "response_id",
    "response_kind",
)


class Sending(Arguments):
    """What to send to whom; ``encrypt`` seals the body to the recipient's published key."""

    to: str
    kind: Literal["query", "propose", "invoke", "result", "event", "cancel", "error"] = "query"
    body: dict[str, Any] = Field(default_factory=dict)
    sender: str | None = None
    capability: str | None = Field(None, max_length=MAX_CAPABILITY)
    encrypt: bool = False
    conversation: str | None = Field(None, min_length=1, max_length=MAX_CONVERSATION)
    in_reply_to: str | None = Field(None, max_length=200)

    @field_validator("to", "sender")
    @classmethod
    def _an_agent(cls, given: str | None) -> str | None:
        if given is not None and parse_agent_id(given) is None:
            raise ValueError("an agent is written name@domain")
        return given


def sender(node: Callable[[], Node]) -> Callable[[Sending, Operation], Awaitable[Stated]]:
    """The runner of ``SEND`` for the node that is serving when it is called."""

    async def send(given: Sending, operation: Operation) -> Stated:
        here = node()
        letter = await _letter(here, given, operation)
        standing = await send_message(here, await here.database.run(_queue, here, letter))
        told = asdict(standing)
        return Stated(told, {name: told[name] for name in _SAID})

    return send


async def _letter(node: Node, given: Sending, operation: Operation) -> Letter:
    now = node.kernel.clock.now()
    message_id = node.ids.new("msg", now)
    voice = (given.sender or node.kernel.agents.home).lower()
    enc = None
    if given.encrypt:
        directory = node.port(Directory)  # type: ignore[type-abstract]  # a protocol is the port's name
        record = await directory.resolve(given.to.lower(), now)
        enc = seal_body(given.body, record.key, sender=voice, recipient_id=given.to.lower(), message_id=message_id)
    return Letter(
        kind=given.kind,
        sender=voice,
        recipient=given.to,
        conversation=given.conversation or node.ids.new("conv", now),
        body=given.body,
        enc=enc,
        in_reply_to=given.in_reply_to,
        capability=given.capability,
        id=message_id,
        cause=operation.invocation or operation.intent.request_id or "send",
    )


def _queue(unit: Unit, node: Node, letter: Letter) -> str:
    return queue_message(unit, node, letter, run_at=unit.now + BY_ITSELF)


class OwnersVoice:
    """Only the owner makes the node speak: a signature is the node's word (OIP 1.2 §12.2)."""

    name = "owners-voice"

    def judge(self, unit: Unit, operation: Operation) -> Allow | Deny | None:
        if operation.intent.object_key != SEND or operation.principal.kind == "owner":
            return None
        return Deny("not_allowed", 403, "only the owner makes this node send", policy=self.name)
