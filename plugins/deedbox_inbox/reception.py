"""The Inbox port: envelope bytes from any carrier, parsed, and sent down the one road (OIP 1.2 §8.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deedbox import Intent, Once, Refusal, Reply
from deedbox.canonical import NOT_CANONICAL, admit, sha256_hex
from deedbox.envelope.message import Envelope, Malformed
from deedbox.web import JsonPhrasing
from deedbox_inbox.kinds import NOTHING
from deedbox_inbox.phrasing import EnvelopePhrasing

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


@dataclass(frozen=True, slots=True)
class Sealed:
    """An envelope as a credential: who signed it is still to be proven."""

    envelope: Envelope


UNREAD = JsonPhrasing()
"""The phrasing of what never became an envelope: the carrier answers for itself, unsigned."""


class Reception:
    """Takes envelopes in; every carrier calls `accept`."""

    def __init__(self, max_life: int) -> None:
        self._max_life = max_life
        self.node: Node | None = None

    async def accept(self, raw: bytes, *, carrier: str = "https", address: str = "") -> Reply:
        """Take envelope bytes down the road; a refusal in the reply is for the carrier to phrase."""
        node = self.node
        assert node is not None  # noqa: S101  # set when the node is assembled
        now = node.kernel.clock.now()
        try:
            envelope = self._parse(raw, now)
            self._check_recipient(node, envelope)
        except Refusal as refusal:
            return await node.refuse(self._unread(raw, now, carrier, address), refusal)
        return await node.govern(self._intent(node, envelope, raw, now, carrier, address))

    def _parse(self, raw: bytes, now: int) -> Envelope:
        try:
            return Envelope.parse(admit(raw), now=now, max_life=self._max_life)
        except Malformed:
            raise
        except Refusal as refusal:
            if refusal.code in NOT_CANONICAL:
                raise Malformed("non_canonical_json", f"{refusal.code}: {refusal.detail}") from None
            raise Refusal("invalid_json", 400, refusal.detail) from None

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
            inputs_sha256=envelope.body_sha256,
            named=kind == "invoke",
            subject=subject,
        )


def once_of(envelope: Envelope) -> Once:
    """A message is its (recipient, sender, id); a renewal is the same message (decision 30)."""
    token = sha256_hex(envelope.capability) if envelope.capability else ""
    same = "\n".join((envelope.kind, envelope.body_sha256, envelope.conversation, token))
    key = f"inbox/{envelope.id}/{envelope.recipient}/{envelope.sender}"
    return Once(key, sha256_hex(same), envelope.expires_at)
