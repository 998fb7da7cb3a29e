"""One delivery, as the job ``deliver`` makes it, or at once for somebody who waits (decisions 14, 18, 30)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from deedbox import jobs
from deedbox.delivery.exchange import SENT, UNDELIVERED, SentExchange, ending
from deedbox.delivery.parcel import Handover, NotDelivered, Parcel
from deedbox.delivery.reply import Answer, judge, open_reply
from deedbox.envelope.message import redacted
from deedbox.envelope.outbox import DELIVERED, QUEUED, UNDELIVERABLE, Delivery, message_status, prune_messages
from deedbox.envelope.outbox.attempt import Due, Result, begin_attempt, close, wait
from deedbox.envelope.outbox.queue import composed, contents
from deedbox.envelope.outbox.tables import DELIVER, HOUR
from deedbox.envelope.seal import sign_bytes
from deedbox.hookspecs import Job
from deedbox.jobs.worker import jittered
from deedbox.ports import AgentRecord, Directory
from deedbox.refusals import Fault, Refusal

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.storage.database import Reader
    from deedbox.storage.unit import Unit

FIRST_WAIT: Final = 30_000
LONGEST_WAIT: Final = 4 * HOUR
LEASE: Final = 60_000
OUR_FAULTS_BORNE: Final = 40
NO_ANSWER: Final = 504
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_NO_SUCH_AGENT: Final = frozenset({"bad_agent_id", "agent_not_published"})


def backoff(attempts: int) -> int:
    """Milliseconds before the next attempt, before jitter: half a minute, doubled each time, at most four hours."""
    return min(LONGEST_WAIT, FIRST_WAIT << min(attempts - 1, 20))


def _borne(tries: int) -> int | None:
    """For faults of our own, which say nothing about the message."""
    return None if tries > OUR_FAULTS_BORNE else backoff(tries)


# --- one attempt -------------------------------------------------------------------------------------------------


async def deliver(node: Node, payload: Mapping[str, Any]) -> None:
    """Try once and write how it ended; asks to be run again while there is something to try."""
    lease = jobs.current_lease()
    due = await node.database.run(_begin, node, lease, bool(payload.get("now")))
    if due is None:
        return
    if isinstance(due, int):
        raise jobs.Again(due)
    if due.hopeless:
        return await _end(node, lease, due, Result(UNDELIVERABLE, due.hopeless, due.row.status), None, None)
    try:
        record = await _resolved(node, due)
        handover = await _handed_over(node, due, record)
    except NotDelivered as no:
        return await _not_delivered(node, lease, due, no)
    answer = await judge(node, due, record, handover.answer)
    if answer.worth_repeating:
        passing = NotDelivered(str(answer.body["reason"]), sent=True, answered=handover.status)
        return await _not_delivered(node, lease, due, passing)
    await _end(node, lease, due, _delivered(answer, handover), answer, handover.known)


def _begin(unit: Unit, node: Node, lease: jobs.Claimed, now: bool) -> Due | int | None:
    return begin_attempt(unit, node, lease, now=now)


async def _resolved(node: Node, due: Due) -> AgentRecord:
    try:
        directory = node.port(Directory)  # type: ignore[type-abstract]  # a protocol is the port's name
        record = await directory.resolve(due.row.recipient, node.kernel.clock.now())
    except Refusal as no:
        why = str(no.extra.get("resolve_failure") or no.code)[:80]
        raise NotDelivered(
            f"recipient_unresolvable:{why}", final=why in _NO_SUCH_AGENT, retry_after=no.retry_after
        ) from None
    if not record.fresh and due.row.kind == "invoke":  # an old document serves disclosure only (decision 25)
        raise NotDelivered(f"recipient_unresolvable:{record.doubt or 'stale_document'}")
    return record


async def _handed_over(node: Node, due: Due, record: AgentRecord) -> Handover:
    """Sign and give it to the transport of the recipient's inbox."""
    row = due.row
    scheme = urlsplit(record.inbox).scheme
    transport = node.transports.get(scheme)
    if transport is None:
        raise NotDelivered(f"no_transport:{scheme[:20]}", f"no subscribed facet delivers to {scheme[:20]}:")
    try:
        pair = node.kernel.agents.pair(row.sender, node.kernel.clock.now())
        wire = sign_bytes(due.unsigned, pair, row.sender)
        parcel = Parcel(
            row.msg_id, row.kind, row.sender, row.recipient, row.body_sha256, record.inbox, wire, due.uncertain
        )
        found = await transport.deliver(node, parcel)
    except NotDelivered as no:
        _count(node, scheme, "refused" if no.final else "failed")
        raise
    except Refusal as no:
        _count(node, scheme, "failed")
        raise NotDelivered(no.code, no.detail, retry_after=no.retry_after) from None
    except Exception:
        _count(node, scheme, "failed")
        node.log.exception("transport_failed", scheme=scheme, message=row.msg_id)
        raise NotDelivered("transport_failed", sent=True) from None
    _count(node, scheme, "delivered")
    assert isinstance(found, Handover)  # noqa: S101  # the contract of a transport
    return found


def _count(node: Node, scheme: str, ended: str) -> None:
    node.kernel.metrics.deliveries.add(scheme, ended)


# --- its end -----------------------------------------------------------------------------------------------------


