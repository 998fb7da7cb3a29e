"""Envelopes written by hand, as somebody without our outbox would: signed, spoiled, sent, and the reply proven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from deedbox.canonical import admit
from deedbox.cli.demo.scene import Player
from deedbox.envelope.answer import check_reply
from deedbox.envelope.message import Envelope, compose
from deedbox.envelope.seal import sign_bytes, verify
from deedbox.node import Node
from deedbox.ports import Directory

INBOX = "/oip/inbox"


@dataclass(frozen=True, slots=True)
class Written:
    """A signed envelope: what it says, and its bytes."""

    members: dict[str, Any]
    wire: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply that was proven to be the addressed agent's, to this very message."""

    kind: str
    body: dict[str, Any]
    receipt: dict[str, Any]

    @property
    def reason(self) -> str | None:
        found = self.body.get("reason") if self.kind == "error" else None
        return str(found) if found else None


def written(
    player: Player, to: str, kind: str, body: dict[str, Any], *, capability: str | None = None, age: int = 0
) -> Written:
    """An envelope of the player's agent, as if written ``age`` milliseconds ago."""
    node, now = player.node, player.node.kernel.clock.now()
    unsigned = compose(
        ids=node.ids,
        kind=kind,
        sender=player.agent,
        recipient=to,
        body=body,
        conversation=node.ids.new("conv"),
        now=now - age,
        capability=capability,
    )
    wire = sign_bytes(unsigned.wire, node.kernel.agents.pair(player.agent, now), player.agent)
    return Written(unsigned.members, wire)


def spoiled(letter: Written, **members: Any) -> Written:
    """The same envelope with members exchanged after it was signed."""
    changed = {**orjson.loads(letter.wire), **members}
    return Written(letter.members, orjson.dumps(changed))


async def posted(player: Player, letter: Written) -> Answered:
    """Post it to the recipient's inbox over HTTPS and prove the reply; raises ``Refusal`` if it proves nothing."""
    node, recipient = player.node, letter.members["to"]
    answer = await node.kernel.outgoing.post(recipient.partition("@")[2], 443, INBOX, letter.wire)
    return await _proven(node, letter.members, answer.body)


async def _proven(node: Node, sent: dict[str, Any], raw: bytes) -> Answered:
    now = node.kernel.clock.now()
    reply = Envelope.parse(admit(raw), now=now)
    who = {
        "sender": sent["from"],
        "recipient": sent["to"],
    }  # a conversation we spoiled on the way comes back as spoiled
    check_reply(reply, message_id=sent["id"], conversation=reply.conversation, **who)
    directory = node.port(Directory)  # type: ignore[type-abstract]  # a protocol is the port's name
    verify(reply, (await directory.resolve(sent["to"], now)).key, now=now)
    return Answered(reply.kind, reply.members.get("body") or {}, reply.members.get("receipt") or {})
