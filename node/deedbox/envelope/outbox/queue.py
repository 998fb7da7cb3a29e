"""Queueing, cancelling and forgetting messages, in the unit that decides it (decision 18).

The contents of a waiting message are locked, so that a copy of the database gives no capability away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from deedbox import jobs
from deedbox.envelope.at_rest import lock, unlock
from deedbox.envelope.message import MAX_LIFE, MIN_LIFE, Unsigned, compose
from deedbox.envelope.outbox.tables import DELIVER, ENDED_KEPT, GIVEN_UP_AFTER, QUEUED
from deedbox.refusals import Refusal
from deedbox.storage.connection import Row
from deedbox.storage.unit import Unit

if TYPE_CHECKING:
    from deedbox.node import Node

SUMMARY: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What somebody wants sent.

    ``body`` is the clear body; with ``enc`` it stays here and only the sealed block travels. ``cause`` is the receipt
    because of which it is sent; ``life`` milliseconds of each renewal; ``extra`` further members, covered by the
    signature.
    """

    kind: str
    sender: str
    recipient: str
    conversation: str
    body: Mapping[str, Any] | None = None
    enc: Mapping[str, Any] | None = None
    in_reply_to: str | None = None
    capability: str | None = None
    extra: Mapping[str, Any] | None = None
    id: str | None = None
    cause: str = "outbox"
    life: int = 300_000


def queue_message(unit: Unit, node: Node, letter: Letter, *, run_at: int | None = None) -> str:
    """Have a message delivered once the unit is committed; its id.

    ``run_at`` is when a worker may first try: later than now if the caller means to send it at once by himself. The
    same message queued twice is one; raises :class:`Refusal` ``message_id_taken`` for another under its id,
    ``not_our_agent``, or ``malformed_envelope``.
    """
    sender = letter.sender.lower()
    if not node.kernel.agents.hosts(sender):
        raise Refusal("not_our_agent", 403, "this node does not speak for that agent")
    msg_id = letter.id or node.ids.new("msg", unit.now)
    sealed = dict(letter.enc) if letter.enc else None
    kept = {
        "body": None if sealed else dict(letter.body or {}),
        "enc": sealed,
        "capability": letter.capability,
        "extra": dict(letter.extra) if letter.extra else None,
    }
    life = max(MIN_LIFE, min(letter.life, MAX_LIFE))
    row = {
        "msg_id": msg_id,
        "kind": letter.kind,
        "sender": sender,
        "recipient": letter.recipient.lower(),
        "conversation": letter.conversation,
        "in_reply_to": letter.in_reply_to,
        "life": life,
        "created_at": unit.now,
    }
    built = composed(node, row, kept)
    row["body_sha256"] = built.members["body_sha256"]
    row["contents"] = lock(node.kernel.agents.ledger, orjson.dumps(kept), msg_id, node.ids.secret)
    return _stored(unit, row | _projected(letter), run_at if run_at is not None else unit.now)


def _projected(letter: Letter) -> dict[str, Any]:
    """What a conversation will want to know of the body (OIP 1.2 §11.2): of a sealed one no words, threads are open."""
    body = letter.body or {}
    shown = {} if letter.enc else body
    said = shown.get("summary") or shown.get("text") or ""
    decision, key = body.get("decision"), shown.get("key")
    return {
        "key": key if letter.kind == "invoke" and isinstance(key, str) else None,
        "summary": said[:SUMMARY] if letter.kind == "propose" and isinstance(said, str) else None,
        "decision": decision if isinstance(decision, str) else None,
        "cause": letter.cause,
    }


def _stored(unit: Unit, row: dict[str, Any], run_at: int) -> str:
    before = _found(unit, row)
    if before is not None:
        if any(getattr(before, name) != row[name] for name in ("body_sha256", "kind", "conversation")):
            raise Refusal("message_id_taken", 409, "another message to this agent has this id")
        return str(before.msg_id)
    row |= {"queued_at": unit.now, "not_after": unit.now + GIVEN_UP_AFTER, "next_at": unit.now, "state": QUEUED}
    row |= {"attempts": 0, "notices": 0, "uncertain": False, "response_verified": False}
    places = ", ".join(f":{name}" for name in row)
    unit.change(f"insert into envelope_message ({', '.join(row)}) values ({places})", **row)  # noqa: S608  # our names
    made = _found(unit, row)
    assert made is not None  # noqa: S101  # it was inserted a moment ago, in this transaction
    jobs.enqueue(unit, DELIVER, str(made.id), {"message": made.id}, run_at)
    return str(made.msg_id)


def _found(unit: Unit, row: Mapping[str, Any]) -> Row | None:
    return unit.one(
        "select id, msg_id, body_sha256, kind, conversation from envelope_message"
        " where msg_id = :msg_id and recipient = :recipient and sender = :sender",
        msg_id=row["msg_id"],
        recipient=row["recipient"],
        sender=row["sender"],
    )


def cancel_message(unit: Unit, msg_id: str) -> bool:
    """Try no more; false if its delivery has ended. What is under way may still arrive, and is then recorded so."""
    return (
        unit.change(
            "update envelope_message set state = 'cancelled', ended_at = :now, detail = 'cancelled', contents = null"
            " where msg_id = :msg_id and state = 'queued'",
            now=unit.now,
            msg_id=msg_id,
        )
        > 0
    )


def prune_messages(unit: Unit, most: int = 300) -> int:
    """Forget messages that ended a month ago, with their attempts; how many went."""
    old = unit.now - ENDED_KEPT
    which = "select id from envelope_message where ended_at < :old order by ended_at limit :most"
    unit.change(f"delete from envelope_attempt where message in ({which})", old=old, most=most)  # noqa: S608  # ours
    return unit.change(f"delete from envelope_message where id in ({which})", old=old, most=most)  # noqa: S608  # ours


def contents(node: Node, row: Row) -> dict[str, Any]:
    """What of a message is locked; refuses ``contents_unreadable``."""
    found: dict[str, Any] = orjson.loads(unlock(node.kernel.agents.ledger, row.contents or "", row.msg_id))
    return found


def composed(node: Node, row: Mapping[str, Any], kept: Mapping[str, Any]) -> Unsigned:
    """The envelope as it would be signed for a row's times; the same row gives the same bytes."""
    return compose(
        ids=node.ids,
        id=row["msg_id"],
        kind=row["kind"],
        sender=row["sender"],
        recipient=row["recipient"],
        conversation=row["conversation"],
        in_reply_to=row["in_reply_to"],
        body=kept["body"],
        enc=kept["enc"],
        capability=kept["capability"],
        extra=kept["extra"],
        now=row["created_at"],
        life=row["life"],
    )