async def _not_delivered(node: Node, lease: jobs.Claimed, due: Due, no: NotDelivered) -> None:
    """Give up, or wait for the next attempt."""
    uncertain = no.uncertain or (due.uncertain and no.answered is None)
    node.log.info("delivery_failed", message=due.row.msg_id, to=due.row.recipient, code=no.code, final=no.final)
    if no.final:
        result = Result(UNDELIVERABLE, no.code, no.answered, no.sent, uncertain)
        return await _end(node, lease, due, result, None, None)
    now = node.kernel.clock.now()
    pause = max(jittered(backoff(due.number), node.ids.secret(2)), 1_000 * (no.retry_after or 0))
    result = Result(QUEUED, no.code, no.answered, no.sent, uncertain)
    raise jobs.Again(await node.database.run(wait, lease, due, result, min(now + pause, due.row.not_after)))


def _delivered(answer: Answer, handover: Handover) -> Result:
    reply = answer.envelope
    return Result(
        DELIVERED,
        answer.wrong,
        handover.status,
        sent=True,
        response_id=reply.id if reply else None,
        response_kind=reply.kind if reply else None,
        response=answer.text,
        response_verified=answer.verified,
    )


async def _end(
    node: Node, lease: jobs.Claimed, due: Due, result: Result, answer: Answer | None, known: Mapping[str, Any] | None
) -> None:
    """Close the delivery and say so on the road, in one unit."""
    exchange = _exchange(due, result, answer, known)
    intent = ending(exchange, due.row.cause, node.kernel.clock.now(), lambda unit: close(unit, lease, due, result))
    reply = await node.govern(intent)
    if reply.outcome.code == "lease_lost":
        raise jobs.LeaseLost
    if not reply.outcome.ok:
        code = reply.outcome.code or "not_recorded"
        raise Refusal(code, 500, "the end of a delivery could not be recorded", fault=Fault.OURS)


def _exchange(due: Due, result: Result, answer: Answer | None, known: Mapping[str, Any] | None) -> SentExchange:
    row = due.row
    reply = answer.envelope if answer else None
    said = answer.body if answer and answer.verified else {}
    reason = said.get("reason") if reply is not None and reply.kind == "error" else None
    return SentExchange(
        message_id=row.msg_id,
        msg_kind=row.kind,
        sender=row.sender,
        recipient=row.recipient,
        conversation=row.conversation,
        in_reply_to=row.in_reply_to,
        body_sha256=row.body_sha256,
        sent_at=due.at,
        sent_decision=row.decision,
        summary=row.summary,
        key=row.key,
        attempts=due.number,
        verdict=SENT if result.state == DELIVERED else UNDELIVERED,
        status=result.status or NO_ANSWER,
        reason=_text(reason) or result.detail or None,
        response_id=result.response_id,
        response_kind=result.response_kind,
        response_body_sha256=reply.body_sha256 if reply and _SHA256.fullmatch(reply.body_sha256) else None,
        response_verified=result.response_verified,
        invocation_id=_invocation(said, known),
        decision=_text(said.get("decision")),
    )


def _invocation(said: Mapping[str, Any], known: Mapping[str, Any] | None) -> str | None:
    """Which run of the peer's this led to: by its signed reply, else by its ledger, which it does not sign."""
    original = said.get("original")
    for source in (said, original if isinstance(original, dict) else {}, known or {}):
        found = _text(source.get("invocation_id"))
        if found:
            return found
    return None


def _text(value: Any) -> str | None:
    """Some of a peer's text, without the one character PostgreSQL does not keep."""
    return (value[:200].replace("\0", "") or None) if isinstance(value, str) else None


# --- at once -----------------------------------------------------------------------------------------------------


async def send_message(node: Node, message_id: str) -> Delivery:
    """Try a queued message now, and say how it stands; in other hands or ended already, say so at once.

    If it cannot be delivered now, it stays queued and is tried again as any other. Raises ``unknown_message``.
    """
    if DELIVER not in node.jobs:
        raise Refusal("not_subscribed", 501, "no subscribed facet delivers messages", fault=Fault.OURS)
    row, sent = await node.database.read(_outgoing, node, message_id)
    if row.state == QUEUED:
        claimed = await node.database.run(jobs.claim_key, DELIVER, str(row.id), LEASE, node.ids.new("lease"))
        if claimed is not None:
            await jobs.perform(node, replace(claimed, payload={**claimed.payload, "now": True}))
    standing: Delivery = await node.database.read(message_status, message_id)
    body = None
    if standing.response_verified and isinstance(standing.response, dict):
        body = open_reply(node, standing.response, standing.sender, node.kernel.clock.now())
    return replace(standing, sent=sent, response_body=body)


def _outgoing(reader: Reader, node: Node, message_id: str) -> tuple[Any, dict[str, Any] | None]:
    """The row, and the envelope as it may be shown: without its token."""
    row = reader.one("select * from envelope_message where msg_id = :id order by id desc limit 1", id=message_id)
    if row is None:
        raise Refusal("unknown_message", 404, "no message of ours has this id")
    if row.contents is None:
        return row, None
    return row, redacted(composed(node, row._asdict(), contents(node, row)).members)


async def _prune(node: Node, payload: Mapping[str, Any]) -> None:
    while await node.database.run(prune_messages):
        pass


DELIVERY_JOBS: Final = (
    Job(DELIVER, deliver, lease=LEASE, delay=_borne),
    Job("outbox_prune", _prune, every=HOUR),
)
"""What whoever brings the first transport contributes to ``deedbox_jobs``."""
