"""The Inbox port: envelope bytes from any carrier, parsed, and sent down the one road (OIP 1.2 §8.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from deedbox import Intent, Once, Refusal, Reply
from deedbox.canonical import NOT_CANONICAL, admit, canonical, sha256_hex
from deedbox.clock import parse_instant, utc_z
from deedbox.envelope.message import MAX_LIFE_BY_MAIL, Envelope, Malformed
from deedbox.envelope.seal import sign_bytes
from deedbox.web import JsonPhrasing
from deedbox_inbox.kinds import NOTHING
from deedbox_inbox.phrasing import REPLY_LIFE, EnvelopePhrasing

if TYPE_CHECKING:
    from deedbox import Node

OBJECT_OF_KIND = {
    "query": "QUERY",
    "propose": "PROPOSE",
    "result": "RESULT",
    "event": "EVENT",
    "cancel": "CANCEL",
    "error": "ERROR",
}


MAIL = "email"
"""The carrier that takes hours: its envelopes may live longer (decision 30)."""


@dataclass(slots=True)
class Sealed:
    """An envelope as a credential: who signed it is still to be proven."""

    envelope: Envelope


UNREAD = JsonPhrasing()
"""The phrasing of what never became an envelope: the carrier answers for itself, unsigned."""


class Reception:
    """Takes envelopes in; every carrier calls `accept`. ``max_life`` is an envelope's by HTTP, in milliseconds."""

    def __init__(self, max_life: int) -> None:
        self.max_life = max_life
        self.node: Node | None = None

    async def accept(self, raw: bytes, *, carrier: str = "https", address: str = "") -> Reply:
        """Take envelope bytes down the road; a refusal in the reply is for the carrier to phrase."""
        node = self.node
        assert node is not None  # noqa: S101  # set when the node is assembled
        now = node.kernel.clock.now()
        try:
            if node.shield.spent(address, now):  # parsing is the dearest part of what is no envelope
                node.shield.check(address, now)
            envelope = self._parse(raw, now, MAX_LIFE_BY_MAIL if carrier == MAIL else self.max_life)
            self._check_recipient(node, envelope)
        except Refusal as refusal:
            node.shield.admits(address, now)
            return await node.refuse(self._unread(raw, now, carrier, address), refusal)
        return await node.govern(self._intent(node, envelope, raw, now, carrier, address))

    def answer(self, reply: Reply) -> bytes:
        """The envelope that answers, signed: what was committed, or what an earlier answer was and never left."""
        node, operation = self.node, reply.operation
        assert node is not None  # noqa: S101  # set when the node is assembled
        assert operation is not None  # noqa: S101  # an answer without an operation was phrased by nobody
        agent, now = operation.found.envelope.recipient, node.kernel.clock.now()
        stored = renewed(reply.answer, now) if reply.undelivered else reply.answer
        return sign_bytes(stored, node.kernel.agents.pair(agent, now), agent)

    def _parse(self, raw: bytes, now: int, max_life: int) -> Envelope:
        try:
            envelope = Envelope.parse(admit(raw), now=now, max_life=max_life)
        except Malformed:
            raise
        except Refusal as refusal:
            if refusal.code in NOT_CANONICAL:
                raise Malformed("non_canonical_json", f"{refusal.code}: {refusal.detail}") from None
            raise Refusal("invalid_json", 400, refusal.detail) from None
        if "\0" in envelope.conversation:
            raise Malformed("bad_conversation", "a conversation's name holds a NUL")
        return envelope

    def _check_recipient(self, node: Node, envelope: Envelope) -> None:
        agents = node.kernel.agents
        if not agents.hosts(envelope.recipient):
            raise Refusal(
                "unknown_recipient",
                404,
                "no such agent is hosted here",
                extra={"to": envelope.spelled_to, "expected": agents.home},
            )

    def _unread(self, raw: bytes, now: int, carrier: str, address: str) -> Intent:
        return Intent("inbox", now, "", None, UNREAD, raw=raw, address=address, subject={"carrier": carrier})

    def _intent(self, node: Node, envelope: Envelope, raw: bytes, now: int, carrier: str, address: str) -> Intent:
        kind = envelope.kind
        subject = {
            "msg": envelope.id,
            "kind": kind,
            "from": envelope.sender,
            "to": envelope.recipient,
            "conversation": envelope.conversation,
            "carrier": carrier,
        }
        return Intent(
            surface="inbox",
            at=now,
            object_key=OBJECT_OF_KIND.get(kind, ""),
            arguments=NOTHING,
            phrasing=EnvelopePhrasing(node, envelope),
            credential=Sealed(envelope),
            once=once_of(envelope),
            raw=raw,
            address=address,
            inputs_sha256=envelope.body_sha256[:64],
            named=kind == "invoke",
            subject=subject,
        )


def once_of(envelope: Envelope) -> Once:
    """A message is its (recipient, sender, id); a renewal is the same message (decision 30)."""
    token = sha256_hex(envelope.capability) if envelope.capability else ""
    same = "\n".join((envelope.kind, envelope.body_sha256, envelope.conversation, token))
    key = f"inbox/{envelope.id}/{envelope.recipient}/{envelope.sender}"
    return Once(key, sha256_hex(same), envelope.expires_at)


def renewed(stored: bytes, now: int) -> bytes:
    """An answer that is given late, with times of its own under the same id (decision 30)."""
    members = orjson.loads(stored)
    if (parse_instant(members["expires_at"]) or 0) - now > REPLY_LIFE // 2:
        return stored
    return canonical({**members, "created_at": utc_z(now), "expires_at": utc_z(now + REPLY_LIFE)})
