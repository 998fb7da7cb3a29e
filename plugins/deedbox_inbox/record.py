"""Writing down what came and went: exchanges and threads, as an observer of receipts (OIP 1.2 §10.2, §11)."""

from __future__ import annotations

from typing import Any

import orjson

from deedbox import Operation, Outcome, Receipt, Unit
from deedbox.clock import utc_z
from deedbox_inbox.conversation import Message, State, advance
from deedbox_inbox.senders import DAY, thread_key
from deedbox_inbox.tables import BLOCKS, EXCHANGES, RECENT, THREADS

SENT = "FED_SENT"
KEPT_VERIFIED = 30 * DAY
KEPT_UNVERIFIED = DAY
RECEIPTS_SHOWN = 100
BLOCK_KEPT = DAY


class Numbers:
    """The next number of an exchange, read once a group; a thread is numbered by the exchange that opened it."""

    def __init__(self, unit: Unit) -> None:
        last = unit.one("select id from inbox_exchange order by id desc limit 1")
        self.last: int = last.id if last else 0

    def flush(self, group: Any) -> None:
        """Numbers are only counted; the rows that carry them write themselves."""

    def next(self) -> int:
        self.last += 1
        return self.last


class ExchangeObserver:
    """Sees every receipt that concerns an envelope, received or sent."""

    name = "inbox-exchanges"
    transitions = None
    changes_rows = False

    def observe(self, unit: Unit, receipt: Receipt) -> None:
        operation, outcome = receipt.operation, receipt.outcome
        if operation is None or outcome is None:
            return
        if operation.intent.surface == "inbox" and operation.found is not None:
            self._received(unit, receipt, operation, outcome)
        elif operation.intent.object_key == SENT and outcome.ok:
            self._sent(unit, receipt, operation.arguments)

    def _received(self, unit: Unit, receipt: Receipt, operation: Operation, outcome: Outcome) -> None:
        found, envelope = operation.found, operation.found.envelope
        number = unit.part("inbox", Numbers).next()
        claimed = operation.principal.kind == "peer" and outcome.code != "replay_rejected"
        thread = 0
        answer = operation.intent.phrasing.sent  # type: ignore[attr-defined]  # an inbox intent has an inbox phrasing
        if claimed:
            messages = _messages(operation, outcome, answer)
            verified = operation.principal.verified
            thread = touch(unit, number, found.thread, envelope, messages, operation.invocation, verified=verified)
            receipt.remember["exchange"] = number
            if envelope.enc is not None:
                _remember_block(unit, envelope)
        else:
            unit.note(RECENT, (number, envelope.id, unit.now))
        row = (
            *(number, thread, "inbound", unit.now, envelope.id, envelope.kind, envelope.sender, envelope.recipient),
            *(envelope.in_reply_to, envelope.body_sha256, operation.principal.verified),
            *(verdict(operation, outcome, claimed=claimed), outcome.status, outcome.code, _audience(receipt)),
            *(_fingerprint(outcome), operation.invocation),
            *(answer["id"], answer["kind"], answer["body_sha256"], True, unit.now),
        )
        unit.note(EXCHANGES, row)

    def _sent(self, unit: Unit, receipt: Receipt, sent: Any) -> None:
        number = unit.part("inbox", Numbers).next()
        key = thread_key(sent.sender.lower(), sent.recipient.lower(), sent.conversation)
        messages = [
            Message(
                sent.message_id,
                sent.msg_kind,
                sent.sender,
                utc_z(sent.sent_at),
                sent.in_reply_to,
                sent.sent_decision,
                sent.summary or "",
                sent.key,
            )
        ]
        if sent.response_id and sent.response_verified:
            messages.append(
                Message(
                    sent.response_id,
                    sent.response_kind,
                    sent.recipient,
                    utc_z(unit.now),
                    sent.message_id,
                    sent.decision,
                )
            )
        thread = touch(unit, number, key, sent, messages, sent.invocation_id, verified=True)
        unit.note(RECENT, (number, sent.message_id, unit.now))
        row = (
            *(number, thread, "outbound", sent.sent_at, sent.message_id, sent.msg_kind, sent.sender, sent.recipient),
            *(sent.in_reply_to, sent.body_sha256, True, sent.verdict, sent.status, None, None, None),
            *(sent.invocation_id, sent.response_id, sent.response_kind, sent.response_body_sha256),
            *(sent.response_verified, unit.now),
        )
        unit.note(EXCHANGES, row)


