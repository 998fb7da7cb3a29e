"""Judging what came back: an envelope or not, ours or not, signed by whom we addressed or not (OIP 1.2 §12.1, W55)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from deedbox.canonical import admit
from deedbox.envelope.answer import check_reply
from deedbox.envelope.message import MAX_REQUEST, Envelope
from deedbox.envelope.outbox.attempt import Due
from deedbox.envelope.seal import open_body, verify
from deedbox.logs import GONE, redacted_text
from deedbox.ports import AgentRecord, Directory
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.node import Node

TEXT_KEPT: Final = 1_500
_NEW_KEY_MAY_HELP: Final = frozenset({"bad_signature", "key_not_of_sender"})
_PASSES: Final = ("well_known_unreachable", "well_known_http_5", "well_known_http_429", "timed_out", "stale_document")
"""Beginnings of a ``resolve_failure`` that is about the weather and not about us."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A peer's answer: its text as it is kept; if it is an envelope, that, and its clear body.

    ``verified`` says it is proven to be the reply; ``wrong`` is the code of the first check it failed.
    """

    text: str = field(repr=False)
    envelope: Envelope | None = None
    body: dict[str, Any] = field(default_factory=dict, repr=False)
    verified: bool = False
    wrong: str = ""

    @property
    def worth_repeating(self) -> bool:
        """The peer says, signed, that it did not take the message for a reason that passes (fed:B13)."""
        if not self.verified or self.envelope is None or self.envelope.kind != "error":
            return False
        reason, failure = self.body.get("reason"), self.body.get("resolve_failure")
        unresolved = reason == "sender_unverifiable" and isinstance(failure, str) and failure.startswith(_PASSES)
        return unresolved or reason == "expired_envelope"


async def judge(node: Node, due: Due, record: AgentRecord, raw: bytes) -> Answer:
    """What an answer is worth. Nothing is raised: an answer that proves nothing is kept as text."""
    now = node.kernel.clock.now()
    try:
        reply = Envelope.parse(admit(raw, limit=MAX_REQUEST), now=now)
    except Refusal as no:
        return Answer(_kept(raw[: 4 * TEXT_KEPT].decode("utf-8", "replace")[:TEXT_KEPT], due), wrong=_code(no))
    text = _kept(orjson.dumps(reply.members).decode(), due)
    try:
        await _prove(node, due, record, reply, now)
    except Refusal as no:
        return Answer(text, reply, reply.body, wrong=no.code)
    return Answer(text, reply, open_reply(node, reply.members, due.row.sender, now), verified=True)


async def _prove(node: Node, due: Due, record: AgentRecord, reply: Envelope, now: int) -> None:
    row = due.row
    check_reply(reply, message_id=row.msg_id, sender=row.sender, recipient=row.recipient, conversation=row.conversation)
    if due.number > 1:  # the stored reply to an earlier attempt may have outlived its time on its way to us
        now = min(now, reply.expires_at - 1)
    try:
        _verify(record, reply, now)
    except Refusal as no:
        directory = node.port(Directory)  # type: ignore[type-abstract]  # a protocol is the port's name
        found = await directory.refresh(row.recipient, now) if no.code in _NEW_KEY_MAY_HELP else None
        if found is None:
            raise
        record = found
        _verify(record, reply, now)
    if not record.fresh:
        raise Refusal(record.doubt or "stale_document", 502, "the key is not fresh enough to prove anything by")


def _verify(record: AgentRecord, reply: Envelope, now: int) -> None:
    verify(reply, record.key, now=now, keys_by_kid=record.valid_keys(now))


def open_reply(node: Node, members: dict[str, Any], recipient: str, now: int) -> dict[str, Any]:
    """The clear body of a proven reply to one of our agents; empty if none of its keys opens it."""
    enc = members.get("enc")
    if not enc:
        return members.get("body") or {}
    for held in node.kernel.agents.keys(recipient, now):
        try:
            return open_body(enc, held.pair, sender=members["from"], recipient=recipient, message_id=members["id"]).body
        except Refusal:
            continue
    return {}


def _kept(text: str, due: Due) -> str:
    """The text without anything that looks like a credential in loose text, and without the one we sent."""
    text = text.replace("\0", "")
    token = due.capability
    if token:
        for spelling in (token, orjson.dumps(token).decode()[1:-1]):
            text = text.replace(spelling, GONE)
    return redacted_text(text) if len(text) <= TEXT_KEPT else text


def _code(no: Refusal) -> str:
    reason = no.extra.get("reason")
    return f"reply_{reason if isinstance(reason, str) else no.code}"
