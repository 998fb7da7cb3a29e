"""One attempt and how it ends, each a unit under the job's lease; nothing here touches the network (decision 30).

What travels lives minutes, so it is built anew for an attempt when half its life is over: other times, another
signature, the same id and body (OIP 1.2 §12.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deedbox import jobs
from deedbox.envelope.outbox.queue import composed, contents
from deedbox.envelope.outbox.tables import HOUR, NOTICES, QUEUED
from deedbox.refusals import Refusal
from deedbox.storage.connection import Row
from deedbox.storage.unit import Unit

if TYPE_CHECKING:
    from deedbox.node import Node


@dataclass(frozen=True, slots=True)
class Due:
    """A message whose next attempt has begun: the row, and the canonical unsigned envelope that is to be signed.

    ``hopeless`` names why there is nothing to try any more; then nothing has begun.
    """

    row: Row
    number: int
    at: int
    unsigned: bytes = b""
    capability: str | None = None
    uncertain: bool = False
    hopeless: str = ""


def begin_attempt(unit: Unit, node: Node, lease: jobs.Claimed, *, now: bool) -> Due | int | None:
    """Open the next attempt, renewing what half its life has passed; nothing if the delivery has ended.

    Answers an instant instead when it is too early, unless it shall be ``now``. What an earlier worker left open ended
    without our knowing how: its message may have arrived.
    """
    lease.require(unit)
    row = _row(unit, lease.payload["message"])
    if row is None or row.state != QUEUED:
        return None
    row = _noticed(unit, node, row)
    uncertain = _close_open_attempts(unit, row.id) or bool(row.uncertain)
    if unit.now >= row.not_after:
        return Due(row, row.attempts, unit.now, uncertain=uncertain, hopeless=row.detail or "expired")
    if unit.now < row.next_at and not now:
        return next_wake(row, row.next_at)
    try:
        kept = contents(node, row)
    except Refusal as refusal:
        return Due(row, row.attempts, unit.now, uncertain=uncertain, hopeless=refusal.code)
    renewed = unit.now if 2 * (unit.now - row.created_at) >= row.life else row.created_at
    members = {name: getattr(row, name) for name in _ENVELOPE} | {"created_at": renewed}
    number = row.attempts + 1
    unit.change(
        "update envelope_message set attempts = :number, created_at = :renewed where id = :id",
        id=row.id,
        number=number,
        renewed=renewed,
    )
    unit.change(
        "insert into envelope_attempt (message, number, at, sent) values (:message, :number, :at, false)",
        message=row.id,
        number=number,
        at=unit.now,
    )
    return Due(row, number, unit.now, composed(node, members, kept).wire, kept["capability"], uncertain)


_ENVELOPE = ("msg_id", "kind", "sender", "recipient", "conversation", "in_reply_to", "life")


def _row(unit: Unit, number: int) -> Row | None:
    return unit.one("select * from envelope_message where id = :id", id=number)


def _close_open_attempts(unit: Unit, message: int) -> bool:
    """Attempts whose worker is gone; what they sent nobody knows."""
    broken_off = unit.change(
        "update envelope_attempt set ended = :now, detail = 'interrupted', sent = true"
        " where message = :message and ended is null",
        now=unit.now,
        message=message,
    )
    if broken_off:
        unit.change("update envelope_message set uncertain = true where id = :id", id=message)
    return broken_off > 0


def _noticed(unit: Unit, node: Node, row: Row) -> Row:
    """Say once each that a message is late; the row as it is now."""
    due = sum(unit.now - row.queued_at >= after for after in NOTICES)
    if due <= row.notices:
        return row
    said: dict[str, Any] = {"surface": "outbox", "object": "delivery_delayed", "actor": f"node:{row.cause}"}
    said |= {"msg": row.msg_id, "kind": row.kind, "from": row.sender, "to": row.recipient}
    said |= {"hours": NOTICES[due - 1] // HOUR, "attempts": row.attempts, "detail": row.detail or ""}
    node.ledger.event(unit, {"ts": unit.now, **said})
    unit.change("update envelope_message set notices = :due where id = :id", due=due, id=row.id)
    return row._replace(notices=due)


def next_wake(row: Row, next_at: int) -> int:
    """When there is something to do about a waiting message: a try, a notice, or giving up."""
    notices = [row.queued_at + after for after in NOTICES[row.notices :]]
    return int(min(next_at, row.not_after, *notices))


# --- its end -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended: ``state`` is what the message is afterwards, ``response`` what the peer said, as text.

    ``status`` is the peer's HTTP status, where there was one.
    """

    state: str
    detail: str = ""
    status: int | None = None
    sent: bool = False
    uncertain: bool = False
    response_id: str | None = None
    response_kind: str | None = None
    response: str | None = None
    response_verified: bool = False


def wait(unit: Unit, lease: jobs.Claimed, due: Due, result: Result, next_at: int) -> int:
    """Close an attempt after which another is worth making; when the job should run again."""
    lease.require(unit)
    _close_attempt(unit, due, result)
    unit.change(
        "update envelope_message set next_at = :next_at, uncertain = :uncertain, detail = :detail, status = :status"
        " where id = :id",
        id=due.row.id,
        next_at=next_at,
        uncertain=result.uncertain,
        detail=result.detail,
        status=result.status,
    )
    return next_wake(due.row, next_at)


def close(unit: Unit, lease: jobs.Claimed, due: Due, result: Result) -> None:
    """Close an attempt and with it the delivery; what is no longer needed to send is forgotten."""
    lease.require(unit)
    _close_attempt(unit, due, result)
    unit.change(
        "update envelope_message set state = :state, ended_at = :now, detail = :detail, status = :status,"
        " uncertain = :uncertain, contents = null, response_id = :response_id, response_kind = :response_kind,"
        " response = :response, response_verified = :response_verified where id = :id",
        id=due.row.id,
        now=unit.now,
        state=result.state,
        detail=result.detail or None,
        status=result.status,
        uncertain=result.uncertain,
        response_id=result.response_id,
        response_kind=result.response_kind,
        response=result.response,
        response_verified=result.response_verified,
    )


def _close_attempt(unit: Unit, due: Due, result: Result) -> None:
    unit.change(
        "update envelope_attempt set ended = :now, detail = :detail, status = :status, sent = :sent"
        " where message = :message and number = :number and ended is null",
        now=unit.now,
        detail=result.detail or None,
        status=result.status,
        sent=result.sent,
        message=due.row.id,
        number=due.number,
    )