def verdict(operation: Operation, outcome: Outcome, *, claimed: bool) -> str:
    """The ledger's word for how a message was taken (OIP 1.2 §8.3)."""
    kind = operation.found.envelope.kind
    if outcome.code == "replay_rejected":
        return "replay_rejected"
    if not claimed:
        return f"rejected:{outcome.code}"
    if outcome.code in ("decrypt_failed", "decrypt_refused"):
        return str(outcome.code)
    if not outcome.ok and not operation.invocation:
        return f"denied:{outcome.code}"
    return {"query": "echoed", "invoke": "invoked"}.get(kind, "acknowledged")


def _messages(operation: Operation, outcome: Outcome, answer: dict[str, Any]) -> list[Message]:
    envelope, body = operation.found.envelope, operation.found.body
    at = utc_z(operation.now)
    decision = body.get("decision")
    received = Message(
        envelope.id,
        envelope.kind,
        envelope.sender,
        at,
        envelope.in_reply_to,
        decision if isinstance(decision, str) else None,
        _summary(body),
        operation.intent.object_key if envelope.kind == "invoke" else None,
    )
    replied = Message(answer["id"], answer["kind"], envelope.recipient, at, envelope.id)
    effective = [received, replied]
    if envelope.kind == "cancel" and not outcome.ok:
        return [replied]  # a cancel that was not honoured leaves the thread as it is
    if outcome.code == "conversation_cancelled":
        return []
    return effective


def _summary(body: dict[str, Any]) -> str:
    said = body.get("summary") or body.get("text") or ""
    return said[:200] if isinstance(said, str) else ""


def _audience(receipt: Receipt) -> str | None:
    for charge in receipt.written.get("charges", ()):
        found = charge.get("audience")
        if isinstance(found, str):
            return found
    return None


def _fingerprint(outcome: Outcome) -> str | None:
    for charge in outcome.charges:
        found = charge.describe().get("capability")
        if isinstance(found, str):
            return found
    return None


def _remember_block(unit: Unit, envelope: Any) -> None:
    """The first verified sender of a sealed block is the only one (OIP 1.2 §6.7)."""
    if unit.fact(BLOCKS, envelope.body_sha256) is None:
        until = max(unit.now + BLOCK_KEPT, envelope.expires_at + BLOCK_KEPT)
        unit.put(BLOCKS, {"sha256": envelope.body_sha256, "sender": envelope.sender, "kept_until": until})


def touch(
    unit: Unit,
    number: int,
    key: str,
    about: Any,
    messages: list[Message],
    invocation: str | None,
    *,
    verified: bool,
) -> int:
    """Apply messages to a thread, opening it with the first; the thread's number."""
    row = unit.fact(THREADS, key) or _opened(unit, number, key, messages)
    state = State(
        row["state"],
        orjson.loads(row["commitments"]),
        orjson.loads(row["requests"]),
        orjson.loads(row["final"]) if row["final"] else None,
    )
    for message in messages:
        advance(state, message)
    receipts = row["receipts"]
    if invocation:
        receipts = orjson.dumps([*orjson.loads(receipts), invocation][-RECEIPTS_SHOWN:]).decode()
    kept = unit.now + (KEPT_VERIFIED if verified else KEPT_UNVERIFIED)
    unit.put(
        THREADS,
        {
            **row,
            "updated_at": unit.now,
            "kept_until": max(kept, row["kept_until"]),
            "state": state.state,
            "messages": row["messages"] + len(messages),
            "commitments": _json(state.open_commitments),
            "requests": _json(state.unresolved_requests),
            "receipts": receipts,
            "final": _json(state.final) if state.final else None,
        },
    )
    return int(row["id"])


def _json(value: Any) -> str:
    return orjson.dumps(value).decode() if value else "[]"


def _opened(unit: Unit, number: int, key: str, messages: list[Message]) -> dict[str, Any]:
    home, other, conversation = key.split("\n", 2)
    return {
        "key": key,
        "id": number,
        "conversation": conversation,
        "home": home,
        "other": other,
        "opened_by": messages[0].sender.lower() if messages else other,
        "created_at": unit.now,
        "updated_at": unit.now,
        "kept_until": 0,
        "state": "open",
        "messages": 0,
        "commitments": "[]",
        "requests": "[]",
        "receipts": "[]",
        "final": None,
    }
